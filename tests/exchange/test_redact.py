"""Redacted sessions in a store: made, grown, led back; stores that hold nothing else (format.md §10)."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from agentsession_cas import Store, entry
from agentsession_cas.core.entry import Draft
from agentsession_cas.core.header import Header
from agentsession_cas.core.identity import redacted_session_id
from agentsession_cas.core.jsonl import projection_lines
from agentsession_cas.core.memory import MemorySource
from agentsession_cas.core.spans import Span, redacted_of, set_redacted
from agentsession_cas.core.tree import Session
from agentsession_cas.core.verify import verify
from agentsession_cas.errors import (
    CallRejected,
    MirrorError,
    NoSession,
    NotRedacted,
    ProfileDiffers,
    ReadOnly,
    RedactedFrom,
    SessionLocked,
    StaleOriginal,
)
from agentsession_cas.maintenance.verify import verify_stored
from agentsession_cas.testing.simfs import Sim
from tests.helpers.legal import forked, grown, ticking_store

PROFILE = "public@1"

Json = dict[str, Any]


def scrub(text: str) -> str:
    """Take a word out."""
    return text.replace("secret", "***")


def lines(session: Session) -> bytes:
    """A session as a file."""
    return b"\n".join(projection_lines(session))


def shorter(session: Session, count: int) -> bytes:
    """The file of a session's first entries."""
    source = MemorySource()
    for each in list(session)[:count]:
        source.add(each, source.find(each.parent) if each.parent else -1)
    return lines(Session(session.header, source, leaf=source.entry_id(count - 1)))


def report(store: Store, session: str) -> Json:
    """What verify says of a session, its links to others included."""

    def header_of(other: str) -> Header | None:
        return store.read(other).header if store.holds(other) else None

    return verify_stored(lambda: store.read(session), header_of)


def told(store: Store, text: str, session: str = "") -> str:
    """A session with a message, appended to one that is there or to a new one; its id."""
    with store.open_session(session) if session else store.create() as held:
        held.append(entry.user(text))
        return held.id


# --- making and growing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_a_redacted_session_grows_as_its_original_does(seed: int) -> None:
    """Redacted again and again while the original grows, it is what it would be redacted once at the end."""
    rng = random.Random(seed)
    with ticking_store() as store:
        author = grown(store, ())
        session, added = author.session.id, 0
        for _ in range(6):
            for _ in range(8):
                author.step(random.Random(rng.randrange(2**32)))
            done = store.redact(session, PROFILE, scrub)
            added += done.added
            again = store.redact(session, PROFILE, scrub)
            assert (again.created, again.added, again.moved, again.head) == (False, 0, False, done.head)
            copy = store.read(done.session)
            assert (len(copy), copy.leaf) == (len(author.session), done.head)
            assert verify(copy)["ok"]
        assert added == len(author.session)
        author.session.close()
        with ticking_store() as other:
            other.import_file(lines(store.read(session)))
            assert lines(other.read(other.redact(session, PROFILE, scrub).session)) == lines(store.read(done.session))


def test_what_a_redaction_says_of_itself() -> None:
    """The derived id; made once, grown after; the head of the original, in the copy's own words."""
    store = Store.memory()
    session = told(store, "a secret")
    done = store.redact(session, PROFILE, scrub)
    assert done.session == redacted_session_id(session, PROFILE)
    assert (done.created, done.added, done.moved, done.base, done.origins) == (True, 1, False, "", [])
    told(store, "more", session)
    done = store.redact(session, PROFILE, scrub)
    assert (done.created, done.added, done.moved) == (False, 1, True)
    copy = store.read(done.session)
    assert copy.leaf == done.head == copy.source.entry_id(1)
    assert copy.header.redacted
    assert copy.header.redacted_from == (session, PROFILE)
    assert [redacted_of(each) for each in copy] == [[Span(1, 1)], [Span(2, 2)]]
    assert store.fsck().ok


def test_a_head_that_moved_back_moves_back_in_the_copy() -> None:
    """And onto the universal root."""
    store = Store.memory()
    session = told(store, "one")
    told(store, "two", session)
    store.redact(session, PROFILE, scrub)
    store.set_head(session, store.read(session).leaf, store.read(session).source.entry_id(0))
    done = store.redact(session, PROFILE, scrub)
    assert (done.added, done.moved, done.head) == (0, True, store.read(done.session).source.entry_id(0))
    store.set_head(session, store.read(session).leaf, "")
    told(store, "another root", session)
    store.set_head(session, store.read(session).leaf, "")
    done = store.redact(session, PROFILE, scrub)
    assert (done.added, store.read(done.session).leaf) == (1, "")
    assert store.read(done.session).source.parent(2) == -1


def test_one_original_has_a_copy_for_every_profile() -> None:
    """And knows none of them: the store finds them."""
    store = Store.memory()
    session = told(store, "a secret")
    made = {store.redact(session, profile, scrub).session for profile in ("public@1", "public@2")}
    store.redact(told(store, "other"), PROFILE, scrub)
    assert {each.id for each in store.redactions(session)} == made
    assert store.redactions("nobody") == []


def test_other_rules_under_one_profile_are_refused() -> None:
    """They would write into one session what either leaves in."""
    store = Store.memory()
    session = told(store, "a secret and a word")
    store.redact(session, PROFILE, scrub)
    before = lines(store.read(redacted_session_id(session, PROFILE)))
    with pytest.raises(ProfileDiffers):
        store.redact(session, PROFILE, lambda text: scrub(text).replace("word", "***"))
    assert lines(store.read(redacted_session_id(session, PROFILE))) == before


def test_a_session_of_that_id_that_is_something_else_is_refused() -> None:
    """It is not written into."""
    store = Store.memory()
    session = told(store, "x")
    store.create(id=redacted_session_id(session, PROFILE)).close()
    with pytest.raises(ProfileDiffers):
        store.redact(session, PROFILE, scrub)


def test_a_copy_that_knows_more_than_the_store_is_stale() -> None:
    """The store's copy of the original has not reached the version redacted."""
    store, behind = Store.memory(), Store.memory()
    session = told(store, "one")
    told(store, "two", session)
    done = store.redact(session, PROFILE, scrub)
    behind.import_file(lines(store.read(done.session)), as_record=True)
    behind.import_file(shorter(store.read(session), 1))
    with pytest.raises(StaleOriginal):
        behind.redact(session, PROFILE, scrub)
    with pytest.raises(StaleOriginal):
        behind.original(done.session)


def test_a_mirror_and_a_held_session_are_not_grown() -> None:
    """As no other append to one is taken; but nothing to add is nothing to refuse."""
    store, other = Store.memory(), Store.memory()
    session = told(store, "one")
    done = store.redact(session, PROFILE, scrub)
    other.import_file(lines(store.read(done.session)))
    other.import_file(lines(store.read(session)), as_record=True)
    assert other.redact(session, PROFILE, scrub).added == 0
    told(other, "two", session)
    with pytest.raises(MirrorError):
        other.redact(session, PROFILE, scrub)
    told(store, "two", session)
    with store.open_session(done.session), pytest.raises(SessionLocked):
        store.redact(session, PROFILE, scrub)
    with pytest.raises(NoSession):
        store.redact("nobody", PROFILE, scrub)


def test_a_copy_that_was_resumed_keeps_its_head() -> None:
    """What the original adds, leaf labels among it, lands on its own branch."""
    store = Store.memory()
    session = told(store, "one")
    done = store.redact(session, PROFILE, scrub)
    told(store, "native", done.session)
    native = store.read(done.session).leaf
    with store.open_session(session) as held:
        held.append(entry.user("two"))
        held.append(held.mark_leaf())
    done = store.redact(session, PROFILE, scrub)
    copy = store.read(done.session)
    assert (done.added, done.moved, done.head, copy.leaf) == (2, False, native, native)
    assert copy.source.parent(copy.source.find(native)) == 0
    assert redacted_of(copy.entry(native)) is None
    _, made_from = store.original(done.session)
    assert native not in made_from
    assert len(made_from) == 3


def test_a_copy_never_outlives_what_it_is_a_copy_of() -> None:
    """What the original's writer has not committed yet is made to last before it is copied; a reader makes nothing."""
    sim = Sim()
    store = Store.open("/store", create=True, host=sim.host, sync="never", background=False)
    held = store.create()
    held.append(entry.user("a secret"))
    held.commit()
    for text in ("not committed", "nor this, once there is a copy"):
        held.append(entry.user(text))
        done = store.redact(held.id, PROFILE, scrub)
        for image in sim.images(20, tear=True, seed=1):
            with Store.open("/store", host=image.host, background=False) as after:
                again = after.redact(held.id, PROFILE, scrub)
                assert (again.created, again.added, again.head) == (False, 0, done.head)
    with Store.open("/store", host=sim.host, read_only=True) as reader, pytest.raises(ReadOnly):
        reader.redact(held.id, PROFILE, scrub)


def test_broken_records_are_redacted_as_they_are() -> None:
    """A redaction is a copy of what there is, taken whole as an import is."""
    store = Store.memory()
    with store.create() as held:
        call = held.append(entry.function_call("c", "tool", "{}")).id
        held.append(entry.reject("c", call, reason="no"))
    source = MemorySource()
    for each in store.read(held.id):
        source.add(each, source.find(each.parent) if each.parent else -1)
    broken = Session(held.header, source, leaf=held.leaf)
    dispatch = entry.dispatch("c", call).at(parent=held.leaf, ts="2026-01-01T00:00:00Z")
    with pytest.raises(CallRejected):
        broken.append(dispatch)
    sealed = entry.Entry.seal(dispatch.type, dispatch.body, held.leaf, str(dispatch.ts))
    source.add(sealed, source.find(held.leaf))
    other = Store.memory()
    other.import_file(lines(broken))
    codes = [problem["code"] for problem in verify(other.read(held.id))["problems"]]
    copy = other.read(other.redact(held.id, PROFILE, scrub).session)
    assert [problem["code"] for problem in verify(copy)["problems"]] == codes == ["call_rejected"]


# --- other sessions --------------------------------------------------------------------------------------------------


def test_a_fork_is_a_fork_of_its_origins_redaction() -> None:
    """Which is made with it; entries of both are led back to the sessions they came from."""
    rng = random.Random(3)
    with ticking_store() as store:
        above = grown(store, [rng.randrange(2**32) for _ in range(30)])
        base = above.here.entries[5]
        below = forked(store, above, base, [rng.randrange(2**32) for _ in range(20)])
        middle = below.here.entries[2]  # still of the prefix
        lowest = store.fork(below.session.id, middle)
        lowest.append(entry.user("a secret"))
        held = [above.session, below.session, lowest]
        names = [each.id for each in held]
        for each in held:
            each.close()
        done = store.redact(names[2], PROFILE, scrub)
        made = [redacted_session_id(name, PROFILE) for name in names]
        assert (done.session, done.origins) == (made[2], made[:2])
        for name, copied in zip(names, made, strict=True):
            assert report(store, copied)["ok"]
            found, made_from = store.original(copied)
            copy = store.read(copied)
            assert found.id == name
            assert [made_from[each.id] for each in copy] == [[each.id] for each in found]
        assert store.read(made[2]).header.parent_session == made[1]
        assert store.fsck().ok
        again = store.redact(names[2], PROFILE, scrub)
        assert (again.created, again.added) == (False, 0)


def test_an_entry_two_sessions_appended_alike_counts_in_each_of_them() -> None:
    """One id before the redaction, and two after it: the positions it was made from differ."""
    store = Store.memory()
    above = told(store, "one")
    base = store.read(above).leaf
    alike = entry.user("two").at(parent=base, ts="2026-01-01T00:00:00Z")
    with store.open_session(above) as held:
        held.append(entry.user("between"))
        held.append(alike)
    with store.fork(above, base) as fork:
        fork.append(alike)
    made = store.read(store.redact(fork.id, PROFILE, scrub).session)
    origin = store.read(redacted_session_id(above, PROFILE))
    assert [redacted_of(each) for each in made] == [[Span(1, 1)], [Span(2, 2)]]
    assert redacted_of(origin.source.entry(2)) == [Span(3, 3)]


def test_a_fork_whose_origin_is_gone_is_redacted_by_itself() -> None:
    """Its prefix with it; where its positions count, nobody can say any more."""
    store = Store.memory()
    above = told(store, "a secret above")
    with store.fork(above, store.read(above).leaf) as fork:
        fork.append(entry.user("a secret below"))
    store.delete(above)
    done = store.redact(fork.id, PROFILE, scrub)
    copy = store.read(done.session)
    assert (done.base, copy.source.base_count, done.origins) == (copy.source.entry_id(0), 1, [])
    assert b"secret" not in lines(copy)
    assert report(store, done.session)["ok"]
    assert store.original(done.session)[1] == {copy.source.entry_id(1): [fork.source.entry_id(1)]}
    told(store, "more", fork.id)
    assert store.redact(fork.id, PROFILE, scrub).added == 1


def test_a_call_and_the_session_it_spawned_still_agree() -> None:
    """Each redacted under the profile, whichever comes first, call ids in step."""
    store = Store.memory()
    with store.create() as parent:
        parent.append(entry.function_call("secret-1", "tool", "{}"))
        child = store.create(parent_session=parent.id, spawned_by="secret-1")
        child.append(entry.user("hi"))
        child.close()
        parent.append(entry.subsession(child.id, "secret-1"))
    done = store.redact(parent.id, PROFILE, scrub)
    assert report(store, done.session)["ok"]
    spawned = store.redact(child.id, PROFILE, scrub)
    assert report(store, done.session)["ok"]
    header = store.read(spawned.session).header
    assert (header.parent_session, header.spawned_by) == (done.session, "***-1")


def test_a_session_that_is_no_redaction_has_no_original() -> None:
    """Nor one that names none, or one the store does not hold."""
    store = Store.memory()
    with pytest.raises(NotRedacted):
        store.original(told(store, "x"))
    store.create(id="unnamed", redacted=True).close()
    with pytest.raises(NoSession):
        store.original("unnamed")
    store.create(id="lost", redacted=True, redacted_from={"session": "gone"}).close()
    with pytest.raises(NoSession):
        store.original("lost")
    with pytest.raises(RedactedFrom):
        store.create(redacted_from={"session": "s"})
    with pytest.raises(RedactedFrom):
        store.create(redacted=True, redacted_from={"profile": "p"})


def test_a_span_leads_back_to_every_entry_it_names() -> None:
    """As another redactor may write it: ranges, in order; nothing for an entry it added."""
    store = Store.memory()
    session = told(store, "one")
    for text in ("two", "three", "four"):
        told(store, text, session)
    ids = [each.id for each in store.read(session)]
    with store.create(redacted=True, redacted_from={"session": session}) as copy:
        first = copy.append(set_redacted(entry.user("one to three, in short"), [Span(1, 3)])).id
        copy.append(set_redacted(entry.info("added"), []))
        last = copy.append(set_redacted(entry.user("both ends"), [Span(1, 1), Span(4, 4)])).id
    original, made_from = store.original(copy.id)
    assert original.id == session
    assert made_from == {first: ids[:3], last: [ids[0], ids[3]]}


# --- media -----------------------------------------------------------------------------------------------------------


def _with_image(store: Store, blob: str) -> str:
    with store.create(media="sidecar") as held:
        held.append(entry.user([{"type": "input_image", "image_url": f"sidecar:{blob}"}]))
        return held.id


def test_a_blob_that_holds_what_is_to_go_refuses_the_redaction() -> None:
    """Blobs are not rewritten, and a copy that names one hands it out; nothing is made then."""
    store = Store.memory()
    clean, dirty = store.put_blob(b"\xff\xd8 nothing"), store.put_blob(b"\xff\xd8 a secret")
    done = store.redact(_with_image(store, clean), PROFILE, scrub)
    assert done.unchecked == []
    assert store.read(done.session).header.media == "sidecar"
    session = _with_image(store, dirty)
    with pytest.raises(NotRedacted) as refused:
        store.redact(session, PROFILE, scrub)
    assert refused.value.where == dirty
    assert store.redactions(session) == []


def test_a_blob_that_is_not_held_is_told_of() -> None:
    """Nobody could look into it."""
    store = Store.memory()
    missing = "sha256:" + "a" * 64
    assert store.redact(_with_image(store, missing), PROFILE, scrub).unchecked == [missing]


# --- stores that hold nothing else -----------------------------------------------------------------------------------


def _published(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "public", create=True, redacted_only=True)


def test_a_redacted_only_store_takes_a_redaction_and_nothing_else(tmp_path: Path) -> None:
    """However it arrives, and when it is opened again by somebody who does not say so."""
    store = Store.memory()
    session = told(store, "a secret")
    done = store.redact(session, PROFILE, scrub)
    _published(tmp_path).close()
    with Store.open(tmp_path / "public") as public:
        public.import_file(lines(store.read(done.session)), as_record=True)
        with pytest.raises(NotRedacted):
            public.import_file(lines(store.read(session)))
        with pytest.raises(NotRedacted):
            public.create()
        with public.open_session(done.session) as copy:
            before = lines(copy)
            for native in (entry.user("native"), Draft("info", {"name": "x", "redacted": ["odd"]})):
                with pytest.raises(NotRedacted):
                    copy.append(native)
                with pytest.raises(NotRedacted):
                    copy.append_batch([set_redacted(entry.info("fine"), []), native])
            assert lines(copy) == before
            copy.append(set_redacted(entry.info("added"), []))
            copy.append(copy.mark_leaf())
            with pytest.raises(NotRedacted):
                copy.append(Draft("label", {"label": "leaf", "target": copy.leaf, "note": "a secret"}))
            copy.set_head(copy.leaf, "")
        fork = public.fork(done.session, store.read(done.session).leaf, redacted=True)
        with fork, pytest.raises(NotRedacted):
            fork.append(entry.user("native"))
        told(store, "native", done.session)
        public.delete(fork.id)
        public.delete(done.session)
        with pytest.raises(NotRedacted):
            public.import_file(lines(store.read(done.session)))
        assert public.session_ids() == []


def test_a_redacted_only_store_may_hold_both_ends_of_a_redaction(tmp_path: Path) -> None:
    """A redaction of what is there is redacted as any other."""
    store = Store.memory()
    done = store.redact(told(store, "a secret"), PROFILE, scrub)
    with _published(tmp_path) as public:
        public.import_file(lines(store.read(done.session)))
        again = public.redact(done.session, "stricter@1", scrub)
        assert public.original(again.session)[0].id == done.session


def test_a_store_is_not_held_to_it_over_what_it_holds_already(tmp_path: Path) -> None:
    """Once all it holds is redacted, an opening may hold it to that."""
    root = tmp_path / "store"
    with Store.open(root, create=True) as store:
        session = told(store, "a secret")
        done = store.redact(session, PROFILE, scrub)
    with pytest.raises(NotRedacted):
        Store.open(root, redacted_only=True)
    with Store.open(root) as store:
        store.delete(session)
        told(store, "native", done.session)
    with pytest.raises(NotRedacted):
        Store.open(root, redacted_only=True)
    with Store.open(root) as store:
        store.delete(done.session)
    with Store.open(root, redacted_only=True) as store, pytest.raises(NotRedacted):
        store.create()
    with Store.open(root) as store:
        store.create().close()

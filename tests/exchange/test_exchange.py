"""Push and fetch, sentence by sentence (store.md A11)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentsession_cas import RefTarget, Store, entry
from agentsession_cas.core.header import new_header
from agentsession_cas.core.jsonl import read_session
from agentsession_cas.errors import (
    BadInput,
    CallIDRepeated,
    HeaderDiffers,
    MirrorError,
    NoBlob,
    NoRaise,
    NoRemote,
    NoSession,
    NoStore,
    NotRedacted,
    SessionLocked,
)
from agentsession_cas.exchange import receiving
from agentsession_cas.exchange.local import LocalEndpoint
from agentsession_cas.testing.simfs import Sim
from tests.helpers.exchange import A, B, Three, fetched, grow, lines, mark, own, pushed, refusals, stores


def sound(*some: Store) -> None:
    """Nothing is wrong with any of them."""
    for store in some:
        report = store.fsck()
        assert report.ok, report.findings


# --- closure ---------------------------------------------------------------------------------------------------------


def test_a_closure_is_entries_bodies_prefix_and_blobs(three: Three) -> None:
    """All of it arrives, in a store that knows nothing of the origin, and stays there when the origin goes."""
    a, b, _ = three
    blob = a.put_blob(b"\x89PNG")
    with a.create(id="origin", media="sidecar") as session:
        session.append(entry.user("first"))
        base = session.append(entry.user([{"type": "input_image", "image_url": f"sidecar:{blob}"}])).id
        session.append(entry.user("not of the prefix"))
    with a.fork("origin", base, id="fork") as fork:
        fork.append(entry.user("of its own"))
    done = pushed(a, b, "fork")
    assert (done.created, done.admitted, done.objects_sent) == (True, 1, 7)
    assert lines(a, "fork") == lines(b, "fork")
    assert b.blob(blob) == b"\x89PNG"
    assert b.session_ids() == ["fork"]
    b.sweep(0)
    assert lines(a, "fork") == lines(b, "fork")
    sound(a, b)


def test_a_fork_of_a_fork_brings_the_whole_path(three: Three) -> None:
    """However far up it begins."""
    a, b, _ = three
    (_, top) = grow(a, "one", "1", "2")
    with a.fork("one", top, id="two") as fork:
        middle = fork.append(entry.user("3")).id
    with a.fork("two", middle, id="three") as fork:
        fork.append(entry.user("4"))
    pushed(a, b, "three")
    assert lines(a, "three") == lines(b, "three")
    pushed(a, b, "two")
    assert lines(a, "two") == lines(b, "two")
    sound(b)


def test_a_session_with_an_unresolved_blob_is_not_pushed(three: Three) -> None:
    """And nothing of it is there."""
    a, b, _ = three
    missing = "sha256:" + "5" * 64
    with a.create(id="s", media="sidecar") as session:
        session.append(entry.user([{"type": "input_image", "image_url": f"sidecar:{missing}"}]))
    with pytest.raises(NoBlob):
        pushed(a, b, "s")
    assert b.session_ids() == []
    assert b.stats()["objects"]["loose"] == 0


def test_the_sender_commits_first() -> None:
    """What was accepted and not committed is there after a power cut at both ends, and so it is here."""
    sim = Sim()
    with stores(sim.host, A, B) as (a, b):
        held = a.create(id="s")
        held.append(entry.user("not committed"), durable=False)
        pushed(a, b, "s")
        told = lines(b, "s")
        for image in sim.images(40, seed=3):
            with stores(image.host, A, B) as (a2, b2):
                assert lines(a2, "s") == lines(b2, "s") == told
        held.close()


def test_the_receiver_commits_before_it_acknowledges() -> None:
    """Of a new session and of entries to one that is there."""
    sim = Sim()
    with stores(sim.host, A, B) as (a, b):
        for texts in (("1", "2"), ("3",), ("4", "5")):
            grow(a, "s", *texts)
            pushed(a, b, "s")
            for image in sim.images(20, seed=len(texts)):
                with stores(image.host, B) as (b2,):
                    assert lines(b2, "s") == lines(a, "s")


# --- marks -----------------------------------------------------------------------------------------------------------


def test_only_the_record_pushes_and_any_holder_serves(three: Three) -> None:
    """A mirror is fetched from, and refuses to push."""
    a, b, c = three
    grow(a, "s", "1")
    pushed(a, b, "s")
    with pytest.raises(MirrorError):
        pushed(b, c, "s")
    assert fetched(c, b, "s").created
    assert (mark(a, "s"), mark(b, "s"), mark(c, "s")) == ("record", "mirror", "mirror")
    assert lines(c, "s") == lines(a, "s")


def test_a_mirror_refuses_local_appends_and_head_moves(three: Three) -> None:
    """Whether it was pushed or fetched."""
    a, b, c = three
    first = grow(a, "s", "1", "2")[0]
    pushed(a, b, "s")
    fetched(c, b, "s")
    for store in (b, c):
        with store.open_session("s") as held:
            assert held.is_mirror
            with pytest.raises(MirrorError):
                held.append(entry.user("x"))
            with pytest.raises(MirrorError):
                held.set_head(held.leaf, first)


def test_declare_record(three: Three) -> None:
    """A mirror whose record is gone becomes one; a record stays one."""
    a, b, _ = three
    grow(a, "s", "1")
    pushed(a, b, "s")
    a.delete("s")
    assert b.declare_record("s")
    assert not b.declare_record("s")
    grow(b, "s", "2")
    assert mark(b, "s") == "record"
    with pytest.raises(NoSession):
        b.declare_record("never")


def test_handover(three: Three) -> None:
    """The receiver is the record, the sender a mirror of it that is pushed to in turn."""
    a, b, _ = three
    grow(a, "s", "1")
    assert pushed(a, b, "s", handover=True).mark == "record"
    assert (mark(a, "s"), mark(b, "s")) == ("mirror", "record")
    grow(b, "s", "2")
    assert pushed(b, a, "s").head.moved
    assert lines(a, "s") == lines(b, "s")
    with pytest.raises(MirrorError):
        pushed(a, b, "s", handover=True)
    pushed(b, a, "s", handover=True)
    assert (mark(a, "s"), mark(b, "s")) == ("record", "mirror")


def test_a_session_somebody_writes_is_pushed_and_not_handed_over(three: Three) -> None:
    """Else what he appends next would be nobody's."""
    a, b, _ = three
    with a.create(id="s") as held:
        held.append(entry.user("1"))
        pushed(a, b, "s")
        with pytest.raises(SessionLocked):
            pushed(a, b, "s", handover=True)
    assert (mark(a, "s"), mark(b, "s")) == ("record", "mirror")


def test_a_handover_waits_for_the_head(three: Three) -> None:
    """One whose head was refused hands nothing over."""
    a, b, c = three
    first = grow(a, "s", "1", "2")[0]
    pushed(a, b, "s")
    a.set_head("s", a.read("s").leaf, first)
    done = pushed(a, b, "s", handover=True, expected=first)
    assert done.head.why
    assert done.mark == "mirror"
    assert (mark(a, "s"), mark(b, "s")) == ("record", "mirror")
    assert c.session_ids() == []


# --- log -------------------------------------------------------------------------------------------------------------


def test_logs_merge_as_a_set(three: Three) -> None:
    """Two records come to hold the same entries, each in the order it met them; what is held is not sent again."""
    a, b, _ = three
    (root,) = grow(a, "s", "root")
    pushed(a, b, "s")
    b.declare_record("s")
    ours, theirs = grow(a, "s", "ours 1", "ours 2"), grow(b, "s", "theirs 1", "theirs 2")
    done = pushed(a, b, "s")
    assert (done.admitted, done.head.moved, done.head.current) == (2, False, theirs[-1])
    assert own(b, "s") == [root, *theirs, *ours]
    assert fetched(a, b, "s").admitted == 2
    assert own(a, "s") == [root, *ours, *theirs]
    assert a.read("s").leaf == ours[-1]
    again = pushed(a, b, "s")
    assert (again.admitted, again.objects_sent) == (0, 0)
    sound(a, b)


def test_a_mirror_fed_by_its_record_projects_the_same_bytes(three: Three) -> None:
    """Whatever the record does to its tree and its head, pushed in whatever portions."""
    a, b, c = three
    first = grow(a, "s", "1", "2", "3")[0]
    steps: list[Callable[[], object]] = [
        lambda: grow(a, "s", "branch", at=first),
        lambda: a.set_head("s", a.read("s").leaf, first),
        lambda: grow(a, "s", "4", "5"),
        lambda: a.set_head("s", a.read("s").leaf, ""),
        lambda: grow(a, "s", "another root"),
        lambda: None,
    ]
    for number, step in enumerate(steps):
        step()
        pushed(a, b, "s")
        assert lines(a, "s") == lines(b, "s")
        if number % 2:
            fetched(c, b, "s")
            assert own(c, "s") == own(a, "s")
    sound(a, b, c)


def test_a_held_id_with_another_header_is_refused(three: Three) -> None:
    """Before anything of it is there."""
    a, b, _ = three
    grow(a, "s", "1")
    with b.create(id="s", cwd="/elsewhere") as other:
        other.append(entry.user("x"))
    before = lines(b, "s")
    with pytest.raises(HeaderDiffers):
        pushed(a, b, "s")
    with pytest.raises(HeaderDiffers):
        fetched(b, a, "s")
    assert lines(b, "s") == before


def _early(store: Store, minor: int, *texts: str, as_record: bool = True) -> None:
    header = new_header(id="s", created_at="2026-01-01T00:00:00Z", format=f"agentsession/0.{minor}")
    with Store.memory() as other, other.create(new_header(id="s", created_at="2026-01-01T00:00:00Z")) as made:
        for text in texts:
            made.append(entry.user(text))
        data = [header.line, *(each.line for each in made)]
    store.import_file(data, as_record=as_record)


def test_the_later_format_is_kept(three: Three) -> None:
    """Whoever has it, also when nothing else is new."""
    a, b, c = three
    _early(a, 11, "1")
    pushed(a, b, "s")
    assert b.read("s").header.minor == 11
    grow(a, "s", "2")
    assert a.read("s").header.minor == 14
    pushed(a, b, "s")
    assert b.read("s").header.minor == 14
    assert lines(a, "s") == lines(b, "s")
    _early(c, 11, "1", as_record=False)
    fetched(c, b, "s")
    assert c.read("s").header.minor == 14
    earlier = read_session([new_header(id="t", created_at="2026-01-01T00:00:00Z", format="agentsession/0.12").line])
    a.import_file([earlier.header.line], as_record=True)
    b.import_file([earlier.header.raised().line])
    pushed(a, b, "t")
    assert b.read("t").header.minor == 14
    sound(a, b, c)


def test_a_raise_that_would_give_a_meaning_is_refused(three: Three) -> None:
    """An entry with ``redacted`` from before 0.13 stays what it was."""
    a, b, _ = three
    with Store.memory() as other, other.create(new_header(id="s", created_at="2026-01-01T00:00:00Z")) as made:
        made.append(entry.user("1"))
        made.append({"type": "custom", "ns": "x", "data": {}, "redacted": [1]})
        entries = list(made)
    early = new_header(id="s", created_at="2026-01-01T00:00:00Z", format="agentsession/0.12").line
    late = new_header(id="s", created_at="2026-01-01T00:00:00Z").line
    a.import_file([late, entries[0].line], as_record=True)
    b.import_file([early, *(each.line for each in entries)])
    with pytest.raises(NoRaise):
        pushed(a, b, "s")
    assert b.read("s").header.minor == 12
    with pytest.raises(NoRaise):
        fetched(a, b, "s")
    assert len(own(a, "s")) == 1


def test_a_call_id_that_only_the_union_repeats_is_refused(three: Three) -> None:
    """Each side has a call of that name, neither has both."""
    a, b, _ = three
    grow(a, "s", "1")
    pushed(a, b, "s")
    b.declare_record("s")
    for store in (a, b):
        with store.open_session("s") as held:
            held.append(entry.function_call("call_1", f"tool_of_{store.root[1:]}", {}))
    before = lines(b, "s")
    with pytest.raises(CallIDRepeated):
        pushed(a, b, "s")
    with pytest.raises(CallIDRepeated):
        fetched(a, b, "s")
    assert lines(b, "s") == before


def test_a_call_id_that_the_sender_repeats_is_not(three: Three) -> None:
    """No other record rule is tested: a record that breaks them travels as it is."""
    a, b, _ = three
    with Store.memory() as other, other.create(id="s") as one:
        said = one.append(entry.user("1"))
        call = one.append(entry.function_call("call_1", "f", {}))
        first = [one.header.line, *(each.line for each in one)]
        with other.create(id="other") as two:
            two.append(one.entry(said.id))
            again = two.entry(two.append(entry.function_call("call_1", "g", {})).id)
            gone = two.entry(two.append(entry.function_call_output("call_9", "of no call")).id)
    b.import_file(first)
    a.import_file([*first, again.line, gone.line], as_record=True)
    assert pushed(a, b, "s").admitted == 2
    assert own(b, "s")[1] == call.id
    assert lines(a, "s") == lines(b, "s")


# --- the head --------------------------------------------------------------------------------------------------------


def test_a_wrong_expected_head_lands_a_branch(three: Three) -> None:
    """The entries are there, the head is where it was, and it says why and where; the next push says it again."""
    a, b, _ = three
    (root,) = grow(a, "s", "root")
    pushed(a, b, "s")
    b.declare_record("s")
    (theirs,) = grow(b, "s", "theirs")
    (ours,) = grow(a, "s", "ours")
    for admitted in (1, 0):
        done = pushed(a, b, "s")
        assert (done.admitted, done.head.moved, done.head.forced, done.head.current) == (admitted, False, False, theirs)
        assert f"the head is {theirs}, and was last seen at {root}" in done.head.why
    assert set(own(b, "s")) == {root, theirs, ours}
    assert b.read("s").leaf == theirs


def test_force_is_distinct_and_reported(three: Three) -> None:
    """It moves the head from anywhere; where it was not needed it was not used."""
    a, b, _ = three
    grow(a, "s", "root")
    assert pushed(a, b, "s", force=True).head.forced is False
    b.declare_record("s")
    grow(b, "s", "theirs")
    (ours,) = grow(a, "s", "ours")
    assert pushed(a, b, "s").head.why
    head = pushed(a, b, "s", force=True).head
    assert (head.moved, head.forced, head.current, head.why) == (True, True, ours, "")
    grow(a, "s", "more")
    assert pushed(a, b, "s", force=True).head.forced is False


def test_the_caller_may_say_what_he_expects(three: Three) -> None:
    """What he names is compared, not what was seen."""
    a, b, _ = three
    (root,) = grow(a, "s", "root")
    assert pushed(a, b, "s", expected="").head.moved
    grow(a, "s", "1")
    assert pushed(a, b, "s", expected="").head.why
    assert pushed(a, b, "s", expected=root).head.moved


def test_a_head_nobody_saw_is_moved_when_the_sender_knows_it(three: Three) -> None:
    """A second sender, or one that forgot, may move the head on from an entry of its own, and from no other."""
    a, b, c = three
    grow(a, "s", "1")
    pushed(a, b, "s")
    fetched(c, a, "s")
    pushed(a, c, "s", handover=True)
    grow(c, "s", "2")
    assert pushed(c, b, "s").head.moved
    a.declare_record("s")
    (other,) = grow(a, "s", "other")
    fetched(b, a, "s")
    assert pushed(a, b, "s").head.why
    assert other in own(b, "s")


def test_a_fetch_lets_the_head_be_seen(three: Three) -> None:
    """After it a push from there moves it."""
    a, b, _ = three
    grow(a, "s", "root")
    pushed(a, b, "s")
    b.declare_record("s")
    (theirs,) = grow(b, "s", "theirs")
    (ours,) = grow(a, "s", "ours")
    assert pushed(a, b, "s").head.why
    done = fetched(a, b, "s")
    assert (done.admitted, done.head.moved, done.head.current) == (1, False, ours)
    assert "a record here" in done.head.why
    assert pushed(a, b, "s").head.moved
    assert b.read("s").leaf == ours
    assert theirs in own(a, "s")


def test_a_mirror_that_fetched_is_still_pushed_to(three: Three) -> None:
    """What it fetched it has from here; a head that moved back is another thing."""
    a, b, _ = three
    first = grow(a, "s", "1")[0]
    pushed(a, b, "s")
    grow(a, "s", "2")
    fetched(b, a, "s")
    grow(a, "s", "3")
    assert pushed(a, b, "s").head.moved
    grow(a, "s", "4")
    fetched(b, a, "s")
    a.set_head("s", a.read("s").leaf, first)
    assert pushed(a, b, "s").head.why
    fetched(a, b, "s")
    assert pushed(a, b, "s").head.moved


def test_a_fetch_moves_the_head_of_a_mirror_to_what_descends_from_it(three: Three) -> None:
    """Or when it has none; else it stays, and says why."""
    a, b, _ = three
    first, second = grow(a, "s", "1", "2")
    assert fetched(b, a, "s").head.moved
    grow(a, "s", "3")
    assert fetched(b, a, "s").head.moved
    a.set_head("s", a.read("s").leaf, first)
    done = fetched(b, a, "s")
    assert (done.head.moved, done.head.current) == (False, b.read("s").leaf)
    assert "does not descend" in done.head.why
    a.set_head("s", first, second)
    assert fetched(b, a, "s").head.why
    grow(a, "t")
    fetched(b, a, "t")
    assert b.read("t").leaf == ""
    grow(a, "t", "first")
    assert fetched(b, a, "t").head.moved


# --- refs ------------------------------------------------------------------------------------------------------------


def test_refs_are_pushed_by_compare_and_swap(three: Three) -> None:
    """Made, moved on from where they were left, pinned as they are here; a refused one undoes nothing."""
    a, b, _ = three
    (first,) = grow(a, "s", "1")
    assert pushed(a, b, "s", refs=["main"]).refs == [("main", True, "")]
    assert b.resolve_ref("main") == RefTarget("s")
    assert pushed(a, b, "s", refs=["main"]).refs == [("main", False, "")]
    a.update_ref("main", None, RefTarget("s", first))
    assert pushed(a, b, "s", refs=["main"]).refs == [("main", True, "")]
    assert b.resolve_ref("main") == RefTarget("s", first)
    grow(b, "other", "x")
    b.update_ref("main", RefTarget("s", first), RefTarget("other"))
    (second,) = grow(a, "s", "2")
    done = pushed(a, b, "s", refs=["main", "fresh"])
    assert [(ref.name, ref.moved) for ref in done.refs] == [("main", False), ("fresh", True)]
    assert "holds other" in done.refs[0].why
    assert b.read("s").leaf == second
    assert b.resolve_ref("main") == RefTarget("other")
    assert pushed(a, b, "s", refs=["main"], force=True).refs == [("main", True, "")]
    sound(a, b)


def test_refs_are_pushed_after_the_head(three: Three, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries and head first; where they are refused no ref moves, where the head alone stays the ref does."""
    a, b, _ = three
    grow(a, "s", "1")
    b.create(id="s", cwd="/elsewhere").close()
    with pytest.raises(HeaderDiffers):
        pushed(a, b, "s", refs=["main"])
    assert b.list_refs() == []
    b.delete("s")
    heads: list[str] = []
    move = LocalEndpoint.move_ref

    def looking(self: LocalEndpoint, *arguments: Any) -> bool:
        heads.append(b.read("s").leaf)
        return move(self, *arguments)

    monkeypatch.setattr(LocalEndpoint, "move_ref", looking)
    assert pushed(a, b, "s", refs=["main"]).refs[0].moved
    assert heads == [a.read("s").leaf]
    grow(a, "s", "2")
    done = pushed(a, b, "s", refs=["other"], expected="")
    assert (done.head.moved, done.refs) == (False, [("other", True, "")])


def test_admission_moves_no_head(three: Three, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps: when the second does not come about, the entries are there as a branch, and the head where it was."""
    a, b, _ = three
    (first,) = grow(a, "s", "1")
    pushed(a, b, "s")
    (second,) = grow(a, "s", "2")

    def cut(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(receiving, "_moved", cut)
        with pytest.raises(KeyboardInterrupt):
            pushed(a, b, "s")
    assert (own(b, "s"), b.read("s").leaf) == ([first, second], first)
    done = pushed(a, b, "s")
    assert (done.admitted, done.head.moved, b.read("s").leaf) == (0, True, second)


# --- what is refused -------------------------------------------------------------------------------------------------


def test_a_redacted_only_receiver_takes_nothing_else(three: Three) -> None:
    """Neither pushed nor fetched, neither whole nor grown."""
    a, _, _ = three
    grow(a, "s", "secret")
    copy = a.redact("s", "p", lambda text: text.replace("secret", "[redacted]")).session
    with Store.open("/r", create=True, host=a._host, background=False, redacted_only=True) as narrow:
        with pytest.raises(NotRedacted):
            pushed(a, narrow, "s")
        with pytest.raises(NotRedacted):
            fetched(narrow, a, "s")
        assert pushed(a, narrow, copy).created
        with a.open_session(copy) as held:
            held.append(entry.user("by hand"))
        with pytest.raises(NotRedacted):
            pushed(a, narrow, copy)
        assert narrow.session_ids() == [copy]
        assert len(own(narrow, copy)) == 1


def test_who_holds_the_session_there_is_waited_for_and_named(three: Three) -> None:
    """A delivery needs the session's lock."""
    a, b, _ = three
    grow(a, "s", "1")
    pushed(a, b, "s")
    grow(a, "s", "2")
    with b.open_session("s"), pytest.raises(SessionLocked):
        pushed(a, b, "s")
    assert pushed(a, b, "s").admitted == 1


def test_remotes_that_are_none(three: Three) -> None:
    """A name nobody gave, a path to nothing, the store itself, nothing to push."""
    a, b, _ = three
    grow(a, "s", "1")
    with pytest.raises(NoRemote):
        pushed(a, "up", "s")
    with pytest.raises(NoStore):
        pushed(a, "/nowhere", "s")
    with pytest.raises(BadInput, match="remote of its own"):
        pushed(a, a, "s")
    wrongs: tuple[Any, ...] = ((), ("",), (b"s",))
    for wrong in wrongs:
        with pytest.raises(BadInput):
            a.push(B, *wrong)
    with pytest.raises(BadInput):
        a.push(B, "s", all=True)
    with pytest.raises(NoSession):
        pushed(a, b, "never")
    with pytest.raises(NoSession):
        fetched(a, b, "never")


def test_what_is_refused_holds_nobody_up(three: Three) -> None:
    """With somebody to tell, the others go on."""
    a, b, _ = three
    grow(a, "good", "1")
    grow(a, "bad", "1")
    b.create(id="bad", cwd="/elsewhere").close()
    told = refusals()
    assert [each.session for each in a.push(B, "never", "bad", "good", on_refused=told)] == ["good"]
    assert told == [("never", "no_session"), ("bad", "header_differs")]


# --- all of them, and clones -----------------------------------------------------------------------------------------


def test_push_all(three: Three) -> None:
    """Every record, and the second time those that changed."""
    a, b, _ = three
    for number in range(5):
        grow(a, f"s{number}", "1")
    pushed(a, b, "s0", handover=True)
    assert {each.session for each in a.push(B, all=True)} == {"s1", "s2", "s3", "s4"}
    assert a.push(B, all=True) == []
    grow(a, "s3", "2")
    a.set_head("s4", a.read("s4").leaf, "")
    b.delete("s1")
    assert {each.session for each in a.push(B, all=True)} == {"s1", "s3", "s4"}
    assert a.push(B, all=True) == []
    for number in range(1, 5):
        assert lines(a, f"s{number}") == lines(b, f"s{number}")
    sound(a, b)


def test_clone(three: Three) -> None:
    """Every session as a mirror, and where it came from by name; again it brings what is new."""
    a, _, _ = three
    grow(a, "one", "1")
    base = grow(a, "two", "1", "2")[0]
    a.fork("two", base, id="three").close()
    assert {each.session for each in Store.clone(A, "/clone", host=a._host)} == {"one", "two", "three"}
    grow(a, "one", "2")
    assert [each.admitted for each in Store.clone(A, "/clone", host=a._host) if each.session == "one"] == [1]
    with Store.open("/clone", host=a._host) as clone:
        assert clone.remotes() == {"origin": A}
        assert all(each.mark == "mirror" for each in clone.list())
        assert lines(clone, "three") == lines(a, "three")
        sound(clone)
    with pytest.raises(NoStore):
        Store.clone("/nowhere", "/clone2", host=a._host)


def test_a_clone_has_the_refs(three: Three) -> None:
    """With their pins; not those that dangle. Again, they move with what is there, but not from where they were put."""
    a, _, _ = three
    first, second = grow(a, "one", "1", "2")
    for session in ("two", "gone"):
        grow(a, session, "1")
    for name, target in (("main", RefTarget("one")), ("pin", RefTarget("one", first)), ("gone", RefTarget("gone"))):
        a.update_ref(name, None, target)
    a.delete("gone")
    Store.clone(A, "/clone", host=a._host)
    with Store.open("/clone", host=a._host) as clone:
        assert clone.list_refs() == [("main", RefTarget("one")), ("pin", RefTarget("one", first))]
        assert clone.resolve_ref("main") == RefTarget("one")
        clone.update_ref("main", RefTarget("one"), RefTarget("two"))
        assert {each.reason for each in clone.ref_log("pin")} == {"cloned"}
    a.update_ref("main", RefTarget("one"), RefTarget("one", second))
    a.update_ref("pin", RefTarget("one", first), RefTarget("two"))
    Store.clone(A, "/clone", host=a._host)
    with Store.open("/clone", host=a._host) as clone:
        assert clone.list_refs() == [("main", RefTarget("two")), ("pin", RefTarget("two"))]
        sound(clone)


def test_to_a_store_on_a_real_disk(tmp_path: Path) -> None:
    """From one in memory too, and by a path of either kind."""
    with Store.memory() as store, Store.open(tmp_path / "there", create=True) as there:
        grow(store, "s", "1")
        assert store.push(tmp_path / "there", "s")[0].created
        store.add_remote("up", tmp_path / "there")
        assert not store.push("up", "s")[0].created
        assert lines(store, "s") == lines(there, "s")

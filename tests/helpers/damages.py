"""The damaged stores: for each code of fsck one way to hurt a :class:`~tests.helpers.damage.Bench` that earns it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from agentsession_cas import entry
from agentsession_cas.core.entry import Entry
from agentsession_cas.core.framing import FRAMES_OFFSET, HeadHint, Record, decode_head, encode_head
from agentsession_cas.core.header import new_header
from agentsession_cas.core.identity import hash_bytes
from agentsession_cas.core.packindex import Index, encode_index
from agentsession_cas.core.pieces import Skeleton, decode_loose, encode_loose
from agentsession_cas.core.rows import REF_ROOT, Newest, Row, RowCode, encode_row, ref_to
from agentsession_cas.core.zframes import train
from agentsession_cas.effects.host import real_host
from agentsession_cas.objects.dictionaries import Dictionaries
from agentsession_cas.sessions.reffile import RefTarget, decode_ref, encode_ref
from tests.helpers.damage import Bench, Forged, call_and_output, flip, record_of, row_of

__all__ = ["DAMAGE", "TS", "Told", "last_of_alpha"]

TS = "2026-01-01T00:00:00Z"


class Told(NamedTuple):
    """What a finding has to say: the session, the end of the path, a word of the detail."""

    session: str = ""
    path: str = ""
    detail: str = ""


Damage = Callable[[Bench], Told]
DAMAGE: dict[str, Damage] = {}


def damage(code: str) -> Callable[[Damage], Damage]:
    def keep(make: Damage) -> Damage:
        assert code not in DAMAGE
        DAMAGE[code] = make
        return make

    return keep


# --- the store and its objects ---------------------------------------------------------------------------------------


@damage("stray_file")
def stray_file(bench: Bench) -> Told:
    (bench.root / "sessions" / "alpha" / "notes.txt").write_text("mine")
    return Told("alpha", "alpha/notes.txt")


@damage("stale_tmp")
def stale_tmp(bench: Bench) -> Told:
    path = bench.root / "tmp" / "new-ab"
    path.mkdir()
    os.utime(path, (1, 1))
    (bench.root / "tmp" / "new-young").mkdir()
    return Told("", "tmp/new-ab")


@damage("unreadable_file")
def unreadable_file(bench: Bench) -> Told:
    path = bench.session("alpha") / "journal"
    path.unlink()
    path.mkdir()
    return Told("alpha", "alpha/journal")


@damage("corrupt_object")
def corrupt_object(bench: Bench) -> Told:
    path = bench.loose("entries", bench.gamma[1])
    path.write_bytes(path.read_bytes()[:-3])
    return Told("", f"/{path.name}")


@damage("misnamed_object")
def misnamed_object(bench: Bench) -> Told:
    path = bench.loose("entries", bench.gamma[1])
    path.write_bytes(bench.loose("entries", bench.gamma[2]).read_bytes())
    return Told("", f"/{path.name}")


@damage("corrupt_pack")
def corrupt_pack(bench: Bench) -> Told:
    flip(bench.pack("pack"), -20)
    return Told("", ".pack")


@damage("corrupt_block")
def corrupt_block(bench: Bench) -> Told:
    flip(bench.pack("pack"), 200)
    return Told("", ".pack", "block 0")


def _large(bench: Bench) -> tuple[str, str]:
    """A session ``zeta`` whose entry has a large string, checkpointed loose: the hashes of body and piece."""
    text = "0123456789abcdef" * 1000
    with bench.store() as store, store.create(id="zeta") as zeta:
        appended = zeta.append(entry.user(text)).id
        zeta.checkpoint()
    return bench.content_hash("zeta", appended), hash_bytes(text.encode())


@damage("missing_piece")
def missing_piece(bench: Bench) -> Told:
    body, piece = _large(bench)
    bench.loose("pieces", piece).unlink()
    return Told("", f"/{bench.loose('contents', body).name}", body)


@damage("broken_body")
def broken_body(bench: Bench) -> Told:
    body, _ = _large(bench)
    path = bench.loose("contents", body)
    skeleton = decode_loose(path.read_bytes())
    assert isinstance(skeleton, Skeleton)
    path.write_bytes(encode_loose(skeleton._replace(rest=skeleton.rest.replace(b"user", b"usor"))))
    return Told("", f"/{path.name}", body)


def _dictionary(bench: Bench) -> tuple[Path, Path]:
    """Two copies of a dictionary."""
    words = [b" ".join(b"word%d" % (k * n % 311) for n in range(90)) for k in range(1, 400)]
    made = train(words, 4096)
    assert made is not None
    kept = Dictionaries(real_host().fs, str(bench.root / "objects" / "dict"))
    kept.publish(real_host(), str(bench.root / "tmp"), made)
    return Path(kept.path(made.id, "zdict")), Path(kept.path(made.id, "spare"))


@damage("dictionary_copy")
def dictionary_copy(bench: Bench) -> Told:
    _, spare = _dictionary(bench)
    spare.unlink()
    return Told("", spare.name)


@damage("corrupt_dictionary")
def corrupt_dictionary(bench: Bench) -> Told:
    whole, spare = _dictionary(bench)
    for path in (whole, spare):
        flip(path, 100)
    return Told("", whole.name)


@damage("corrupt_idx")
def corrupt_idx(bench: Bench) -> Told:
    flip(bench.pack("idx"), -5)
    return Told("", ".idx")


@damage("idx_mismatch")
def idx_mismatch(bench: Bench) -> Told:
    path = bench.pack("idx")
    index = Index(path.read_bytes())
    keys = index.keys()
    keys[0] ^= 1
    path.write_bytes(encode_index(index.pack_name, index.pack_size, bytes(index.table.data), keys))
    return Told("", ".idx")


@damage("missing_idx")
def missing_idx(bench: Bench) -> Told:
    bench.pack("idx").unlink()
    return Told("", ".idx")


@damage("bare_idx")
def bare_idx(bench: Bench) -> Told:
    path = bench.pack("idx")
    bare = path.with_name(f"pack-{'0' * 64}.idx")
    bare.write_bytes(path.read_bytes())
    os.utime(bare, (1, 1))
    return Told("", bare.name)


@damage("dangling_object")
def dangling_object(bench: Bench) -> Told:
    with bench.store() as store:
        store.delete("gamma")
    return Told("", bench.loose("entries", bench.gamma[1]).name)


@damage("dangling_unknown")
def dangling_unknown(bench: Bench) -> Told:
    flip(bench.session("beta") / "log-0", 77)
    return Told("", "/sessions")


# --- a session's files -----------------------------------------------------------------------------------------------


@damage("bad_header")
def bad_header(bench: Bench) -> Told:
    path = bench.session("alpha") / "header"
    flip(path, path.read_bytes().index(b"/work") + 1)
    return Told("alpha", "alpha/header")


@damage("misnamed_session")
def misnamed_session(bench: Bench) -> Told:
    bench.session("alpha").rename(bench.session("omega"))
    return Told("alpha", "sessions/omega")


@damage("journal_missing")
def journal_missing(bench: Bench) -> Told:
    (bench.session("beta") / "journal").unlink()
    return Told("beta", "beta/journal")


@damage("journal_damaged")
def journal_damaged(bench: Bench) -> Told:
    flip(bench.session("beta") / "journal", 9)
    return Told("beta", "beta/journal", "offset 0")


@damage("journal_cut")
def journal_cut(bench: Bench) -> Told:
    flip(bench.session("alpha") / "journal", FRAMES_OFFSET + 60)
    return Told("alpha", "alpha/journal", f"offset {FRAMES_OFFSET}")


@damage("lost_tail")
def lost_tail(bench: Bench) -> Told:
    (bench.session("alpha") / "HEAD").unlink()
    path = bench.session("alpha") / "journal"
    data = path.read_bytes().rstrip(b"\0")
    path.write_bytes(data[:-1])
    return Told("alpha", "alpha/journal", "offset")


@damage("lost_rows")
def lost_rows(bench: Bench) -> Told:
    (bench.session("beta") / "journal").unlink()
    with bench.store() as store:
        store.repair("beta")
    return Told("beta", "beta/journal", "a repair found 10 rows lost")


@damage("log_missing")
def log_missing(bench: Bench) -> Told:
    (bench.session("beta") / "log-0").unlink()
    return Told("beta", "beta/log-0")


@damage("log_short")
def log_short(bench: Bench) -> Told:
    os.truncate(bench.session("beta") / "log-0", 96 * 128 - 1)
    return Told("beta", "beta/log-0", "offset 12287")


@damage("log_row")
def log_row(bench: Bench) -> Told:
    for row in (20, 21, 40):
        flip(bench.session("beta") / "log-0", row * 128 + 50)
    return Told("beta", "beta/log-0", "offset 2560: rows 20 to 21 fail")


@damage("unreadable_head")
def unreadable_head(bench: Bench) -> Told:
    flip(bench.session("alpha") / "HEAD", 20)
    return Told("alpha", "alpha/HEAD")


@damage("head_mismatch")
def head_mismatch(bench: Bench) -> Told:
    path = bench.session("alpha") / "HEAD"
    hint = decode_head(path.read_bytes())
    assert hint is not None
    path.write_bytes(encode_head(HeadHint(hint.salt, hint.committed, hint.head, bytes(32))))
    return Told("alpha", "alpha/HEAD")


@damage("leftover_file")
def leftover_file(bench: Bench) -> Told:
    for name in ("journal.next-00", "log-7"):
        path = bench.session("beta") / name
        path.write_bytes(b"")
        os.utime(path, (1, 1))
    (bench.session("beta") / "journal.next-young").write_bytes(b"")
    return Told("beta", "beta/journal.next-00")


# --- rows and entries: forged, every checksum right ------------------------------------------------------------------


@damage("row_invalid")
def row_invalid(bench: Bench) -> Told:
    bench.forge("alpha", lambda journal: row_of(journal, 2, parent=ref_to(5)))
    return Told("alpha", "alpha/journal", "row 2")


@damage("row_mismatch")
def row_mismatch(bench: Bench) -> Told:
    bench.forge("alpha", lambda journal: row_of(journal, 2, ts=5, call=7, context=bytes(32)))
    return Told("alpha", "sessions/alpha", "row 2: context, ts, call differ")


@damage("bad_mark")
def bad_mark(bench: Bench) -> Told:
    def mark(journal: Forged) -> Forged:
        head = ref_to(5)
        row = Row(bytes(32), bytes(32), bytes(32), 0, head, 0, 1, RowCode.MARK, 9, 0, 0)
        journal.groups[0].append(Record(encode_row(row), b"", b""))
        return journal

    bench.forge("alpha", mark)
    return Told("alpha", "alpha/journal", "row 6")


@damage("bad_head")
def bad_head(bench: Bench) -> Told:
    bench.forge("alpha", lambda journal: row_of(journal, 4, head=ref_to(1)))
    return Told("alpha", "alpha/journal", "row 4")


@damage("generation_mismatch")
def generation_mismatch(bench: Bench) -> Told:
    def change(journal: Forged) -> Forged:
        return journal._replace(generation=journal.generation._replace(newest=Newest(named=ref_to(3))))

    bench.forge("beta", change)
    return Told("beta", "beta/journal")


@damage("missing_entry")
def missing_entry(bench: Bench) -> Told:
    bench.loose("entries", bench.gamma[2]).unlink()
    return Told("gamma", "sessions/gamma", "row 2")


@damage("missing_content")
def missing_content(bench: Bench) -> Told:
    bench.loose("contents", bench.content_hash("gamma", bench.gamma[2])).unlink()
    return Told("gamma", "sessions/gamma", "row 2")


@damage("unchecked")
def unchecked(bench: Bench) -> Told:
    missing_content(bench)
    return Told("gamma", "sessions/gamma")


@damage("missing_base")
def missing_base(bench: Bench) -> Told:
    for ending in ("pack", "idx"):
        bench.pack(ending).unlink()
    return Told("delta", "sessions/delta")


@damage("missing_blob")
def missing_blob(bench: Bench) -> Told:
    image = {"type": "input_image", "detail": "auto", "image_url": f"sidecar:sha256:{'0' * 64}"}
    with bench.store() as store, store.create(id="media", media="sidecar") as session:
        session.append(entry.user([image]))
    return Told("media", "sessions/media")


@damage("entry_hash")
def entry_hash(bench: Bench) -> Told:
    bench.forge("alpha", lambda journal: row_of(journal, 3, entry=b"\1" * 32))
    return Told("alpha", "sessions/alpha", "row 3")


@damage("content_hash")
def content_hash(bench: Bench) -> Told:
    bench.forge("alpha", lambda journal: row_of(journal, 3, content=b"\1" * 32))
    return Told("alpha", "sessions/alpha", "row 3")


def last_of_alpha(bench: Bench, type_: str, body: dict[str, Any], **members: Any) -> Entry:
    """An entry to take the place of the last one of ``alpha``."""
    with bench.store() as store:
        last = store.read("alpha").entry(store.read("alpha").leaf)
    return Entry.seal(type_, body, last.parent, last.ts, **members)


@damage("bad_entry")
def bad_entry(bench: Bench) -> Told:
    odd = last_of_alpha(bench, "item", {"no_item": 1})
    bench.forge("alpha", lambda journal: record_of(journal, 5, odd))
    return Told("alpha", "sessions/alpha", "row 5")


@damage("repeated_entry")
def repeated_entry(bench: Bench) -> Told:
    def repeat(journal: Forged) -> Forged:
        journal.groups[0].append(journal.groups[0][1])
        return row_of(journal, 6, head=ref_to(5))

    bench.forge("alpha", repeat)
    return Told("alpha", "sessions/alpha", "row 6")


@damage("bad_convergence")
def bad_convergence(bench: Bench) -> Told:
    odd = last_of_alpha(bench, "item", {"item": {"type": "message"}}, parents=[{"entry": f"sha256:{'0' * 64}"}])
    bench.forge("alpha", lambda journal: record_of(journal, 5, odd))
    return Told("alpha", "sessions/alpha", "row 5")


@damage("base_rule")
def base_rule(bench: Bench) -> Told:
    bench.forge("delta", lambda journal: row_of(journal, 1, parent=REF_ROOT))
    return Told("delta", "delta/journal", "row 1")


# --- what entries say ------------------------------------------------------------------------------------------------


@damage("link_mismatch")
def link_mismatch(bench: Bench) -> Told:
    with bench.store() as store:
        with store.create(id="parent") as parent:
            parent.append_batch([*call_and_output("c1")[:1], entry.subsession("child", "c1")])
        store.create(id="child", parent_session="parent", spawned_by="c2").close()
    return Told("parent", "sessions/parent")


@damage("call_id_repeated")
def call_id_repeated(bench: Bench) -> Told:
    header = new_header(id="calls", created_at=TS)
    body = call_and_output("c1")[0].body
    first = Entry.seal("item", body, "", TS)
    again = Entry.seal("item", body, first.id, TS)
    with bench.store() as store:
        store.import_file(b"\n".join([header.line, first.line, again.line]))
    return Told("calls", "sessions/calls")


# --- refs ------------------------------------------------------------------------------------------------------------


def _named(bench: Bench, name: str, *targets: RefTarget) -> Path:
    """A ref that was moved through these; its file."""
    with bench.store() as store:
        before: RefTarget | None = None
        for target in targets:
            store.update_ref(name, before, target)
            before = target
        return Path(store.refs.path_of(name))


@damage("ref_bad")
def ref_bad(bench: Bench) -> Told:
    flip(_named(bench, "a/b", RefTarget("alpha")), 12)
    return Told("", "refs/a+b")


@damage("ref_lost")
def ref_lost(bench: Bench) -> Told:
    with bench.store() as store:
        store.update_ref("lost", None, RefTarget("alpha"))
        store.update_ref("lost", RefTarget("alpha"), RefTarget("beta"))
    (bench.root / "refs" / "lost").unlink()
    return Told("beta", "refs/lost", "its log has it at beta, update 2")


@damage("ref_unmade")
def ref_unmade(bench: Bench) -> Told:
    with bench.store() as store:
        store.update_ref("unmade", None, RefTarget("alpha"))
    (bench.root / "refs" / "unmade").unlink()
    return Told("alpha", "refs/unmade")


@damage("ref_clash")
def ref_clash(bench: Bench) -> Told:
    _named(bench, "a/b", RefTarget("alpha"))
    ref = _named(bench, "other", RefTarget("alpha"))
    held = decode_ref("other", ref.read_bytes())
    ref.with_name("a").write_bytes(encode_ref("a", held))
    return Told("", "refs/a+b", "under another")


@damage("ref_dangling")
def ref_dangling(bench: Bench) -> Told:
    _named(bench, "a", RefTarget("alpha"))
    with bench.store() as store:
        store.delete("alpha")
    return Told("alpha", "refs/a")


@damage("ref_pin_missing")
def ref_pin_missing(bench: Bench) -> Told:
    _named(bench, "a", RefTarget("gamma", bench.gamma[2]))
    with bench.store() as store:
        store.delete("gamma")
    bench.loose("entries", bench.gamma[1]).unlink()
    return Told("gamma", "refs/a", bench.gamma[1])


@damage("ref_log_bad")
def ref_log_bad(bench: Bench) -> Told:
    _named(bench, "a", RefTarget("alpha"), RefTarget("beta"))
    flip(bench.root / "logs" / "refs" / "a" / "1", 5)
    return Told("", "refs/a/1")


@damage("ref_log_gap")
def ref_log_gap(bench: Bench) -> Told:
    _named(bench, "a", RefTarget("alpha"), RefTarget("beta"))
    path = bench.root / "logs" / "refs" / "a" / "1"
    path.write_bytes(path.read_bytes()[:-9])
    return Told("", "logs/refs/a", "update 2")

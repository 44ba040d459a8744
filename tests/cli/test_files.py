"""``import``, ``project``, ``blob``: the way in and the way out, byte for byte."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Final

import pytest

from agentsession_cas import Store, entry, write_file
from agentsession_cas.errors import NotRegular
from tests.helpers.commands import Commands

SESSIONS: Final = Path(__file__).parents[2] / "fixtures" / "reference" / "sessions"
WHOLE: Final = (
    "basic", "branch", "fork", "compaction", "runs", "normalised", "parts", "omit", "bad-records", "bad-first-kept"
)  # fmt: skip


def _file(name: str) -> Path:
    return SESSIONS / f"{name}.jsonl"


@pytest.mark.parametrize("name", WHOLE)
def test_import_then_project_gives_the_bytes_back(held: Commands, name: str) -> None:
    """Through stdout, through a file, and through a second store fed with that."""
    taken = held.ok("import", "--json", _file(name)).object
    assert set(taken) == {"session", "entries", "head", "mark", "unresolved"}
    assert taken["mark"] == "mirror"
    original = _file(name).read_bytes()
    assert held.ok("project", taken["session"]).out == original
    held.ok("project", taken["session"], "-o", "out.jsonl")
    assert (held.directory / "out.jsonl").read_bytes() == original
    held.ok("init", "second")
    held.ok("--store", "second", "import", "out.jsonl", "--as-record")
    assert held.ok("--store", "second", "project", taken["session"]).out == original


def test_import_of_many_takes_what_it_can(held: Commands) -> None:
    """A refused file leaves nothing, is named in its one line, and stops none of the others."""
    ran = held(
        "import", "--json", _file("basic"), _file("bad-parent"), _file("truncated"), _file("basic"), _file("runs")
    )
    assert ran.code == 4
    assert [each["session"][-2:] for each in ran.objects] == ["01", "05"]
    codes = [line.split(": ")[1] for line in ran.err.splitlines()]
    assert codes == ["no_entry", "truncated", "session_exists"]
    assert "bad-parent.jsonl: line 4" in ran.err
    assert len(held.ok("list", "--json").objects) == 2


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [
        ("bad-parent", 3, "no_entry"),
        ("bad-base-root", 3, "base_rule"),
        ("truncated", 3, "truncated"),
        ("none", 1, "no_file"),
    ],
)
def test_import_refusals(held: Commands, name: str, status: int, code: str) -> None:
    """What cannot be taken whole is refused, with its code and place."""
    ran = held("import", _file(name))
    assert (ran.code, ran.error_code) == (status, code)
    assert held.ok("list").out == b""


def test_import_reads_stdin(held: Commands) -> None:
    """A dash is stdin."""
    assert held.ok("import", "-", "--json", stdin=_file("basic").read_bytes()).object["entries"] == 9


def test_an_early_file_is_imported_as_what_it_became(held: Commands) -> None:
    """v0.4 reads as the entries of basic, with legacy ids; one with an extension entry is refused with the reason."""
    taken = held.ok("import", "--json", _file("v0.4/basic")).object
    assert taken["head"] == json.loads(_file("basic").read_bytes().splitlines()[-1])["id"]
    held.ok("delete", taken["session"])
    lines = _file("v0.4/basic").read_bytes().splitlines()
    extension = {"type": "x:note", "id": "n1", "parent": json.loads(lines[-1])["id"], "ts": "2026-09-17T12:00:09Z"}
    (held.directory / "early.jsonl").write_bytes(b"\n".join([*lines, json.dumps(extension).encode()]) + b"\n")
    ran = held("import", "early.jsonl")
    assert (ran.code, ran.error_code) == (1, "unresolved_migration")
    held.ok("show", "early.jsonl")


def test_a_repeated_line_is_dropped_and_told_of(held: Commands) -> None:
    """The first is kept."""
    ran = held.ok("import", _file("duplicate-id"), "--json")
    assert "repeated 1 line" in ran.err
    lines = _file("duplicate-id").read_bytes().splitlines(keepends=True)
    assert held.ok("project", ran.object["session"]).out == b"".join(dict.fromkeys(lines))


def test_project_all(held: Commands) -> None:
    """Every session into a directory, whatever its id."""
    with Store.open(held.store) as store:
        for name in ("../x", "a/b", "测试", "CON"):
            with store.create(id=name) as session:
                session.append(entry.user(name))
    told = held.ok("project", "--all", "out/deep", "--json").objects
    files = sorted((held.directory / "out/deep").iterdir())
    assert sorted(Path(each["file"]) for each in told) == files
    assert len(files) == 4
    for file in files:
        held.ok("verify", file)


def test_project_asks_for_one_or_all(held: Commands) -> None:
    """Neither and both are usage errors, as is JSON about JSON lines on stdout."""
    held.ok("import", _file("basic"))
    session = held.ok("list", "--json").object["id"]
    for wrong in ([], [session, "--all", "d"], ["--all", "d", "-o", "f"], [session, "--json"]):
        ran = held("project", *wrong)
        assert (ran.code, ran.error_code) == (2, "usage")
    assert set(held.ok("project", session, "-o", "f", "--json").object) == {"session", "file"}


def test_sidecar_media_travels_beside_the_file(held: Commands) -> None:
    """A projection writes blobs into a directory named after the session; an import takes them from there."""
    picture = b"\x89PNG not really"
    blob = held.ok("blob", "put", "-", "--json", stdin=picture).object
    assert blob == {"hash": "sha256:" + hashlib.sha256(picture).hexdigest(), "size": len(picture)}
    with Store.open(held.store) as store, store.create(id="s-1", media="sidecar") as session:
        session.append(entry.user([{"type": "input_image", "image_url": f"sidecar:{blob['hash']}"}]))
    held.ok("project", "s-1", "-o", "out.jsonl")
    assert (held.directory / "s-1" / blob["hash"][7:]).read_bytes() == picture
    assert "1 blob" in held.ok("project", "s-1").err
    for store_name, media in (("beside", []), ("named", ["--media", "s-1"]), ("empty", ["--media", "."])):
        held.ok("init", store_name)
        taken = held.ok("--store", store_name, "import", "out.jsonl", *media, "--json").object
        assert taken["unresolved"] == ([blob["hash"]] if store_name == "empty" else [])
    assert held.ok("--store", "beside", "blob", "get", blob["hash"]).out == picture
    ran = held("--store", "empty", "project", "s-1")
    assert (ran.code, ran.error_code, ran.out) == (1, "no_blob", b"")
    (held.directory / "s-1" / blob["hash"][7:]).write_bytes(b"another picture")
    held.ok("init", "last")
    ran = held("--store", "last", "import", "out.jsonl")
    assert (ran.code, ran.error_code) == (3, "blob_mismatch")


def test_blob_put_and_get(held: Commands) -> None:
    """Any bytes, from a file or stdin, to a file or stdout."""
    data = bytes(range(256)) * 10
    (held.directory / "in").write_bytes(data)
    name = held.ok("blob", "put", "in").text.strip()
    assert held.ok("blob", "put", stdin=data).text.strip() == name
    assert held.ok("blob", "get", name).out == data
    told = held.ok("blob", "get", name, "-o", "copy", "--json").object
    assert told == {"hash": name, "size": len(data), "file": str(held.directory / "copy")}
    assert (held.directory / "copy").read_bytes() == data
    assert held("blob", "get", name, "--json").code == 2
    assert held("blob", "get", "sha256:" + "0" * 64).error_code == "no_blob"
    assert held("blob", "get", "nonsense").error_code == "bad_blob"
    assert held("blob", "put", "missing").error_code == "no_file"
    assert held("blob", "put", ".").error_code == "not_regular"


def test_fsck_and_stats_have_their_shapes(held: Commands) -> None:
    """As cli.md has them, and in words; damage exits 3."""
    held.ok("import", _file("basic"), _file("runs"))
    found = held.ok("fsck", "--json").object
    assert (found["ok"], found["sessions"], found["entries"]) == (True, 2, 31)
    assert set(found) == {"ok", "sessions", "entries", "objects", "findings"}
    assert held.ok("fsck", "--fast", "--json").object["ok"]
    assert held.ok("fsck").lines[-1].startswith("ok: 2 sessions, 31 entries")
    stats = held.ok("stats", "--json").object
    assert {name: set(each) for name, each in stats.items() if isinstance(each, dict)} == {
        "objects": {"loose", "packed", "packs"},
        "bytes": {"logical", "disk", "journals", "logs", "packs", "loose"},
        "saved": {"dedup", "compression"},
    }
    assert (stats["sessions"], stats["entries"]) == (2, 31)
    assert "sessions" in held.ok("stats").text
    victim = next(path for path in (held.store / "objects").rglob("*") if path.is_file() and path.stat().st_size > 50)
    victim.chmod(0o600)
    victim.write_bytes(b"rot" * 20)
    ran = held("fsck", "--json")
    assert ran.code == 3
    assert any(each["severity"] == "error" for each in ran.object["findings"])
    assert held("fsck").lines[-1].startswith("not ok: ")


@pytest.mark.parametrize(
    "verb",
    [
        ("init", ""),
        ("list", "--store", ""),
        ("import", ""),
        ("import", "x.jsonl", "--media", ""),
        ("project", "s-1", "-o", ""),
        ("project", "--all", ""),
        ("blob", "get", "f" * 64, "-o", ""),
        ("remote", "add", "up", ""),
        ("clone", "", "new"),
        ("clone", "old", ""),
        ("--store", "", "list"),
        ("head", "one", "--set", ""),
        ("head", "one", "--set", "HEAD~1", "--expect", ""),
        ("ref", "main", "--set", ""),
        ("ref", "main", "--set", "one", "--expect", ""),
        ("list", "--parent", ""),
        ("list", "--cwd", ""),
        ("list", "--harness", ""),
        ("list", "--after", ""),
        ("list", "--before", ""),
        ("show", "one", ""),
        ("redact", "one", "--profile", "p@1", "--rules", ""),
        ("redact", "one", "--profile", "p@1", "--pattern", ""),
    ],
)
def test_what_is_given_empty_is_no_default(cli: Commands, verb: tuple[str, ...]) -> None:
    """A shell variable that is not set must not lead to another store or file, nor take a condition away."""
    ran = cli(*verb)
    assert (ran.code, ran.error_code, ran.out) == (2, "usage", b"")
    assert "is empty" in ran.err


@pytest.mark.parametrize("verb", ["project", "blob"])
def test_a_pipe_is_not_replaced_by_a_file(held: Commands, verb: str) -> None:
    """Nor is a device: who is root would be left without /dev/null."""
    pipe = held.directory / "pipe"
    os.mkfifo(pipe)
    (held.directory / "link").symlink_to(pipe)
    name = held.ok("import", "--json", _file("basic")).object["session"]
    blob = held.ok("blob", "put", _file("basic")).lines[0]
    for target in (pipe, held.directory / "link"):
        ran = held(*(("project", name) if verb == "project" else ("blob", "get", blob)), "-o", target)
        assert (ran.code, ran.error_code) == (1, "not_regular")
    assert stat.S_ISFIFO(os.lstat(pipe).st_mode)
    assert (held.directory / "link").is_symlink()
    with Store.open(held.store, read_only=True) as store:
        for write in (store.project, lambda id_, path: write_file(store.read(id_), path)):
            with pytest.raises(NotRegular):
                write(name, pipe)
    assert not list(held.directory.glob("*.part"))


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_is_written_through(held: Commands, exists: bool) -> None:
    """The file it leads to has the bytes, and the link still leads there."""
    real, link = held.directory / "real", held.directory / "link"
    if exists:
        real.write_text("old")
    link.symlink_to(real)
    name = held.ok("import", "--json", _file("basic")).object["session"]
    held.ok("project", name, "-o", link)
    assert link.is_symlink()
    assert real.read_bytes() == _file("basic").read_bytes()
    held.ok("blob", "get", held.ok("blob", "put", _file("runs")).lines[0], "-o", link)
    assert link.is_symlink()
    assert real.read_bytes() == _file("runs").read_bytes()

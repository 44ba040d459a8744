"""What a fork looks at: the session it continues from, whatever else the store holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from agentsession_cas import Store, entry
from agentsession_cas.core.header import Header
from agentsession_cas.effects.host import Fs, OpenFile, real_host
from agentsession_cas.sessions import opening
from agentsession_cas.sessions.recovery import State, read_state_once
from agentsession_cas.sessions.services import Services
from agentsession_cas.sessions.writer import Writer
from agentsession_cas.testing.simfs import Sim
from tests.helpers.crashes import Through


class Reading(Through):
    """A file system that notes what is read."""

    def __init__(self, fs: Fs) -> None:
        super().__init__(fs)
        self.read_paths: list[str] = []

    def read(self, path: str) -> bytes | None:
        self.read_paths.append(path)
        data: bytes | None = self._inner.read(path)
        return data


def read_by_a_fork(path: Path, others: int) -> list[str]:
    """The sessions' files that a fork reads where so many other sessions are."""
    host = real_host()
    fs = Reading(host.fs)
    with Store.open(path, create=True, host=replace(host, fs=cast(Fs, fs))) as store:
        for number in range(others):
            store.create(id=f"another-{number}").close()
        with store.create(id="origin") as origin:
            base = origin.append(entry.user("hi"), durable=True).id
        fs.read_paths.clear()
        store.fork("origin", base, id="fork").close()
        assert store.read("fork").leaf == base
    below = f"{path}/sessions/"
    return [each.removeprefix(below) for each in fs.read_paths if each.startswith(below)]


def test_a_fork_reads_no_other_session_than_its_origin(tmp_path: Path) -> None:
    read = read_by_a_fork(tmp_path / "many", 12)
    assert read == read_by_a_fork(tmp_path / "alone", 0)
    assert any("origin" in each for each in read)


def test_a_base_is_found_in_whichever_session_holds_it(tmp_path: Path) -> None:
    with Store.open(tmp_path / "st", create=True) as store:
        for name in ("a", "b", "c"):
            with store.create(id=name) as session:
                last = session.append(entry.user(name), durable=True).id
        fork = store.create(id="fork", base=last, parent_session="a")
        assert [each.body["item"]["content"][0]["text"] for each in fork] == ["c"]
        fork.close()


def test_a_fork_syncs_what_it_makes_and_no_more() -> None:
    """Header, journal and the two directories their names are in: HEAD tells that the origin's names are durable."""
    sim = Sim()
    syncs: list[str] = []
    with Store.open("/st", create=True, host=sim.host) as store:
        with store.create(id="origin") as origin:
            base = origin.append(entry.user("hi")).id
            origin.checkpoint()
        store.fork("origin", base, id="first").close()
        sim.watch(lambda kind, path: syncs.append(path) if kind in ("sync", "sync_dir") else None)
        fork = store.fork("origin", base, id="second")
        sim.watch(None)
        fork.close()
    assert len(syncs) == 4
    assert not any("origin" in path for path in syncs)


@pytest.mark.parametrize("rows", [0, 1, 31, 32, 33, 100])
def test_what_was_just_written_is_what_would_be_read(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a session that is made, forked or imported the files are not read again."""
    held, seen = opening._writer, list[str]()

    def compared(services: Services, directory: str, header: Header, state: State, *rest: Any) -> Writer:
        read = read_state_once(services.host.fs, directory)
        assert (read.scan, read.groups) == (state.scan, state.groups)
        assert list(read.table.rows()) == list(state.table.rows())
        read.table.close()
        seen.append(header.id)
        return cast(Writer, held(services, directory, header, state, *rest))

    monkeypatch.setattr(opening, "_writer", compared)
    sim = Sim()
    with Store.open("/st", create=True, host=sim.host) as store:
        with store.create(id="made") as made:
            made.append_batch([entry.user(str(number)) for number in range(rows)])
            if rows:
                store.fork("made", made.leaf, id="forked").close()
        whole = store.read("made")
        lines = b"".join(line + b"\n" for line in (whole.header.line, *(each.line for each in whole)))
    with Store.open("/other", create=True, host=sim.host) as store:
        store.import_file(lines)
        assert len(store.read("made")) == rows
    assert seen == ["made", *(["forked"] if rows else []), "made"]


class Dying(Through):
    """A file system of a process that dies before the name of a journal is durable."""

    def sync_dir(self, path: str) -> None:
        if path.endswith("/origin"):
            raise KeyboardInterrupt
        self._inner.sync_dir(path)


class Meanwhile(Through):
    """A file system on which somebody acts just before the origin's journal is opened to be synced."""

    def __init__(self, fs: Any, act: Callable[[], None]) -> None:
        super().__init__(fs)
        self._act = act

    def open(self, path: str, *, write: bool = False) -> OpenFile:
        if write and path.endswith("/origin/journal"):
            self._act()
        return cast(OpenFile, self._inner.open(path, write=write))


def test_a_checkpoint_between_the_look_at_an_origin_and_its_sync_leaves_the_base_in_both() -> None:
    """What is synced then is the next generation, whose name may go with its writer; what was read was not."""
    sim = Sim()
    with Store.open("/st", create=True, host=sim.host, background=False) as store:
        with store.create(id="origin") as origin:
            origin.append_batch([entry.user(str(number)) for number in range(40)])
            origin.checkpoint()
        first = replace(sim.host, fs=cast(Fs, Dying(sim.host.fs)))
        with Store.open("/st", host=first, background=False) as theirs:
            writer = theirs.open_session("origin")
            writer.append(entry.user("in the journal"), durable=True)
            base = writer.append(entry.user("not synced"), durable=False).id

            def dies() -> None:
                with pytest.raises(KeyboardInterrupt):
                    writer.checkpoint()

            second = replace(sim.process("p2"), fs=cast(Fs, Meanwhile(sim.process("p2").fs, dies)))
            with Store.open("/st", host=second, background=False) as ours:
                ours.fork("origin", base, id="fork")
            for image in sim.images(30):
                with Store.open("/st", host=image.host, background=False) as left:
                    assert base in [each.id for each in left.read("origin")]
                    assert base in [each.id for each in left.read("fork")]

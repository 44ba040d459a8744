"""The verb ``follow``, as a process beside a writer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from agentsession_cas import Store, entry
from tests.helpers.commands import Commands, heed_interrupts

ROOT: Final = Path(__file__).parents[2]


@contextmanager
def following(held: Commands, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The verb as a process in the directory of the store; it does not outlive the block."""
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "agentsession_cas", "follow", *arguments],
        cwd=held.directory,
        env={**kept, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def heard(process: subprocess.Popen[str]) -> str:
    """The next line it prints; "" when it ended."""
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def told(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The next change it prints as JSON."""
    change: dict[str, Any] = json.loads(heard(process))
    assert change.pop("schema") == 1
    return change


def test_each_change_as_a_line_of_json_until_the_session_is_deleted(held: Commands) -> None:
    with (
        Store.open(held.store) as store,
        store.create(id="watched") as session,
        following(held, "watched", "--json") as process,
    ):
        first = told(process)
        assert first.pop("cursor")
        assert first == {"kind": "snapshot", "session": "watched", "head": None}
        one = session.append(entry.user("hi"))
        change = told(process)
        assert (change["kind"], change["head"]) == ("appended", one.id)
        assert change["entry"] == session.entry(one.id).members()
        session.set_head(one.id, "")
        change = told(process)
        assert (change["kind"], change["head"]) == ("head", None)
        session.close()
        store.delete("watched")
        assert heard(process) == ""
        assert process.wait() == 1
        assert process.stderr is not None
        assert process.stderr.read().startswith("error: no_session: ")


def test_a_cursor_goes_on_where_another_run_was(held: Commands) -> None:
    with Store.open(held.store) as store, store.create(id="watched") as session:
        with following(held, "watched", "--json") as process:
            cursor = told(process)["cursor"]
        ids = [session.append(entry.user(text)).id for text in ("a", "b")]
        with following(held, "watched", "--json", "--from", cursor) as process:
            assert [told(process)["entry"]["id"] for _ in ids] == ids
    refused = held("follow", "watched", "--from", "here")
    assert (refused.code, refused.error_code) == (1, "bad_input")


def test_in_words_and_interrupted(held: Commands) -> None:
    """An interrupt ends it with 130, no traceback, and says how to go on."""
    with Store.open(held.store) as store, store.create(id="watched") as session:
        first = session.append(entry.user("hi")).id
        with following(held, "watched") as process:
            assert heard(process) == f"following watched: 1 entry, head {first[7:19]}"
            second = session.append(entry.user("there"), durable=True).id
            line = heard(process)
            assert line.startswith(second[7:19])
            assert line.endswith("user           there")
            session.branch(first)
            assert heard(process) == f"the head is {first[7:19]}"
            process.send_signal(signal.SIGINT)
            assert process.wait() == 130
            assert process.stderr is not None
            note = process.stderr.read().strip()
            assert note.startswith("go on with: --from 1-")
            assert "\n" not in note
            cursor = note.split()[-1]
        session.append(entry.user("more"))
        with following(held, "watched", "--from", cursor) as process:
            line = heard(process)
            if line == f"the head is {first[7:19]}":  # an interrupt right behind a line has it told again
                line = heard(process)
            assert line.endswith("user           more")


def test_committed_alone(held: Commands) -> None:
    with (
        Store.open(held.store) as store,
        store.create(id="watched") as session,
        following(held, "watched", "--json", "--committed") as process,
    ):
        assert told(process)["kind"] == "snapshot"
        one = session.append(entry.user("not yet"), durable=False)
        two = session.append(entry.user("now"), durable=True)
        assert [told(process)["entry"]["id"] for _ in range(2)] == [one.id, two.id]


def test_a_reader_that_goes_away_ends_it(held: Commands) -> None:
    """Also while there is nothing to say."""
    with Store.open(held.store) as store, store.create(id="watched"), following(held, "watched") as process:
        assert heard(process)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait() == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


@pytest.mark.parametrize("arguments", [("nobody",), ("nobody", "--json")])
def test_a_session_that_is_not_there(held: Commands, arguments: tuple[str, ...]) -> None:
    refused = held("follow", *arguments)
    assert (refused.code, refused.error_code) == (1, "no_session")

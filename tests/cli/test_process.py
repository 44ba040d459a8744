"""The command as a process: exit codes, signals, streams, and how little ``--help`` loads."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from agentsession_cas import Store, __version__
from tests.helpers.commands import Commands, heed_interrupts

ROOT: Final = Path(__file__).parents[2]
COMMAND: Final = (sys.executable, "-m", "agentsession_cas")
BASIC: Final = ROOT / "fixtures" / "reference" / "sessions" / "basic.jsonl"


def _environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "PAGER")}
    return {**kept, "PYTHONPATH": str(ROOT), **more}


def _run(
    *arguments: str | Path, cwd: Path, stdin: bytes = b"", **environment: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        env=_environment(**environment),
        check=False,
    )


@pytest.fixture
def store(held: Commands) -> Path:
    """A directory with a store and a session of a thousand entries."""
    with Store.open(held.store) as opened, opened.create(id="long") as session:
        session.append_batch([{"type": "info", "name": f"entry number {n} " + "x" * 100} for n in range(1000)])
    return held.directory


def test_exit_codes_of_a_process(store: Path) -> None:
    """Each with one line on stderr or none."""
    for code, arguments in (
        (0, ["verify", BASIC]),
        (1, ["show", "nobody"]),
        (2, ["no-such-verb"]),
        (3, ["show", ROOT / "fixtures/reference/sessions/bad-parent.jsonl"]),
        (10, ["--store", "nowhere", "list"]),
    ):
        ran = _run(*arguments, cwd=store)
        assert ran.returncode == code, ran.stderr
        if code:
            assert ran.stderr.startswith(b"error: ")
            assert ran.stderr.count(b"\n") == 1


def test_a_closed_pipe_ends_quietly(store: Path) -> None:
    """As in `log | head -1`: no words, no traceback."""
    with subprocess.Popen(
        [*COMMAND, "log", "long"], cwd=store, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=_environment()
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_an_append_nobody_listens_to_stops(store: Path) -> None:
    """What was accepted stays; the exit code says that it did not go on."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as nobody:
        lines = b'{"type":"info"}\n' * 3
        ran = subprocess.run(
            [*COMMAND, "append", "long"], cwd=store, input=lines, stdout=nobody, stderr=subprocess.PIPE,
            env=_environment(), check=False,
        )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (1, b"")
    with Store.open(store / ".agentsession", read_only=True) as opened:
        assert len(opened.read("long")) == 1001


def test_an_interrupt_exits_130_and_keeps_what_was_accepted(store: Path) -> None:
    """Ctrl-C while waiting for stdin."""
    with subprocess.Popen(
        [*COMMAND, "append", "long"], cwd=store, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=_environment(),
        preexec_fn=heed_interrupts,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b'{"type":"info"}\n')
        process.stdin.flush()
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert b"Traceback" not in process.stderr.read()
    with Store.open(store / ".agentsession") as opened, opened.open_session("long") as session:
        assert len(session) == 1001


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_under_stdout_is_one_line(store: Path) -> None:
    """The data went nowhere, and that is an error."""
    with open("/dev/full", "wb") as full:
        ran = subprocess.run(
            [*COMMAND, "log", "long"], cwd=store, stdout=full, stderr=subprocess.PIPE, env=_environment(), check=False
        )
    assert ran.returncode == 1
    assert ran.stderr.startswith(b"error: disk_error: ")
    assert ran.stderr.count(b"\n") == 1


def test_streams_that_are_closed_or_cannot_write_unicode(store: Path) -> None:
    """No stdin, no stdout, an ASCII terminal: never a traceback."""
    for redirection in ("<&-", ">&- 2>&-"):
        line = f'"{sys.executable}" -m agentsession_cas log long {redirection}'
        ran = subprocess.run(["sh", "-c", line], cwd=store, capture_output=True, env=_environment(), check=False)
        assert (ran.returncode, ran.stderr) == (0, b"")
    ran = _run("append", "long", cwd=store, stdin='{"type":"info","name":"é"}\n'.encode(), PYTHONIOENCODING="ascii")
    assert ran.returncode == 0
    ran = _run("log", "long", "-n", "1", cwd=store, PYTHONIOENCODING="ascii")
    assert ran.stdout.endswith(b"name \\xe9\n")


def test_arguments_that_are_not_utf8(store: Path) -> None:
    """Bytes of a path or an id that are no text are named, escaped."""
    ran = subprocess.run(
        [*map(os.fsencode, COMMAND), b"show", b"n\xffo"],
        cwd=store,
        capture_output=True,
        env=_environment(),
        check=False,
    )
    assert (ran.returncode, ran.stderr.count(b"\n")) == (2, 1)
    odd = os.fsencode(store) + b"/o\xffdd.jsonl"
    Path(os.fsdecode(odd)).write_bytes(BASIC.read_bytes())
    ran = subprocess.run(
        [*map(os.fsencode, COMMAND), b"verify", odd], cwd=store, capture_output=True, env=_environment(), check=False
    )
    assert ran.returncode == 0
    assert b"\\udcff" in ran.stdout


def test_an_interrupt_while_the_command_loads_exits_130(tmp_path: Path) -> None:
    """Ctrl-C at once after the return key: as quiet as later."""
    script = """
import sys
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupts())
from agentsession_cas.cli import main
main()
"""
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, env=_environment(), check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, b"", b"")


@pytest.mark.parametrize("arguments", [["--help"], ["append", "--help"], ["verify", "--help"], ["--version"]])
def test_help_loads_nothing_of_the_store(tmp_path: Path, arguments: list[str]) -> None:
    """So that it starts at once: a listing of verbs needs none of what they work with."""
    script = (
        "import sys; from agentsession_cas.cli import run; code = run(sys.argv[1:]); "
        "heavy = {'agentsession_cas.store', 'agentsession_cas.core.canonical', 'orjson', 'zstandard', 'rich'}; "
        "sys.exit(code or sorted(heavy & set(sys.modules)) or 0)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, *arguments], cwd=tmp_path, capture_output=True, env=_environment(), check=False
    )
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert ran.stdout


def test_the_version_is_the_packages(tmp_path: Path) -> None:
    """One number, in one place."""
    assert _run("--version", cwd=tmp_path).stdout.split()[-1].decode() == __version__


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(tmp_path: Path, shell: str) -> None:
    """Each shell's script is printed, and verbs complete."""
    ran = _run(cwd=tmp_path, _AGENTSESSION_CAS_COMPLETE=f"{shell}_source")
    if shell == "bash" and b"Couldn't detect" in ran.stderr:
        pytest.skip("no bash here")
    assert b"agentsession-cas" in ran.stdout
    words = _run(
        cwd=tmp_path, _AGENTSESSION_CAS_COMPLETE=f"{shell}_complete", COMP_WORDS="agentsession-cas ver", COMP_CWORD="1"
        if shell != "fish" else "ver",
    )  # fmt: skip
    assert b"verify" in words.stdout


def _in_terminal(*arguments: str, cwd: Path, **environment: str) -> bytes:
    """What a command shows on a terminal that is its stdin, stdout and stderr."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *arguments], cwd=cwd, stdin=slave, stdout=slave, stderr=slave, env=_environment(**environment)
    )
    os.close(slave)
    shown = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    process.wait()
    os.close(master)
    assert process.returncode == 0
    return shown


def test_colour_is_for_terminals(store: Path) -> None:
    """NO_COLOR and TERM=dumb are honoured on a terminal."""
    terminal = {"TERM": "xterm", "PAGER": "cat"}
    log = ("log", "long", "-n", "1")
    assert b"\x1b[" in _in_terminal(*log, cwd=store, **terminal)
    assert b"\x1b[" not in _in_terminal(*log, cwd=store, **terminal, NO_COLOR="1")
    assert b"\x1b[" not in _in_terminal(*log, cwd=store, PAGER="cat", TERM="dumb")


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, True),
        ({"FORCE_COLOR": "0"}, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_colour_elsewhere_is_by_request(
    held: Commands, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], coloured: bool
) -> None:
    """FORCE_COLOR colours what is no terminal; NO_COLOR wins."""
    with Store.open(held.store) as opened:
        opened.create(id="s-1").close()
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert (b"\x1b[" in held.ok("list").out) == coloured
    assert b"\x1b[" not in held.ok("list", "--json").out


def test_the_pager_is_for_terminals(store: Path) -> None:
    """Long answers go through $PAGER on a terminal, and never elsewhere."""
    pager = store / "pager"
    pager.write_text('#!/bin/sh\necho paged\ncat >"$0.got"\n')
    pager.chmod(0o700)
    assert b"paged" in _in_terminal("log", "long", cwd=store, TERM="xterm", PAGER=str(pager))
    assert (store / "pager.got").read_bytes().count(b"entry number") == 1000
    assert b"paged" not in _run("log", "long", cwd=store, PAGER=str(pager)).stdout


def test_progress_is_for_terminals(store: Path) -> None:
    """A bar on a terminal's stderr alone, and not when asked not to."""
    assert _run("fsck", cwd=store).stderr == b""
    shown = _in_terminal("fsck", cwd=store, TERM="xterm")
    assert b"checking" in shown
    assert b"checking" not in _in_terminal("fsck", "--no-progress", cwd=store, TERM="xterm")
    assert b"checking" not in _in_terminal("fsck", "--quiet", cwd=store, TERM="xterm")

"""The main job, told step by step: record a session, lose the process, resume, prove, carry it elsewhere, fork it.

The session is a real file of another implementation, which ships in ``fixtures/``. The process that records it is a
real one, and is killed with SIGKILL in the middle of an append. Exits 0 when every step did what it says.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from agentsession_cas import Session, Store, entry, read_file
from agentsession_cas.core.verify import verify

__all__ = ["main"]

FILE: Final = Path(__file__).parents[1] / "fixtures" / "reference" / "sessions" / "runs.jsonl"
ACKNOWLEDGED: Final = 17
"""After so many acknowledged appends the recording process is sent one more line and killed."""


def main() -> int:
    """Run the demonstration in a directory of its own, which is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="agentsession-demo-") as name:
        work = Path(name)
        original = read_file(FILE)
        title(f"The session: {FILE.name}, {len(original)} entries, recorded by another program")
        say(f"{sum(each.type == 'response' for each in original)} model calls, {len(original.calls())} tool calls")
        with Store.open(work / "laptop", create=True) as store:
            acknowledged = record_and_kill(store, original)
            resume(store, original, acknowledged)
            projected = prove_and_project(store, original, work / "session.jsonl")
        carry_elsewhere(work / "server", projected, original)
    title("Done: nothing acknowledged was lost, and every hash was proven on the other side")
    return 0


def record_and_kill(store: Store, original: Session) -> list[str]:
    """Record the session in another process, durably, and kill it mid-append; returns what it acknowledged."""
    title("1. Record, in a process of its own, each append durable")
    store.create(original.header).close()
    command = [sys.executable, "-m", "agentsession_cas", "--store", store.root, "append", original.id]
    recorder = subprocess.Popen([*command, "--durable", "--json"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert recorder.stdin is not None
    assert recorder.stdout is not None
    lines = [each.line + b"\n" for each in original]
    acknowledged: list[str] = []
    for line in lines[:ACKNOWLEDGED]:
        recorder.stdin.write(line)
        recorder.stdin.flush()
        result: dict[str, Any] = json.loads(recorder.stdout.readline())
        expect(result["durable"], "each append is acknowledged as durable")
        acknowledged.append(result["id"])
    last = list(original)[len(acknowledged) - 1]
    say(f"{len(acknowledged)} appends acknowledged; the last, {short(last.id)}, is the {last.type} of {last.call_id}")
    title("2. Kill it: the output of that call is on its way when SIGKILL arrives")
    recorder.stdin.write(lines[ACKNOWLEDGED])
    recorder.stdin.flush()
    recorder.send_signal(signal.SIGKILL)
    recorder.wait()
    recorder.stdout.close()
    say(f"process {recorder.pid} is gone (exit {recorder.returncode}); it closed nothing")
    return acknowledged


def resume(store: Store, original: Session, acknowledged: list[str]) -> None:
    """Open the session again, see where it stands, and record the rest."""
    title("3. Open it again, and resume where it stands")
    with store.open_session(original.id) as session:
        held = [each.id for each in session]
        expect(held[: len(acknowledged)] == acknowledged, "all that was acknowledged is there, in order")
        extra = len(held) - len(acknowledged)
        expect(extra in (0, 1), "the entry in flight is there whole or not at all")
        fate = "had landed, whole" if extra else "had not landed; nothing of it is there"
        say(f"all {len(acknowledged)} acknowledged entries are there; the one in flight {fate}")
        say(f"the head is {short(session.leaf)}; the record says of the tool calls:")
        for call in session.calls():
            say(f"    {call.call_id} {call.name}({call.args}): {call.state(session.header)}")
        rest = list(original)[len(held) :]
        session.append_batch(rest, durable=True)
        say(f"recorded the other {len(rest)} entries, as one batch")


def prove_and_project(store: Store, original: Session, target: Path) -> Path:
    """Check every hash and rule, and write the session out as a file."""
    title("4. Prove it")
    session = store.read(original.id)
    report = verify(session)
    expect(report["ok"], "the session verifies")
    expect([each.line for each in session] == [each.line for each in original], "every line is the file's")
    say(f"{report['entries']} entries have the ids of the file, so their bytes are the same")
    proven = report["responses"]["verified"]
    say(f"{proven} requests rebuilt from the record; each has the hash noted when it was sent")
    title("5. Project it: the session as a file")
    store.project(session.id, target)
    say(f"{target.name}: {target.stat().st_size} bytes, one JSON object a line")
    return target


def carry_elsewhere(root: Path, projected: Path, original: Session) -> None:
    """Take the file into a second store, show that it gives the same file, and fork the session there."""
    title("6. Import it elsewhere: a second store")
    with Store.open(root, create=True) as store:
        taken = store.import_file(projected)
        say(f"every line verified; {taken.entries} entries, a {taken.mark} of the record")
        again = store.project(taken.session, root.parent / "again.jsonl")
        expect(Path(again).read_bytes() == projected.read_bytes(), "the second store gives the same bytes")
        say("projected again from there: the same file, byte for byte")
        title("7. Fork it there, after the first message")
        first = next(each for each in original if each.type == "item")
        with store.fork(taken.session, first.id) as fork:
            fork.append(entry.user("On second thought: only list the files."))
            say(f"session {fork.id} continues from {short(first.id)}; nothing was copied")
            for item in fork.context().items:
                say(f"    {item['role']}: {item['content'][0]['text']}")
            expect(verify(fork)["ok"], "the fork verifies")
        report = store.fsck()
        expect(report.ok, "the second store is sound")
        say(f"fsck: {report.sessions} sessions, {report.entries} entries, {report.objects} objects, all sound")


def title(text: str) -> None:
    """Begin a step."""
    print(f"\n{text}", flush=True)


def say(text: str) -> None:
    """Tell one thing."""
    print(f"   {text}", flush=True)


def short(entry_id: str) -> str:
    """An entry id as people read it."""
    return entry_id.removeprefix("sha256:")[:12]


def expect(true: bool, what: str) -> None:
    """End the demonstration when something is not as it says."""
    if not true:
        raise SystemExit(f"error: demo: this does not hold: {what}")


if __name__ == "__main__":
    sys.exit(main())

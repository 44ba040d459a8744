"""A real disk of two megabytes that fills up, and one that takes no writes: the store on it opens and reads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.heavy

FILL = """
import sys
from agentsession_cas import Store, entry
from agentsession_cas.errors import DiskFull
root = sys.argv[1]
with Store.open(root, create=True, background=False) as store, store.create(id="s") as session:
    kept = []
    try:
        for n in range(10_000):
            kept.append(session.append(entry.user(f"{n} " * 4000), durable=True).id)
    except DiskFull:
        pass
    else:
        raise SystemExit("the disk took everything")
    for work in (store.repack, lambda: store.create(id="t"), lambda: store.put_blob(b"x" * 4_000_000)):
        try:
            work()
        except DiskFull:
            pass
with Store.open(root, background=False) as store:
    assert kept and [each.id for each in store.read("s")][: len(kept)] == kept
    assert store.fsck().ok, store.fsck().findings
    store.repair("s")
"""

SEALED = """
import sys
from agentsession_cas import Store, entry
from agentsession_cas.errors import ReadOnly
with Store.open(sys.argv[1], read_only=True) as store:
    assert len(store.read("s")) == 3 and store.fsck().ok
with Store.open(sys.argv[1]) as store:
    try:
        store.open_session("s")
    except ReadOnly:
        pass
    else:
        raise SystemExit("it was opened to write")
"""

MAKE = """
import sys
from agentsession_cas import Store, entry
with Store.open(sys.argv[1], create=True) as store, store.create(id="s") as session:
    session.append_batch([entry.user(f"{n}") for n in range(3)])
"""


def on_a_disk(directory: Path, *steps: str) -> subprocess.CompletedProcess[str]:
    """Run steps, shell commands, in a name space with a disk of its own at ``directory``."""
    command = " && ".join([f"mount -t tmpfs -o size=2m none {directory}", *steps])
    return subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", command],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """Where a disk can be mounted; skips where the system does not let it."""
    try:
        able = on_a_disk(tmp_path, "true").returncode == 0
    except FileNotFoundError:
        able = False
    if not able:
        pytest.skip("no disk can be mounted here")
    return tmp_path


def python(directory: Path, name: str, text: str) -> str:
    """The command that runs a program on the store of the disk at ``directory``."""
    program = directory.parent / f"{directory.name}-{name}.py"
    program.write_text(text, encoding="utf-8")
    return f"{sys.executable} {program} {directory}/store"


def test_a_full_disk_leaves_a_store_that_opens(disk: Path) -> None:
    ran = on_a_disk(disk, python(disk, "fill", FILL))
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_disk_that_takes_no_writes_is_read(disk: Path) -> None:
    sealed = f"mount -o remount,ro {disk}"
    ran = on_a_disk(disk, python(disk, "make", MAKE), sealed, python(disk, "read", SEALED))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert not (disk / "store").exists()  # it went with its name space

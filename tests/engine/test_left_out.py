"""A store carried by a tool that leaves out empty directories, as many copies and archives do."""

from __future__ import annotations

from pathlib import Path
from shutil import rmtree

import pytest

from agentsession_cas import RefTarget, Store, entry
from agentsession_cas.errors import AgentSessionError

pytestmark = pytest.mark.heavy


def _leave_out(root: Path) -> list[str]:
    """Remove every empty directory, those that become empty too; returns what went, of the top level."""
    for path in sorted(root.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    return sorted({"objects", "refs", "logs", "trash", "tmp", "locks"} - {path.name for path in root.iterdir()})


def test_a_store_without_its_empty_directories_is_written_as_before(tmp_path: Path) -> None:
    """Opening it to write makes them again; reading needs none of them."""
    root = tmp_path / "store"
    with Store.open(root, create=True) as store, store.create(id="kept") as session:
        asked = session.append(entry.user("hi"), durable=True).id
    assert {"objects", "refs", "logs", "trash", "tmp"} <= set(_leave_out(root))
    with Store.open(root, read_only=True) as store:
        assert store.read("kept").leaf == asked
    with Store.open(root) as store:
        assert store.fsck().findings == []
        store.fork("kept", asked, id="fork").close()
        store.update_ref("name", None, RefTarget("fork"))
        store.put_blob(b"blob")
        store.delete("kept")
        store.repack(all=True)
        store.sweep(grace_s=0)
        assert store.read("fork").context().items[0]["content"][0]["text"] == "hi"
        assert store.fsck().findings == []


@pytest.mark.parametrize("lost", ["refs", "sessions"])
def test_what_names_data_is_never_made_anew(tmp_path: Path, lost: str) -> None:
    """An empty one would tell a sweep that nothing is needed: a lost one stops it."""
    root = tmp_path / "store"
    with Store.open(root, create=True) as store:
        with store.create(id="pinned") as session:
            asked = session.append(entry.user("x" * 9000), durable=True).id
        store.update_ref("name", None, RefTarget("pinned", asked))
        store.delete("pinned")
    before = {path for path in (root / "objects").rglob("*") if path.is_file()}
    rmtree(root / lost)
    with Store.open(root) as store, pytest.raises(AgentSessionError):
        store.sweep(grace_s=0)
    assert not (root / lost).exists()
    assert {path for path in (root / "objects").rglob("*") if path.is_file()} == before

"""Session files without a store: read, append to, scan, write."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from agentsession_cas import Session, Store, entry, read_file, scan_file, write_file
from agentsession_cas.errors import BadFile, NoBlob, NoEntry, NoFile, NotRegular, ScanMigrated

SESSIONS: Final = Path(__file__).parents[2] / "fixtures" / "reference" / "sessions"


@pytest.mark.parametrize("name", ["basic", "branch", "fork", "compaction", "runs", "normalised", "parts", "omit"])
def test_read_then_write_gives_the_bytes_back(tmp_path: Path, name: str) -> None:
    """A whole file comes out as it went in, over whatever was there."""
    target = tmp_path / "out.jsonl"
    target.write_bytes(b"old")
    session = read_file(SESSIONS / f"{name}.jsonl")
    assert write_file(session, target) == str(target)
    assert target.read_bytes() == (SESSIONS / f"{name}.jsonl").read_bytes()
    assert [each.name for each in tmp_path.iterdir()] == ["out.jsonl"]


def test_a_session_read_takes_appends(tmp_path: Path) -> None:
    """Its clock is the system's; the same class as everywhere."""
    session = read_file(str(SESSIONS / "basic.jsonl"))
    assert type(session) is Session
    session.append(entry.user("one more"))
    write_file(session, tmp_path / "more.jsonl")
    again = read_file(tmp_path / "more.jsonl")
    assert [each.id for each in again] == [each.id for each in session]
    assert again.leaf == session.leaf


def test_a_scan_verifies_line_by_line() -> None:
    """Entries as they stand, what was cut short at the end, and the error of a broken line from the iteration."""
    found = scan_file(SESSIONS / "truncated.jsonl")
    assert found.header.format == "agentsession/0.11"
    assert len(list(found)) == 8
    assert found.truncated is not None
    assert found.truncated.line == 10
    repeats = [each.number for each in scan_file(SESSIONS / "duplicate-id.jsonl") if each.repeat]
    assert len(repeats) == 1
    with pytest.raises(NoEntry):
        list(scan_file(SESSIONS / "bad-parent.jsonl"))
    with pytest.raises(ScanMigrated):
        scan_file(SESSIONS / "v0.4" / "basic.jsonl")


def test_what_is_no_session_file(tmp_path: Path) -> None:
    """Missing, a directory, empty: each its own error."""
    with pytest.raises(NoFile):
        read_file(tmp_path / "missing.jsonl")
    with pytest.raises(NoFile):
        scan_file(tmp_path / "missing.jsonl")
    with pytest.raises(NotRegular):
        read_file(tmp_path)
    (tmp_path / "empty.jsonl").write_bytes(b"")
    with pytest.raises(BadFile):
        read_file(tmp_path / "empty.jsonl")


def test_sidecar_blobs_need_somebody_to_ask(tmp_path: Path) -> None:
    """Without a way to their bytes nothing is written; with one they lie beside the file."""
    with Store.memory() as store:
        blob = store.put_blob(b"picture")
        with store.create(id="s-1", media="sidecar") as session:
            session.append(entry.user([{"type": "input_image", "image_url": f"sidecar:{blob}"}]))
            with pytest.raises(NoBlob):
                write_file(session, tmp_path / "out.jsonl")
            assert list(tmp_path.iterdir()) == []
            write_file(session, tmp_path / "out.jsonl", blob=store.blob)
    assert (tmp_path / "s-1" / blob[7:]).read_bytes() == b"picture"
    assert len(read_file(tmp_path / "out.jsonl")) == 1

"""``cat``: one thing by its hash, wherever it lies."""

from __future__ import annotations

import json

import pytest

from agentsession_cas import Store, entry
from tests.helpers.commands import Commands


@pytest.fixture
def filled(held: Commands) -> tuple[Commands, list[str], str]:
    """A session of which half is in objects, and a blob: the ids of its entries, the hash of the blob."""
    with Store.open(held.store) as store:
        blob = store.put_blob(b"\x89PNG\n")
        with store.create(id="s") as session:
            ids = [session.append(entry.user("published")).id]
            session.checkpoint()
            ids.append(session.append(entry.user("in the journal")).id)
    return held, ids, blob


@pytest.mark.parametrize("digits", [64, 20])
def test_entries_bodies_and_blobs(filled: tuple[Commands, list[str], str], digits: int) -> None:
    """An entry is its line; a body and a blob are their bytes, and nothing more."""
    cli, ids, blob = filled
    with Store.open(cli.store) as store:
        held = {each.id: each for each in store.read("s")}
        assert all(each.line for each in held.values())
    for id in ids:
        assert cli.ok("cat", id[: 7 + digits]).out == held[id].line + b"\n"
        assert cli.ok("cat", held[id].content_hash[7 : 7 + digits]).out == held[id].content
        assert cli.ok("cat", id, "--json").object == {"kind": "entry", "hash": id, "entry": json.loads(held[id].line)}
        body = cli.ok("cat", held[id].content_hash, "--json").object
        assert body == {"kind": "content", "hash": held[id].content_hash, "content": held[id].body}
    assert cli.ok("cat", blob[: 7 + digits]).out == b"\x89PNG\n"
    assert cli.ok("cat", blob, "--json").object == {"kind": "blob", "hash": blob, "size": 5}


@pytest.mark.parametrize(
    ("name", "code", "error"),
    [("f" * 64, 1, "no_object"), ("sha256:", 2, "usage"), ("abc", 2, "usage"), ("xyz0", 2, "usage"), ("", 2, "usage"),
     ("0" * 65, 2, "usage")],
)  # fmt: skip
def test_what_is_not_there(filled: tuple[Commands, list[str], str], name: str, code: int, error: str) -> None:
    ran = filled[0]("cat", name)
    assert (ran.code, ran.error_code, ran.out) == (code, error, b"")


def test_a_beginning_that_fits_several(held: Commands) -> None:
    """Is told with what it fits."""
    seen: set[str] = set()
    with Store.open(held.store) as store, store.create(id="s") as session:
        while (beginning := session.append(entry.user(f"{len(seen)}")).id[7:11]) not in seen:
            seen.add(beginning)
    ran = held("cat", beginning)
    assert (ran.code, ran.error_code) == (2, "usage")
    assert "fits 2" in ran.err

"""What settings cost on disk when one of many parts moves: the bytes of the config entries, not of a delta alone."""

from __future__ import annotations

from typing import Any

import pytest

from agentsession_cas import SessionWriter, Store, entry
from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.entry import Draft

Json = dict[str, Any]

PARTS = [{"id": f"memory-{n}", "text": f"fact {n}: " + "lorem ipsum " * 20, "source": "memory"} for n in range(500)]
OMITTED = [{"id": f"skill-{n}", "reason": "over the budget", "source": "skills", "size": 900 + n} for n in range(300)]


@pytest.fixture
def session() -> SessionWriter:
    """A session whose instructions are five hundred parts, and whose omitted parts are three hundred."""
    session = Store.memory().create()
    request = {"model": "m", "instructions": "\n\n".join(part["text"] for part in PARTS)}
    session.append(entry.config_from_request(request, parts=PARTS))
    session.append(Draft("config", {"instructions_omitted": OMITTED}))
    return session


def put(session: SessionWriter, parts: list[Json] | None = None, omitted: list[Json] | None = None) -> Json:
    """Append the delta that takes the session there; its body. The settings are then what was wanted."""
    body: Json = {}
    if parts is not None:
        body.update(session.settings().instructions_delta(parts) or {})
    if omitted is not None:
        delta = session.settings().omitted_delta(omitted)
        body.update({} if delta is None else {"instructions_omitted": delta})
    appended = session.entry(session.append(Draft("config", body)).id).body
    assert parts is None or list(session.settings().instructions_parts) == parts
    assert omitted is None or list(session.settings().instructions_omitted) == omitted
    assert session.unresolved_of() == []
    return appended


@pytest.mark.parametrize("at", [0, 1, 250, 498, 499])
def test_a_change_of_one_part_in_500_costs_under_200_bytes_beside_its_text(session: SessionWriter, at: int) -> None:
    text = f"corrected {at} " * 30
    changed = [*PARTS[:at], {**PARTS[at], "text": text}, *PARTS[at + 1 :]]
    body = put(session, changed)
    assert len(canonical(body)) - len(text) < 200
    assert session.settings().instructions == "\n\n".join(part["text"] for part in changed)


@pytest.mark.parametrize("at", [0, 250, 499])
def test_so_does_a_part_that_comes_and_one_that_goes(session: SessionWriter, at: int) -> None:
    new = {"id": "new", "text": "something else " * 10, "source": "memory"}
    body = put(session, [*PARTS[:at], new, *PARTS[at:]])
    assert len(canonical(body)) - len(new["text"]) < 200
    body = put(session, PARTS)
    assert len(canonical(body)) < 200 + len(PARTS[at]["id"]) + len("sha256:") + 64


def test_nothing_moved_is_no_entry(session: SessionWriter) -> None:
    settings = session.settings()
    assert settings.instructions_delta(PARTS) is None
    assert settings.omitted_delta(OMITTED) is None


def test_a_hand_back_costs_one_element_and_a_hash_a_part(session: SessionWriter) -> None:
    """Another agent takes over with instructions of its own, and hands back to the first."""
    first = session.entry(session.leaf).id
    mine = PARTS[:40]
    put(session, mine)
    theirs = [{"id": f"other-{n}", "text": f"other {n}"} for n in range(5)]
    put(session, theirs, [{"id": "other-skill", "reason": "off"}])
    body = put(session, mine, OMITTED)
    assert body["instructions_omitted"] == [{"keep": len(OMITTED), "of": first}]
    assert [sorted(element) for element in body["instructions_parts"]] == [["hash", "id"]] * len(mine)
    # An element of a list in JSON: {"hash":"sha256:<64>","id":"memory-NN"} and a comma.
    assert len(canonical(body["instructions_parts"])) < len(mine) * (len('{"hash":"sha256:","id":""},') + 64 + 10)
    put(session, theirs, [{"id": "other-skill", "reason": "off"}])
    assert len(put(session, omitted=OMITTED)["instructions_omitted"]) == 1


def test_a_hand_back_that_changed_one_part_writes_that_one(session: SessionWriter) -> None:
    mine = PARTS[:40]
    put(session, mine)
    put(session, [{"id": "other", "text": "other"}])
    changed = [*mine[:7], {**mine[7], "text": "corrected"}, *mine[8:]]
    body = put(session, changed)
    assert [element["id"] for element in body["instructions_parts"] if "text" in element] == ["memory-7"]

"""Envelopes in binary: every letter comes back, whatever an envelope holds; any bytes raise Corrupt at the most."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.core.entry import Entry
from agentsession_cas.core.envelopes import decode_envelopes, encode_envelopes
from agentsession_cas.errors import Corrupt
from tests.helpers.objects import digest

Named = tuple[bytes, bytes]

TS = "2026-01-01T00:00:00.%09dZ"
TIMES = (
    "0000-01-01T00:00:00Z",
    "1969-12-31T23:59:59.999999999Z",
    "1970-01-01T00:00:00Z",
    "2026-02-28T23:59:59.5Z",
    "2116-02-20T23:53:38.427387904Z",  # 2**62 nanoseconds
    "9999-12-31T23:59:59.999999999Z",
)
TYPES = ("item", "response", "config", "x/odd", 'x/"quoted"', "x/\u00e9\u4e16", "x/" + "long" * 80)


def named(envelope: bytes) -> Named:
    return digest(envelope), envelope


def chain(count: int, bodies: list[bytes] | None = None) -> list[Named]:
    """A plain session: each the child of the one before."""
    made: list[Named] = []
    parent = ""
    for k in range(count):
        entry = Entry.seal("item", {"n": k}, parent, (TS % (k * 7919 + 1)).rstrip("0Z") + "Z")
        if bodies is not None:
            bodies.append(digest(entry.content))
        made.append(named(entry.envelope))
        parent = entry.id
    return made


def through(envelopes: list[Named], bodies: list[bytes]) -> list[bytes]:
    data = encode_envelopes(envelopes, {body: place for place, body in enumerate(bodies)})
    return decode_envelopes(data, len(envelopes), bodies.__getitem__)


@st.composite
def sessions(draw: st.DrawFn) -> tuple[list[Named], list[bytes]]:
    """Envelopes of any shape, some naming others of the block, some of their bodies in the block before."""
    made: list[Named] = []
    bodies: list[bytes] = []
    for k in range(draw(st.integers(1, 12))):
        earlier = st.sampled_from([f"sha256:{name.hex()}" for name, _ in made]) if made else st.nothing()
        parent = draw(st.just("") | st.just("sha256:" + "ab" * 32) | earlier)
        parents: list[dict[str, Any]] = [{"entry": "sha256:" + "cd" * 32}] if draw(st.integers(0, 9)) == 0 else []
        ts = draw(st.sampled_from(TIMES))
        entry = Entry.seal(draw(st.sampled_from(TYPES)), {"n": draw(st.integers(0, 5)), "k": k}, parent, ts, parents)
        made.append(named(draw(st.just(entry.envelope) | st.binary(max_size=9))))
        where = draw(st.integers(0, 3))
        if where == 0:
            bodies.append(digest(entry.content))
        elif where == 1:
            bodies.insert(draw(st.integers(0, len(bodies))), digest(entry.content))
    return made, bodies


@given(sessions())
@settings(max_examples=150, deadline=None)
def test_every_letter_comes_back(given: tuple[list[Named], list[bytes]]) -> None:
    envelopes, bodies = given
    assert through(envelopes, bodies) == [envelope for _, envelope in envelopes]
    assert through(envelopes, []) == [envelope for _, envelope in envelopes]


def test_a_plain_session_costs_little() -> None:
    bodies: list[bytes] = []
    envelopes = chain(1000, bodies)
    behind = encode_envelopes(envelopes, {body: place for place, body in enumerate(bodies)})
    assert len(behind) < 11 * 1000
    alone = encode_envelopes(envelopes, {})
    assert len(alone) < 43 * 1000
    assert decode_envelopes(behind, 1000, bodies.__getitem__) == [envelope for _, envelope in envelopes]


def test_more_types_than_there_are_numbers() -> None:
    entries = [Entry.seal(f"x/{k}", {}, "", TIMES[2]) for k in range(300)]
    envelopes = [named(entry.envelope) for entry in entries]
    assert through(envelopes, []) == [envelope for _, envelope in envelopes]


@pytest.mark.parametrize(
    "odd",
    [
        b'{"content":"sha256:%s","parent":null,"ts":"2026-01-01T00:00:00.10Z","type":"item"}',
        b'{"content":"sha256:%s","parent":null,"ts":"2026-13-01T00:00:00Z","type":"item"}',
        b'{"content":"sha256:%s","parent":null,"ts":"2026-01-01T00:00:00Z","type":"it\\u0065m"}',
        b'{"content":"sha256:%s","parent":null, "ts":"2026-01-01T00:00:00Z","type":"item"}',
        b'{"content":"sha256:%s","parent":null,"ts":"2026-01-01T00:00:00Z","type":"item"}\n',
    ],
)
def test_what_is_nearly_an_envelope_stays_as_it_is(odd: bytes) -> None:
    envelopes = [*chain(3), named(odd % (b"ab" * 32)), *chain(2)]
    assert through(envelopes, []) == [envelope for _, envelope in envelopes]


# --- damage ----------------------------------------------------------------------------------------------------------


def decoded(data: bytes, count: int) -> list[bytes] | None:
    try:
        return decode_envelopes(data, count, [bytes([place]) * 32 for place in range(9)].__getitem__)
    except Corrupt:
        return None


def test_flips_and_cuts_raise_corrupt_or_change_what_hashes_otherwise() -> None:
    bodies = [bytes([place]) * 32 for place in range(9)]
    envelopes = [*chain(4), named(b"kept"), *[named(Entry.seal("x/y", {}, "", TS % 5).envelope)]]
    envelopes.append(named(envelopes[0][1].replace(envelopes[0][1][20:84], bodies[3].hex().encode())))
    data = encode_envelopes(envelopes, {body: place for place, body in enumerate(bodies)})
    assert decoded(data, len(envelopes)) == [envelope for _, envelope in envelopes]
    for at in range(len(data)):
        for bit in range(8):
            decoded(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :], len(envelopes))
        assert decoded(data[:at], len(envelopes)) is None
    assert decoded(data + b"\0", len(envelopes)) is None


@given(st.binary(max_size=300), st.integers(0, 12))
@settings(max_examples=300, deadline=None)
def test_any_bytes_raise_corrupt_and_nothing_else(data: bytes, count: int) -> None:
    decoded(data, count)


@given(st.lists(st.integers(0, 15), min_size=1, max_size=8), st.lists(st.integers(0, 4), min_size=5, max_size=5))
@settings(max_examples=200, deadline=None)
def test_counts_that_lie(kinds: list[int], counts: list[int]) -> None:
    apart = sum(kind != 15 for kind in kinds)
    front = bytes(kinds) + bytes(apart) + bytes(range(8 * apart))
    middle = b"".join(count.to_bytes(4, "little") for count in counts)
    for size in range(0, 200, 7):
        decoded(front + middle + b"\1" * size, len(kinds))

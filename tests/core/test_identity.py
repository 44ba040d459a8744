"""Hashes and session ids (format.md §3, §4)."""

from __future__ import annotations

import hashlib
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.core.identity import (
    hash_bytes,
    hash_text,
    is_hash,
    redacted_session_id,
    session_id,
    subsession_id,
)

PARENT = "01995b2a-0000-7000-8000-000000000001"


def test_the_vectors_of_the_format() -> None:
    assert subsession_id(PARENT, "call_1") == "91d0242a-bd8b-551a-a26c-d3b0d4889b4f"
    assert subsession_id(PARENT, "call_1", 1) == "156c0f2e-8ea1-508b-a4e2-f64732571306"
    assert redacted_session_id(PARENT, "public@1") == "beeb8b34-10d8-5b7f-9cad-f2f0f1d38b9c"


def test_a_retry_is_the_name_of_its_number() -> None:
    assert subsession_id(PARENT, "call_1", 12) == str(uuid.uuid5(uuid.UUID(int=0), f"{PARENT}/call_1/12"))
    assert redacted_session_id('a"/é', "p") == str(uuid.uuid5(uuid.UUID(int=0), '["redacted","a\\"/é","p"]'))


@given(st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=10))
@settings(max_examples=200, deadline=None)
def test_a_new_session_id_is_a_uuid_of_its_time(now_ms: int, random: bytes) -> None:
    text = session_id(now_ms, random)
    made = uuid.UUID(text)
    assert str(made) == text
    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert made.int >> 80 == now_ms


@given(st.integers(0, 2**48 - 2), st.binary(min_size=10, max_size=10), st.binary(min_size=10, max_size=10))
@settings(max_examples=100, deadline=None)
def test_session_ids_sort_by_time(now_ms: int, one: bytes, other: bytes) -> None:
    assert session_id(now_ms, one) < session_id(now_ms + 1, other)


def test_every_random_bit_but_six_counts() -> None:
    made = {session_id(0, (1 << bit).to_bytes(10, "big")) for bit in range(80)}
    assert len(made) == 75  # 74 bits, and none of the six left over


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("sha256:" + "0" * 64, True),
        ("sha256:" + "0123456789abcdef" * 4, True),
        ("sha256:" + "A" * 64, False),
        ("sha256:" + "0" * 63, False),
        ("sha256:" + "0" * 65, False),
        ("sha256:" + "0" * 64 + "\n", False),
        ("sha256:" + "٣" * 64, False),
        ("SHA256:" + "0" * 64, False),
        ("sha1:" + "0" * 64, False),
        ("0" * 64, False),
        ("", False),
        (None, False),
        (b"sha256:" + b"0" * 64, False),
    ],
)
def test_what_a_hash_looks_like(text: Any, is_one: bool) -> None:
    assert is_hash(text) is is_one


def test_hashes() -> None:
    empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert hash_bytes(b"") == hash_text("") == empty
    assert hash_text("é") == "sha256:" + hashlib.sha256("é".encode()).hexdigest()

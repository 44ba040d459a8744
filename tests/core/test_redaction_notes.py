"""The record of what a writer normalised, rewritten with the member it tells of (format.md §10)."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.helpers.rewrites import rewritten, scrub

Json = dict[str, Any]


@pytest.mark.parametrize(
    ("was", "after"),
    [
        (r'"a secret \ud800 \"q\""', r'"a *** \ud800 \"q\""'),
        (r'"\u0061 none \ud800"', r'"\u0061 none \ud800"'),
        ('["secret", 1.50, {"secret": "secret"}]', '["***", 1.50, {"secret": "***"}]'),
        ("12345678901234567890", "12345678901234567890"),
        ("not json secret", "not json ***"),
    ],
)
def test_the_record_of_a_change_is_rewritten_as_source_text(was: str, after: str) -> None:
    """Where nothing changed the spelling stays; what changed is canonical, a lone surrogate escaped as it was."""
    body = {"name": "a", "normalised": [{"at": "/name", "was": was}]}
    assert rewritten("info", body, scrub)["normalised"] == [{"at": "/name", "was": after}]


def test_digits_that_are_to_go_become_a_string() -> None:
    """The record can no longer be the original text, and must not keep the number."""
    body = {"name": "12345678901234567890", "normalised": [{"at": "/name", "was": "12345678901234567890"}]}
    after = rewritten("info", body, lambda text: text.replace("1234567890", "#"))
    assert after == {"name": "##", "normalised": [{"at": "/name", "was": '"##"'}]}


def test_raw_bytes_are_rewritten_decoded_and_keep_what_was_no_utf_8() -> None:
    """A rewrite of strings would never see what base64 holds."""
    raw = b'"my secret \xff\xc3 \\n end"'
    body = {"name": "x", "normalised": [{"at": "/name", "raw": base64.b64encode(raw).decode()}]}
    after = rewritten("info", body, scrub)["normalised"][0]["raw"]
    assert base64.b64decode(after) == b'"my *** \xff\xc3 \\n end"'
    assert rewritten("info", body, lambda text: text) == body
    odd = {"name": "x", "normalised": [{"at": "/name", "raw": "secret!"}]}
    assert rewritten("info", odd, scrub)["normalised"][0]["raw"] == "***!"


def test_a_record_follows_a_renamed_path_and_is_left_with_its_member() -> None:
    """``at`` goes through the names as they are rewritten; what a rewrite is not given keeps its record."""
    body = {
        "ns": "n",
        "call_id": "secret",
        "data": {"secret/a": ["x"]},
        "normalised": [
            {"at": "/call_id", "was": '"secret \\ud800"'},
            {"at": "/data/secret~1a/0", "was": '"secret"', "more": "secret"},
        ],
    }
    assert rewritten("custom", body, scrub) == {
        "ns": "n",
        "call_id": "secret",
        "data": {"***/a": ["x"]},
        "normalised": [
            {"at": "/call_id", "was": '"secret \\ud800"'},
            {"at": "/data/***~1a/0", "was": '"***"', "more": "***"},
        ],
    }


def test_what_is_no_record_is_data() -> None:
    """In whatever form it is held."""
    assert rewritten("info", {"normalised": {"secret": "secret"}}, scrub) == {"normalised": {"***": "***"}}
    odd = [{"at": "secret", "was": "secret"}, {"at": "/name", "was": "1", "raw": "secret"}, "secret"]
    assert rewritten("info", {"normalised": odd}, scrub)["normalised"] == [
        {"at": "***", "was": "***"},
        {"at": "/name", "was": "1", "raw": "***"},
        "***",
    ]

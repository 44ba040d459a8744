"""What an operator wants gone, found in a string: values, patterns, home directories, and a file of them."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.core.redactrules import Rules, home_rules, pattern_rule, read_rules, secret_rule
from agentsession_cas.errors import Usage

SECRETS = ["hunter2", 'a "quoted" \\ one', "tab\tand\nline", "naïve/é", "emoji 😀 key", "\x07\x1f", "\\\\"]


@pytest.mark.parametrize("secret", SECRETS)
def test_a_value_is_found_as_it_is_and_in_json_at_any_depth(secret: str) -> None:
    """The arguments of a call are JSON text, and may hold JSON text again."""
    rules = Rules([secret_rule(secret)])
    said = f"before {secret} after"
    assert rules(said) == "before [redacted] after"
    for ascii_only in (True, False):
        once = json.dumps({"k": said}, ensure_ascii=ascii_only)
        assert json.loads(rules(once)) == {"k": "before [redacted] after"}
        twice = json.dumps(["x", once], ensure_ascii=ascii_only)
        assert json.loads(json.loads(rules(twice))[1]) == {"k": "before [redacted] after"}


@settings(max_examples=150, deadline=None)
@given(st.text(min_size=1, max_size=8), st.text(max_size=12), st.text(max_size=12), st.integers(0, 3))
def test_no_value_is_left_whatever_it_is(secret: str, before: str, after: str, depth: int) -> None:
    """Found where it stands, escaped as often as it is; or the rules were refused, since it is in the placeholder."""
    try:
        rules = Rules([secret_rule(secret)])
    except Usage:
        return
    text = before + secret + after
    for _ in range(depth):
        text = json.dumps(text)
    left = rules(text)
    for _ in range(depth):
        assert secret not in left
        try:
            left = json.loads(left)
        except ValueError:  # the value was part of an escape
            return
        if not isinstance(left, str):
            return
    assert secret not in left


def test_a_longer_value_goes_before_one_inside_it() -> None:
    """Whatever order they are given in."""
    rules = Rules([secret_rule("key"), secret_rule("key-and-more", "[long]")])
    assert rules("key key-and-more") == "[redacted] [long]"


def test_patterns_go_in_the_order_given_each_with_its_placeholder() -> None:
    """A placeholder is literal, and an empty match is none."""
    rules = Rules([pattern_rule(r"sk-[a-z]+", r"[\1 key]"), pattern_rule(r"\d{4}|x*"), secret_rule("42")])
    assert rules("sk-abc 1234 42 y") == r"[\1 key] [redacted] [redacted] y"


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("/home/me", "[home]"),
        ("/home/me/.ssh/id", "[home]/.ssh/id"),
        ("cd /home/alice/src && ls /Users/bob", "cd [home]/src && ls [home]"),
        ("file:///home/alice/x", "file://[home]/x"),
        ('{"cwd":"/home/alice"}', '{"cwd":"[home]"}'),
        (r"\/home\/alice\/x", r"[home]\/x"),
        (r"C:\Users\Alice Smith\x and C:\\Users\\bob\\y", r"[home]\x and [home]\\y"),
        ("/root/.bashrc", "[home]/.bashrc"),
        ("/mnt/me/deep/x /mnt/meat", "[home]/deep/x /mnt/meat"),
        ("https://x.test/home/page", "https://x.test/home/page"),
        ("/rooted /usr/root ~/x", "/rooted /usr/root ~/x"),
    ],
)
def test_home_directories(text: str, after: str) -> None:
    """Those of whoever runs it, and what looks like anybody's on any system."""
    assert Rules(home_rules("/mnt/me/"))(text) == after


def test_a_data_url_is_looked_into() -> None:
    """What is found in one takes it out whole; one that holds nothing stays as it is."""
    rules = Rules([secret_rule("hunter2")])
    clean = "data:image/png;base64," + base64.b64encode(b"\x89PNG nothing").decode()
    assert rules(clean) == clean
    for wrap in (base64.b64encode, base64.urlsafe_b64encode):
        found = "data:text/plain;charset=utf-8;base64," + wrap("é hunter2?>".encode()).decode()
        assert rules(found) == "data:text/plain;base64," + base64.b64encode(b"[redacted]").decode()
    assert rules("data:text/plain,hunter2") == "data:text/plain,[redacted]"
    assert rules("data:x;base64,&hunter2") == "data:x;base64,&[redacted]"


@pytest.mark.parametrize(
    "rules",
    [
        [secret_rule("redacted")],
        [secret_rule("x", "xx")],
        [pattern_rule(r"\w+")],
        [secret_rule("a", "[b]"), secret_rule("b", "[c]")],
        [pattern_rule("home"), *home_rules()],
    ],
)
def test_a_rule_that_matches_what_is_left_behind_is_refused(rules: list[object]) -> None:
    """What it takes out would not stay out."""
    with pytest.raises(Usage):
        Rules(rules)  # type: ignore[arg-type]


TOML = b"""
home = true
[[rules]]
secret = "hunter2"
[[rules]]
pattern = 'sk-[a-z]+'
placeholder = "[key]"
"""
JSON = b'{"home": true, "rules": [{"secret": "hunter2"}, {"pattern": "sk-[a-z]+", "placeholder": "[key]"}]}'


@pytest.mark.parametrize("data", [TOML, JSON])
def test_a_rules_file(data: bytes) -> None:
    """In either form."""
    read = read_rules(data)
    assert read.home
    assert Rules(read.rules)("hunter2 sk-abc") == "[redacted] [key]"
    assert read_rules(b"") == ([], False)


@pytest.mark.parametrize(
    "data",
    [
        b"secret = 'top'",
        b"[[rule]]\nsecret = 'x'",
        b"home = 'yes'",
        b"rules = 'x'",
        b"[[rules]]\nsecrets = 'x'",
        b"[[rules]]\nplaceholder = 'x'",
        b"[[rules]]\nsecret = 'a'\npattern = 'b'",
        b"[[rules]]\nsecret = 1",
        b"[[rules]]\nsecret = ''",
        b"[[rules]]\npattern = '('",
        b'{"rules": [1]}',
        b"{",
        b"=",
        b"\xff",
    ],
)
def test_a_rules_file_that_says_anything_else_is_refused(data: bytes) -> None:
    """A rule that was misspelled would take nothing out."""
    with pytest.raises(Usage):
        read_rules(data)


def test_errors_tell_where_and_no_value() -> None:
    """They end up in logs."""
    with pytest.raises(Usage) as refused:
        read_rules(b"[[rules]]\nsecret = 'ok'\n[[rules]]\npattern = '(hunter2'")
    assert refused.value.where == "rule 2"
    assert "hunter2" not in str(refused.value)
    with pytest.raises(Usage):
        pattern_rule("(")
    with pytest.raises(Usage):
        secret_rule("")

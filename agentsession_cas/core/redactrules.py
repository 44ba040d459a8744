"""What an operator wants gone from a session, and what stands in its place: values, patterns, home directories.

Owns how a rule is found in a string: a value also where it stands inside JSON text (a call's arguments, say), escaped
at whatever depth; any rule also in a base64 data URL. Numbers are no strings, and a value in another encoding (base64
on its own, percent escapes) is not found: write a pattern for it. A rule never matches what it leaves behind, so
redacting twice is redacting once. Knows nothing of entries; errors never tell a value.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import tomllib
from collections.abc import Iterable
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

from agentsession_cas.errors import Usage

__all__ = [
    "HOME",
    "PLACEHOLDER",
    "Rule",
    "RuleFile",
    "Rules",
    "home_rules",
    "pattern_rule",
    "read_rules",
    "secret_rule",
]

PLACEHOLDER: Final = "[redacted]"
"""What stands where something was taken out and nothing else was asked for."""
HOME: Final = "[home]"
"""What stands where a home directory was."""

_SHORT: Final = 64
_REMEMBERED: Final = 4096
_DATA_URL: Final = re.compile(r"data:[^,]{0,200};base64,", re.IGNORECASE)
_ESCAPES: Final = {"\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t", '"': '"', "/": "/"}
_HOMES: Final = (
    r"(?<![\w.~-])(?:\\*/var)?\\*/(?:home|Users)\\*/[^/\s\"'`\\:;,<>|*?()\[\]{}]+",
    r"(?<![\w.~/-])\\*/root(?![\w.-])",
    r"(?<!\w)[A-Za-z]:(?:\\+|/)Users(?:\\+|/)(?:[^\\/:*?\"<>|\r\n]{1,64}(?=[\\/])|[^\s\\/:*?\"<>|]+)",
)


class Rule:
    """One thing to take out. ``value`` is a literal, "" for a rule that is a pattern alone."""

    def __init__(self, expression: str, placeholder: str, value: str = "") -> None:
        self.placeholder = placeholder
        self._expression = expression
        self._value = value

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(self._expression)

    def apply(self, text: str) -> str:
        """The text with the placeholder wherever the rule matches."""
        if self._value and "\\" not in text:
            return text.replace(self._value, self.placeholder)
        return self._pattern.sub(lambda found: self.placeholder if found[0] else "", text)


class RuleFile(NamedTuple):
    """What a rules file says: its rules, and whether home directories go too."""

    rules: list[Rule]
    home: bool


class Rules:
    """Rules at work: call it with a string for what the string becomes.

    Longer values come first, then patterns in the order given. Raises Usage for a rule that would change a placeholder:
    what it takes out would not stay out.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = sorted(rules, key=lambda rule: -len(rule._value))
        self._remembered = lru_cache(_REMEMBERED)(self._rewritten)
        if any(self(left) != left for left in {PLACEHOLDER, *(rule.placeholder for rule in self._rules)}):
            raise Usage("a rule matches what a rule leaves behind", next_step="choose another placeholder")

    def __call__(self, text: str) -> str:
        """What a string becomes."""
        return self._remembered(text) if len(text) <= _SHORT else self._rewritten(text)

    def _rewritten(self, text: str) -> str:
        if text[:5].lower() == "data:" and (found := _DATA_URL.match(text)):
            inside = _decoded(text[found.end() :])
            if self._plain(inside) != inside:
                return "data:text/plain;base64," + base64.b64encode(PLACEHOLDER.encode()).decode()
        return self._plain(text)

    def _plain(self, text: str) -> str:
        for rule in self._rules:
            text = rule.apply(text)
        return text


def secret_rule(value: str, placeholder: str = PLACEHOLDER) -> Rule:
    """A rule for a literal value. Raises Usage for an empty one."""
    if not value:
        raise Usage("a secret is not empty")
    return Rule("".join(map(_spellings, value)), placeholder, value)


def pattern_rule(expression: str, placeholder: str = PLACEHOLDER) -> Rule:
    """A rule for a regular expression, in Python's syntax. Raises Usage for what is none."""
    try:
        re.compile(expression)
    except re.error as error:
        raise Usage(f"a pattern is no regular expression: {error.msg}") from error
    return Rule(expression, placeholder)


def home_rules(home: str = "") -> list[Rule]:
    """Rules for home directories: ``home``, where there is one, and what looks like anybody's on any system."""
    own = re.escape(home.rstrip("/\\"))
    return [Rule(each, HOME) for each in (*([rf"(?<![\w.~-]){own}(?![\w.-])"] if own else []), *_HOMES)]


def read_rules(data: bytes) -> RuleFile:
    """A rules file, in TOML, or in JSON when it begins with ``{``.

    ``home`` true stands for home directories; each of ``rules`` has ``secret`` or ``pattern``, a string, and may have a
    ``placeholder``. Raises Usage for anything else: a rule that was misspelled would take nothing out.
    """
    try:
        text = data.decode()
        members = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except ValueError as error:
        kind = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise Usage(f"the rules are neither TOML nor JSON: {kind}") from error
    _check_names(members, {"home", "rules"}, "the file")
    home, listed = members.get("home", False), members.get("rules", [])
    if type(home) is not bool or not isinstance(listed, list):
        raise Usage("home is true or false, and rules are a list of tables")
    return RuleFile([_read_rule(each, f"rule {number}") for number, each in enumerate(listed, 1)], home)


def _read_rule(members: Any, where: str) -> Rule:
    if not isinstance(members, dict):
        raise Usage("a rule is a table", where=where)
    _check_names(members, {"secret", "pattern", "placeholder"}, where)
    if not all(isinstance(value, str) for value in members.values()) or ("secret" in members) == ("pattern" in members):
        raise Usage("a rule has secret or pattern, a string, and may have a placeholder, a string", where=where)
    placeholder = members.get("placeholder", PLACEHOLDER)
    try:
        if "secret" in members:
            return secret_rule(members["secret"], placeholder)
        return pattern_rule(members["pattern"], placeholder)
    except Usage as error:
        error.where = where
        raise


def _check_names(members: dict[str, Any], known: set[str], where: str) -> None:
    strange = sorted(members.keys() - known)
    if strange:
        next_step = f"use {', '.join(sorted(known))}"
        raise Usage(f"nothing is called {strange[0]!r:.40} there", where=where, next_step=next_step)


def _spellings(char: str) -> str:
    """A pattern for a character as it is, or escaped in JSON text that is itself in JSON text, at any depth."""
    units = char.encode("utf-16-be", "surrogatepass").hex()
    escaped = "".join(rf"\\+u(?i:{units[at : at + 4]})" for at in range(0, len(units), 4))
    forms = [r"\\+" if char == "\\" else re.escape(char), escaped]
    if char in _ESCAPES:
        forms.append(r"\\+" + _ESCAPES[char])
    return f"(?:{'|'.join(forms)})"


def _decoded(payload: str) -> str:
    """What a base64 payload holds, read as text; "" for what is none."""
    plain = "".join(payload.split()).replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4)).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return ""


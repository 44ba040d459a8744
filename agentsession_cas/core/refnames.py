"""Names of refs: which are allowed, which may stand beside each other, and the file names they get (store.md A6).

A ref's file name is the name in lower case, "/" spelled "+", and, when the name has capitals, "^" and their places as a
hexadecimal number. It is injective, also where case does not count, at most 251 bytes, and decodes without a look into
the file. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from agentsession_cas.core.given import require
from agentsession_cas.errors import BadInput, RefName

__all__ = ["REF_NAME_MAX", "check_beside", "check_ref_name", "check_ref_prefix", "near", "ref_file", "ref_of_file"]

REF_NAME_MAX: Final = 200
"""The longest name, in bytes."""

_CHARACTERS: Final = re.compile(r"[A-Za-z0-9._/-]*")
_DEVICE: Final = re.compile(r"(con|prn|aux|nul|com[1-9]|lpt[1-9])(\..*)?", re.IGNORECASE)
_RULES: Final = f"use A-Z a-z 0-9 . _ - in parts divided by /, {REF_NAME_MAX} bytes at most"


def check_ref_name(name: object) -> str:
    """``name``, which has to be one a ref may have. Raises RefName, BadInput for what is no text."""
    text = require(name, str, "the name of a ref")
    _check_text(text)
    for segment in text.split("/"):
        if not segment:
            raise RefName("a part of the name is empty", where=text, next_step=_RULES)
        if segment in (".", "..") or segment.endswith("."):
            raise RefName("no part of a name is . or .. or ends in a dot", where=text, next_step=_RULES)
        if _DEVICE.fullmatch(segment):
            raise RefName(f"{segment} is a device on Windows", where=text, next_step="choose another name")
    return text


def check_ref_prefix(prefix: object) -> str:
    """``prefix``, which has to be how a ref's name may begin; "" is. Raises RefName, BadInput for what is no text."""
    text = require(prefix, str, "the beginning of a ref's name")
    _check_text(text)
    whole, divided, _ = text.rpartition("/")
    if divided:
        check_ref_name(whole or "/")
    return text


def _check_text(text: str) -> None:
    if len(text) > REF_NAME_MAX:
        raise RefName(f"the name is longer than {REF_NAME_MAX} bytes", where=f"{text[:20]}…", next_step=_RULES)
    if not _CHARACTERS.fullmatch(text):
        raise RefName("the name has a character that no ref's has", where=ascii(text), next_step=_RULES)


def _levels(name: str) -> list[str]:
    """The prefixes of a name at the ends of its segments, the name itself last."""
    segments = name.split("/")
    return ["/".join(segments[: count + 1]) for count in range(len(segments))]


def near(name: str, files: Iterable[str]) -> Iterator[str]:
    """The names, told by their files, that :func:`check_beside` has to look at for a new one.

    Of thousands of files it decodes few: most share no more than a beginning with it.
    """
    own = ref_file(name)
    plain, capitals, _ = own.partition("^")
    first = plain.partition("+")[0]
    levels = {level.replace("/", "+") for level in _levels(plain.replace("+", "/"))}
    below = f"{plain}+"
    for file in files:
        if file.startswith(first) and (capitals or "^" in file or file in levels or file.startswith(below)):
            other = ref_of_file(file)
            if other:
                yield other


def check_beside(name: str, others: Iterable[str]) -> None:
    """Refuse a name under or above another, or that differs from another's beginning in case alone. Raises RefName."""
    levels = _levels(name)
    by_case = {level.lower(): level for level in levels}
    for other in others:
        if other == name:
            continue
        if other in levels or other.startswith(f"{name}/"):
            raise RefName("no ref lies under another", where=f"{name}, {other}", next_step="choose another name")
        for level in _levels(other):
            if by_case.get(level.lower(), level) != level:
                raise RefName(
                    "the two would differ in upper and lower case alone",
                    where=f"{name}, {other}",
                    next_step="spell it the same",
                )


def ref_file(name: str) -> str:
    """The file name of an allowed name."""
    capitals = sum(1 << at for at, character in enumerate(name) if character.isupper())
    file = name.lower().replace("/", "+")
    return f"{file}^{capitals:x}" if capitals else file


def ref_of_file(file: str) -> str:
    """The allowed name whose file name that is, "" for none."""
    plain, marked, digits = file.partition("^")
    try:
        capitals = int(digits, 16) if marked else 0
        spelled = (each.upper() if capitals >> at & 1 else each for at, each in enumerate(plain.replace("+", "/")))
        name = check_ref_name("".join(spelled))
    except (ValueError, BadInput):
        return ""
    return name if ref_file(name) == file else ""

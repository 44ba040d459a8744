"""What a ref holds and what its log says, as values and as bytes: one line each (store.md A6).

A line is canonical JSON, a tab, and the CRC-32 of the JSON as eight hexadecimal digits. Updates of one name are
numbered from 1; a ref says which update made it, so that a record in the log that never came to be is told from one
that did. Decoding raises Corrupt and nothing else. Pure.
"""

from __future__ import annotations

import zlib
from typing import Any, Final, NamedTuple

import orjson

from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.identity import is_hash
from agentsession_cas.core.timestamps import is_canonical_ts
from agentsession_cas.errors import Corrupt

__all__ = [
    "Held",
    "LogRecord",
    "Pin",
    "Ref",
    "RefTarget",
    "RefUpdate",
    "decode_record",
    "decode_ref",
    "encode_record",
    "encode_ref",
]

_CHECK: Final = 8
_BIRTH: Final = 16


class RefTarget(NamedTuple):
    """What a ref points to: a session, and the entry of it that the ref pins, "" for none."""

    session: str
    entry: str = ""

    def __str__(self) -> str:
        return f"{self.session}@{self.entry}" if self.entry else self.session


class Ref(NamedTuple):
    """A name and what it points to."""

    name: str
    target: RefTarget


class RefUpdate(NamedTuple):
    """One update as the ref log has it: None as ``old`` is a creation, as ``new`` a deletion; ``time`` is canonical."""

    name: str
    old: RefTarget | None
    new: RefTarget | None
    time: str
    reason: str


class Pin(NamedTuple):
    """An entry that a ref pins, and the session it was pinned in: its id and, raw, its birth."""

    name: str
    session: str
    birth: bytes
    entry: str


class Held(NamedTuple):
    """What a ref holds: a target, the birth of the session meant (16 bytes), the number of the update that set it."""

    target: RefTarget
    birth: bytes
    number: int


class LogRecord(NamedTuple):
    """An update under its number."""

    number: int
    update: RefUpdate


def _sealed(members: dict[str, Any]) -> bytes:
    line = canonical(members)
    return b"%s\t%08x\n" % (line, zlib.crc32(line))


def _opened(line: bytes, what: str) -> Any:
    """The members of a line without its LF."""
    body, tab, check = line.rpartition(b"\t")
    if not tab or check != b"%08x" % zlib.crc32(body):
        raise Corrupt(f"{what} fails its checksum")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Corrupt(f"{what} is no JSON") from error


def encode_ref(name: str, held: Held) -> bytes:
    """The bytes of a ref's file."""
    target = held.target
    members = {"name": name, "session": target.session, "birth": held.birth.hex(), "number": held.number}
    return _sealed({**members, "entry": target.entry} if target.entry else members)


def decode_ref(name: str, data: bytes) -> Held:
    """What a ref's file holds; Corrupt when it cannot be read, or is another ref's."""
    line, end, rest = data.partition(b"\n")
    if rest or not end:
        raise Corrupt("the ref is not one line")
    members = _opened(line, "the ref")
    try:
        own, number, birth = members["name"], members["number"], bytes.fromhex(members["birth"])
        target = _target(members)
    except (KeyError, TypeError, ValueError) as error:
        raise Corrupt("the ref lacks what a ref has") from error
    if target is None or len(birth) != _BIRTH or type(number) is not int or number < 1:
        raise Corrupt("the ref holds what no ref does")
    if own != name:
        raise Corrupt(f"the file holds the ref {own!r:.80}")
    return Held(target, birth, number)


def encode_record(record: LogRecord) -> bytes:
    """The line of a log record, its LF behind it."""
    _, old, new, time, reason = record.update
    return _sealed(
        {"number": record.number, "old": _members(old), "new": _members(new), "time": time, "reason": reason}
    )


def decode_record(name: str, line: bytes) -> LogRecord:
    """The record in a line of the log of ``name``, without its LF; Corrupt when it cannot be read."""
    members = _opened(line, "a record of the ref log")
    try:
        number, time, reason = members["number"], members["time"], members["reason"]
        old, new = _target(members["old"]), _target(members["new"])
    except (KeyError, TypeError, ValueError) as error:
        raise Corrupt("a record of the ref log lacks what one has") from error
    if type(number) is not int or not isinstance(reason, str) or not isinstance(time, str) or not is_canonical_ts(time):
        raise Corrupt("a record of the ref log holds what none does")
    return LogRecord(number, RefUpdate(name, old, new, time, reason))


def _members(target: RefTarget | None) -> dict[str, str] | None:
    if target is None:
        return None
    return {"session": target.session, **({"entry": target.entry} if target.entry else {})}


def _target(members: Any) -> RefTarget | None:
    if members is None:
        return None
    session, entry = members["session"], members.get("entry", "")
    if not isinstance(session, str) or not session or not (entry == "" or is_hash(entry)):
        raise ValueError("no target")
    return RefTarget(session, entry)

"""The first line of a session: what it is, who wrote it, what its writer promises (format.md §3, §11).

A header is its own members, kept as they are, with typed access as a view over them; a member in another form than the
format's reads as absent. Owns the format versions, the payload profile and the incarnation hash. Knows nothing of
entries, and fills nothing in: ids and times are handed to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.given import AnyPath, as_list, as_object, as_path, require
from agentsession_cas.core.identity import hash_bytes, is_hash
from agentsession_cas.core.parsing import parse, parse_trusted
from agentsession_cas.core.reading import text
from agentsession_cas.core.required import is_extension
from agentsession_cas.core.timestamps import canonical_ts
from agentsession_cas.errors import BadHeader, BadTimestamp, NoRaise, RedactedFrom, UnsupportedFormat

__all__ = [
    "ALL_RECORDS",
    "FORMAT",
    "FORMAT_MINOR",
    "PAYLOAD",
    "Harness",
    "Header",
    "RedactedOrigin",
    "check_new",
    "format_of",
    "new_header",
    "parse_format",
]

FORMAT_MINOR: Final = 14
FORMAT: Final = f"agentsession/0.{FORMAT_MINOR}"
"""The format this package writes."""
PAYLOAD: Final = "openresponses/2026-04-24"
ALL_RECORDS: Final = ("run", "dispatch", "decision")
"""The record types a harness that runs the loop itself can promise; ``queued`` may be added."""

HASHED_MINOR: Final = 5
"""From this minor on an entry's id is its hash; earlier files are migrated (format.md §11)."""
REDACTION_MINOR: Final = 13
"""From this minor on ``redacted_from`` and ``redacted`` mean something (format.md §10)."""

_FORMAT = re.compile(r"agentsession/(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)")
_PAYLOAD = re.compile(r"openresponses/[0-9]{4}-[0-9]{2}-[0-9]{2}")
_PROMISED: Final = frozenset({*ALL_RECORDS, "queued"})


@dataclass(frozen=True, slots=True)
class Harness:
    """The program that writes a session."""

    name: str
    version: str = ""


class RedactedOrigin(NamedTuple):
    """What a redacted session was made from: the original's id, and the profile or ""."""

    session: str
    profile: str


def format_of(minor: int) -> str:
    """The name of a minor of the one major this package knows."""
    return f"agentsession/0.{minor}"


def parse_format(text: str) -> tuple[int, int]:
    """Major and minor of a format name. Raises UnsupportedFormat for what names none (format.md §11)."""
    match = _FORMAT.fullmatch(text)
    if match is None:
        raise UnsupportedFormat(f"{text!r} is not a session format; this package reads 0.1 to 0.{FORMAT_MINOR}")
    return int(match[1]), int(match[2])


class Header:
    """A header, line-backed and immutable. Equal to another when their lines are."""

    __slots__ = ("_line", "_members", "format", "minor")

    def __init__(self, members: dict[str, Any]) -> None:
        self._members = members
        self._line: bytes | None = None
        _check(members)
        self.format: str = members["format"]
        self.minor = parse_format(self.format)[1]
        self._check_origin()

    @classmethod
    def parse(cls, source: bytes | Mapping[str, Any]) -> Header:
        """Read a header line, or take the members of one, and check it (format.md §3).

        Raises BadJSON for bytes or values that fail the I-JSON test, BadHeader for a header that lacks a member or
        holds one of the wrong kind, UnsupportedFormat for a format or a payload this package does not read,
        RedactedFrom.
        """
        members = parse(source) if isinstance(source, bytes) else dict(source)
        if not isinstance(members, dict):
            raise BadHeader("a header is a JSON object")
        header = cls(members)
        if not isinstance(source, bytes):
            # A copy of its own: what the caller does with its values afterwards changes nothing here.
            header._members = parse_trusted(header.line)
        return header

    @property
    def line(self) -> bytes:
        """The canonical bytes of the header, without its LF."""
        if self._line is None:
            self._line = canonical(self._members)
        return self._line

    @property
    def ident(self) -> str:
        """The incarnation: the hash of every member but ``format`` (format.md §3)."""
        return hash_bytes(canonical({name: value for name, value in self._members.items() if name != "format"}))

    @property
    def id(self) -> str:
        """The session id."""
        return str(self._members["id"])

    @property
    def created_at(self) -> str:
        """When the session began, as written: an RFC 3339 time."""
        return str(self._members["created_at"])

    @property
    def payload(self) -> str:
        """The payload profile."""
        return str(self._members["payload"])

    @property
    def harness(self) -> Harness | None:
        """The program that writes the session."""
        harness = self._members.get("harness")
        if not isinstance(harness, dict) or not text(harness, "name"):
            return None
        return Harness(harness["name"], text(harness, "version"))

    @property
    def records(self) -> tuple[str, ...]:
        """The record types the writer promises to write whenever their event occurs."""
        records = self._members.get("records")
        return tuple(name for name in records if isinstance(name, str)) if isinstance(records, list) else ()

    @property
    def cwd(self) -> str:
        """The working directory, or ""."""
        return text(self._members, "cwd")

    @property
    def parent_session(self) -> str:
        """The session this one came from, or ""."""
        return text(self._members, "parent_session")

    @property
    def spawned_by(self) -> str:
        """The call_id of the parent's call that spawned a subsession, or ""."""
        return text(self._members, "spawned_by")

    @property
    def base(self) -> str:
        """The entry a fork continues from, or ""."""
        return text(self._members, "base")

    @property
    def media(self) -> str:
        """``inline`` or ``sidecar``."""
        return "sidecar" if self._members.get("media") == "sidecar" else "inline"

    @property
    def redacted(self) -> bool:
        """Whether this is a redacted session."""
        return self._members.get("redacted") is True

    @property
    def redacted_from(self) -> RedactedOrigin | None:
        """What a redacted session was made from; None before 0.13, and for a member in another form."""
        origin = self._members.get("redacted_from")
        if self.minor < REDACTION_MINOR or not isinstance(origin, dict) or not text(origin, "session"):
            return None
        return RedactedOrigin(origin["session"], text(origin, "profile"))

    def members(self) -> dict[str, Any]:
        """Every member, as a dict of its own."""
        members: dict[str, Any] = parse_trusted(self.line)
        return members

    def promises(self, type_: str) -> bool:
        """Whether the absence of an entry of that type means its event did not happen."""
        return type_ in self.records

    def raised(self, format_: str = FORMAT) -> Header:
        """This header at ``format_``, or itself when it is no earlier: a format is never lowered (format.md §11).

        Raises NoRaise for one from before 0.13 that holds ``redacted_from``, which the raise would give a meaning.
        """
        minor = FORMAT_MINOR if format_ == FORMAT else parse_format(format_)[1]
        if minor <= self.minor:
            return self
        if self.minor < REDACTION_MINOR <= minor and "redacted_from" in self._members:
            raise NoRaise(
                f"a header of {self.format} that holds redacted_from is not raised to {format_}",
                where=f"session {self.id}",
                next_step="continue it in a new session",
            )
        return Header({**self._members, "format": format_})

    def _check_origin(self) -> None:
        origin = self.redacted_from
        if origin is None:
            return
        if not self.redacted:
            raise RedactedFrom("redacted_from on a session that is not redacted", where="/redacted_from")
        if origin.session == self.id:
            raise RedactedFrom("redacted_from names the session itself", where="/redacted_from/session")

    def __eq__(self, other: object) -> bool:
        return self.line == other.line if isinstance(other, Header) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.line)

    def __repr__(self) -> str:
        return f"Header({self.id}, {self.format})"


def new_header(
    *,
    id: str,
    created_at: str | datetime,
    format: str = FORMAT,
    payload: str = PAYLOAD,
    harness: Harness | None = None,
    records: Iterable[str] = (),
    cwd: AnyPath = "",
    parent_session: str = "",
    spawned_by: str = "",
    base: str = "",
    media: str = "inline",
    redacted: bool = False,
    redacted_from: Mapping[str, Any] | None = None,
    extra: Mapping[str, Any] | None = None,
) -> Header:
    """A header for a session that begins now (format.md §3). What is empty is not written.

    ``created_at`` is respelled as a ``ts``, ``cwd`` may be a ``PathLike``; ``extra`` holds members the format does not
    define. Raises BadInput for a value of another kind, BadHeader, BadTimestamp, RedactedFrom, UnsupportedFormat, and
    BadJSON for a value JSON cannot carry.
    """
    members: dict[str, Any] = {
        "type": "session",
        "format": format,
        "id": id,
        "created_at": canonical_ts(created_at),
        "payload": payload,
    }
    optional: dict[str, Any] = {
        "harness": None if harness is None else _harness_members(harness),
        "records": as_list(records, "records"),
        "cwd": cwd and as_path(cwd, "cwd"),
        "parent_session": parent_session,
        "spawned_by": spawned_by,
        "base": base,
        "media": "" if media == "inline" else media,
        "redacted": redacted,
        "redacted_from": None if redacted_from is None else as_object(redacted_from, "redacted_from"),
    }
    extra = as_object(extra or {}, "extra")
    for name in extra:
        if name in members or name in optional:
            raise BadHeader(f"{name} is a member of the format", where=f"/{name}", next_step="give it by its own name")
    # An original that was named by nothing is written, and refused below: it is not the same as none.
    members.update((name, value) for name, value in optional.items() if value or value == {})
    members.update(extra)
    header = Header.parse(members)
    check_new(header)
    return header


def check_new(header: Header) -> None:
    """Raise what a writer may not begin a session with, though a reader takes it (format.md §3).

    RedactedFrom for a ``redacted_from`` that names no original; BadHeader for a ``media``, a ``harness`` or ``records``
    in another form than the format's.
    """
    members = header.members()
    if "redacted_from" in members and header.redacted_from is None and header.minor >= REDACTION_MINOR:
        raise RedactedFrom("redacted_from names no session", where="/redacted_from")
    if members.get("media", header.media) != header.media:
        raise BadHeader(f"media is inline or sidecar, not {members['media']!r}", where="/media")
    if "harness" in members and header.harness is None:
        raise BadHeader("the harness has no name", where="/harness")
    if len(members.get("records", ())) != len(header.records):
        raise BadHeader("records is a list of record types", where="/records")
    for name in header.records:
        if name not in _PROMISED and not is_extension(name):
            raise BadHeader(f"{name!r:.40} is no record type a writer can promise", where="/records")


def _harness_members(harness: Harness) -> dict[str, str]:
    require(harness, Harness, "harness", 'give Harness("my-agent", "1.0")')
    return {"name": harness.name, "version": harness.version} if harness.version else {"name": harness.name}


def _check(members: Mapping[str, Any]) -> None:
    """Check what every header holds, the format first: nothing else may be judged by rules it was not written under."""
    if members.get("type") != "session":
        raise BadHeader("the first line is no session header", where="/type", next_step="is this a session file?")
    format_ = members.get("format")
    if not isinstance(format_, str):
        raise BadHeader("the header names no format", where="/format")
    major, minor = parse_format(format_)
    if major != 0 or not 1 <= minor <= FORMAT_MINOR:
        raise UnsupportedFormat(
            f"the session has format {format_}; this package reads agentsession/0.1 to {FORMAT}",
            where="/format",
            next_step="read it with a package that knows its format",
        )
    if not text(members, "id"):
        raise BadHeader("the header has no id", where="/id")
    created_at = members.get("created_at")
    if not isinstance(created_at, str):
        raise BadHeader("the header has no created_at", where="/created_at")
    try:
        canonical_ts(created_at)
    except BadTimestamp as error:
        raise BadHeader(f"created_at is no RFC 3339 time: {created_at!r}", where="/created_at") from error
    payload = members.get("payload")
    if not isinstance(payload, str):
        raise BadHeader("the header names no payload", where="/payload")
    if _PAYLOAD.fullmatch(payload) is None:
        raise UnsupportedFormat(
            f"the session has payload {payload!r}; this package reads openresponses/<date>", where="/payload"
        )
    base = members.get("base")
    if base is not None and base != "" and minor >= HASHED_MINOR and not is_hash(base):
        raise BadHeader("the base is not an entry id", where="/base")

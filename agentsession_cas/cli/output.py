"""What the command line prints, and how (cli.md: data on stdout, everything else on stderr).

Owns the two forms of an answer, text for people and JSON with ``"schema": 1``, and the terminal: colour, pager,
progress, a reader that went away. Invariants: text from a session reaches a terminal only through :func:`safe`, so that
no id and no message can move a cursor or hide a line; every write of stdout happens here.
"""

from __future__ import annotations

import json
import os
import re
import select
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

import click

__all__ = [
    "ClosedPipe",
    "Output",
    "Part",
    "Progress",
    "Styled",
    "bold",
    "clip",
    "counted",
    "dim",
    "drop_stdout",
    "good",
    "pretty",
    "safe",
    "settle_streams",
    "size",
    "warn",
    "width",
    "writing",
]

SCHEMA: Final = 1
_KIBI: Final = 1024
_UNSAFE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


class ClosedPipe(Exception):
    """Whoever read stdout went away: the command ends without a word."""


class Styled(NamedTuple):
    """Text in a style; the text is made safe like any other."""

    text: str
    colour: str = ""
    bold: bool = False
    dim: bool = False


Part = str | Styled
"""A piece of a line."""


Progress = Callable[[int, int], None]
"""Called with how many steps are done, and how many there are."""


def bold(text: str) -> Styled:
    """Text that stands out."""
    return Styled(text, bold=True)


def dim(text: str) -> Styled:
    """Text that stands back."""
    return Styled(text, dim=True)


def good(text: str) -> Styled:
    """Text that says all is well."""
    return Styled(text, colour="green")


def warn(text: str) -> Styled:
    """Text that says something is not."""
    return Styled(text, colour="red", bold=True)


def safe(text: str) -> str:
    """Text on one line, harmless to a terminal: control and direction characters as escapes."""
    return _UNSAFE.sub(_escape, text)


def pretty(value: object) -> str:
    """A JSON value for people to read, harmless to a terminal and still JSON."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return _UNSAFE.sub(lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    names = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return names.get(found[0]) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def counted(count: int, one: str, many: str = "") -> str:
    """A number of things, in words; ``many`` is ``one`` with an s unless it is given."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def size(count: int) -> str:
    """Bytes as people read them."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < _KIBI:
            return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= _KIBI
    return f"{value:.1f} TiB"


def width(text: str) -> int:
    """How many columns a line of text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text
    )


def clip(text: str, columns: int) -> str:
    """Text on one line, in at most so many columns, white space run together."""
    text = safe(" ".join(text.split()))
    if width(text) <= columns:
        return text
    kept: list[str] = []
    left = columns - 1
    for each in text:
        left -= width(each)
        if left < 0:
            break
        kept.append(each)
    return "".join(kept) + "…"


def settle_streams() -> None:
    """Make the standard streams fit to write to: an absent one goes nowhere, what it cannot encode is escaped."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


class Output:
    """Where a command's answer goes: ``as_json`` picks its form, ``quiet`` leaves out all but data and errors."""

    def __init__(self, *, as_json: bool = False, quiet: bool = False, progress: bool = True) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self.progress_wanted = progress
        self._text_is_last = False

    def emit(self, answer: Mapping[str, Any]) -> None:
        """Print one JSON object, on a line of its own."""
        text = json.dumps({"schema": SCHEMA, **answer}, ensure_ascii=False, separators=(",", ":"))
        self.data(text.encode("utf-8", "backslashreplace") + b"\n")

    def data(self, data: bytes) -> None:
        """Write bytes to stdout as they are."""
        with writing():
            if self._text_is_last:
                sys.stdout.flush()
                self._text_is_last = False
            sys.stdout.buffer.write(data)

    def line(self, *parts: Part) -> None:
        """Print a line for people."""
        with writing():
            self._text_is_last = True
            print(_painted(parts))

    def flush(self) -> None:
        """Let a reader have what was printed so far."""
        with writing():
            sys.stdout.flush()

    def is_heard(self) -> bool:
        """Whether the reader of stdout is still there, as far as can be told without a word to it."""
        try:
            ear = select.poll()
            ear.register(sys.stdout.fileno(), 0)
            return not ear.poll(0)
        except (OSError, ValueError):
            return True

    def say(self, *parts: Part) -> None:
        """Print a line that only confirms what was asked for: left out under ``--quiet``."""
        if not self.quiet:
            self.line(*parts)

    def page(self, lines: Iterable[tuple[Part, ...]]) -> None:
        """Print lines for people, through the pager when stdout is a terminal."""
        texts = (_painted(parts) + "\n" for parts in lines)
        if sys.stdout.isatty() and sys.stdin is not None and sys.stdin.isatty():
            os.environ.setdefault("LESS", "FRX")
            click.echo_via_pager(texts, color=_colour())
            return
        with writing():
            self._text_is_last = True
            for text in texts:
                sys.stdout.write(text)

    def note(self, text: str) -> None:
        """Say something beside the answer, on stderr."""
        if not self.quiet:
            self.flush()
            print(safe(text), file=sys.stderr, flush=True)

    @contextmanager
    def progress(self, label: str) -> Iterator[Progress | None]:
        """Show how far something is, on a terminal's stderr; None when nobody watches."""
        if self.quiet or not self.progress_wanted or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
            yield None
            return
        from rich.console import Console
        from rich.progress import Progress as Bar

        with Bar(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(label, total=None)

            def show(done: int, total: int) -> None:
                bar.update(task, completed=done, total=total)

            yield show


@contextmanager
def writing() -> Iterator[None]:
    """Write to stdout: a reader that went away is :class:`ClosedPipe`, a disk that is full a DiskError."""
    try:
        yield
    except BrokenPipeError as error:
        drop_stdout()
        raise ClosedPipe from error
    except OSError as error:
        from agentsession_cas.errors import DiskError

        drop_stdout()
        raise DiskError(f"the answer cannot be written: {error.strerror or error}", where="stdout") from error


def drop_stdout() -> None:
    """Send what is still to be written nowhere: the interpreter flushes stdout once more on its way out."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _painted(parts: Iterable[Part]) -> str:
    colour = _colour()
    return "".join(_paint(part, colour) if isinstance(part, Styled) else safe(part) for part in parts)


def _paint(part: Styled, colour: bool) -> str:
    text = safe(part.text)
    if not colour or not text:
        return text
    return click.style(text, fg=part.colour or None, bold=part.bold or None, dim=part.dim or None)


def _colour() -> bool:
    """Whether to colour (https://no-color.org, https://force-color.org): NO_COLOR wins, a dumb terminal has none."""
    if os.environ.get("NO_COLOR"):
        return False
    forced = os.environ.get("FORCE_COLOR")
    if forced:
        return forced != "0"
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"

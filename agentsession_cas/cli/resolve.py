"""What the words on a command line stand for: which store, which session or file, which entry (cli.md).

Owns the order in which a store is looked for, and the short forms of a session and of an entry. Writes nothing. A short
form that fits more than one thing is refused, never guessed at.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING, BinaryIO, Final

from agentsession_cas.core.given import require_text
from agentsession_cas.errors import DiskError, NoEntry, NoFile, NoSession, NoStore, NotRegular, Usage

if TYPE_CHECKING:
    from agentsession_cas.core.source import EntrySource
    from agentsession_cas.core.tree import Session
    from agentsession_cas.store import Store

__all__ = [
    "REF",
    "STDIN",
    "STORE_DIRECTORY",
    "STORE_VARIABLE",
    "data_directory",
    "find_store",
    "given_id",
    "is_file_argument",
    "is_plain_file",
    "make_way",
    "open_file",
    "open_store",
    "resolve_entry",
    "resolve_session",
    "resolve_target",
]

STDIN: Final = "-"
REF: Final = "ref:"
"""What a session begins with that is named by a ref."""
STORE_VARIABLE: Final = "AGENTSESSION_STORE"
STORE_DIRECTORY: Final = ".agentsession"
"""What ``init`` without a path makes, and what is looked for here and above, as git does with ``.git``."""

_MAKE_ONE: Final = f"make one with `agentsession-cas init`, or name one with --store or {STORE_VARIABLE}"
_PREFIX_MIN: Final = 4
_MORE: Final = f"write at least {_PREFIX_MIN} characters of it"
_SHOWN: Final = 3
_HASH: Final = "sha256:"
_HEX: Final = re.compile("[0-9a-f]+")
_ANCESTOR: Final = re.compile(r"(.+?)~([0-9]*)", re.DOTALL)


def find_store(given: str) -> str:
    """The path of the store to use: the one given, else the environment's, else the nearest, else the user's own.

    Raises NoStore when nothing was named and none is found; a path that was named is not looked at.
    """
    named = given or os.environ.get(STORE_VARIABLE, "")
    if named:
        return named
    try:
        start = directory = os.getcwd()
    except FileNotFoundError as error:
        raise NoStore("the working directory is gone", next_step="name a store with --store") from error
    while True:
        for candidate in (directory, os.path.join(directory, STORE_DIRECTORY)):
            if _is_store(candidate):
                return candidate
        above = os.path.dirname(directory)
        if above == directory:
            break
        directory = above
    own = data_directory()
    if _is_store(own):
        return own
    raise NoStore("there is no store here, above, or among your own data", where=f"{start}, {own}", next_step=_MAKE_ONE)


def open_store(given: str, *, write: bool, allow_network_fs: bool = False) -> Store:
    """Open the store to use, as :func:`find_store` finds it. Raises NoStore, and what opening a store does."""
    from agentsession_cas.store import Store

    path = find_store(given)
    try:
        return Store.open(path, read_only=not write, allow_network_fs=allow_network_fs)
    except NoStore as error:
        error.next_step = _MAKE_ONE.replace("init", f"init {quote(path)}")
        raise


def make_way(path: str) -> None:
    """Make the directories that a new store is to lie in. Raises StoreExists, and makes none, inside a store."""
    from agentsession_cas.effects.host import real_host
    from agentsession_cas.layout import require_outside

    require_outside(real_host().fs, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)


def given_id(option: str | None) -> str:
    """The id that ``--id`` gives a session to be made, "" where the option was left out. Raises BadInput for no id."""
    return "" if option is None else require_text(option, "a session id", "leave --id out, and an id is made")


def data_directory() -> str:
    """Where this platform keeps a user's data: the store of last resort."""
    home = os.path.expanduser("~")
    if sys.platform == "darwin":
        base = os.path.join(home, "Library", "Application Support")
    elif os.name == "nt":
        base = os.environ.get("LOCALAPPDATA") or os.path.join(home, "AppData", "Local")
    else:
        named = os.environ.get("XDG_DATA_HOME", "")
        base = named if os.path.isabs(named) else os.path.join(home, ".local", "share")
    return os.path.join(base, "agentsession")


def _is_store(path: str) -> bool:
    return os.path.isfile(os.path.join(path, "store.json")) and os.path.isdir(os.path.join(path, "sessions"))


def is_plain_file(argument: str) -> bool:
    """Whether an argument names a file whatever the store holds: ``-`` or ``*.jsonl``."""
    return argument == STDIN or argument.endswith(".jsonl")


def is_file_argument(argument: str, store: Store | None) -> bool:
    """Whether an argument that may name either names a file: plainly, or as a path that is no session's id.

    What begins as only paths do is one, whether it leads anywhere or not. A directory is none where there is a store:
    it may be called as a session begins.
    """
    if is_plain_file(argument):
        return True
    is_path = argument.startswith(("./", "../", "/")) or (
        os.path.exists(argument) and (store is None or not os.path.isdir(argument))
    )
    return is_path and (store is None or not store.holds(argument))


def open_file(argument: str) -> BinaryIO:
    """A file to read, or stdin for ``-``. Raises NoFile, NotRegular, DiskError."""
    if argument == STDIN:
        if sys.stdin is None:
            raise NoFile("there is no standard input", where="stdin")
        return sys.stdin.buffer
    try:
        return open(argument, "rb")
    except FileNotFoundError as error:
        raise NoFile("there is no such file", where=argument) from error
    except IsADirectoryError as error:
        raise NotRegular("this is a directory, not a file", where=argument, next_step="name a file in it") from error
    except (OSError, ValueError) as error:
        raise DiskError(f"the file cannot be opened: {_reason(error)}", where=argument) from error


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def resolve_session(store: Store, argument: str) -> str:
    """The id of the session an argument names. Raises as :func:`resolve_target` does."""
    return resolve_target(store, argument)[0]


def resolve_target(store: Store, argument: str) -> tuple[str, str]:
    """The session an argument names, and the entry it pins, "" for none: an id, a unique prefix of one, ``ref:NAME``.

    Raises NoSession, also for a ref whose session is gone, NoRef, RefName, Usage.
    """
    if not argument or not _is_text(argument):
        raise Usage("a session id is text, in UTF-8", where=argument, next_step="see `agentsession-cas list`")
    if store.holds(argument):
        return argument, ""
    if argument.startswith(REF):
        return store.resolve_ref(argument.removeprefix(REF))
    found = sorted(each for each in store.session_ids() if each.startswith(argument))
    if found and len(argument) < _PREFIX_MIN:
        raise NoSession("the beginning of an id is too short", where=argument, next_step=_MORE)
    if found:
        return _only(found, argument, "sessions"), ""
    raise NoSession("the store holds no such session", where=argument, next_step="see `agentsession-cas list`")


def resolve_entry(session: Session, argument: str) -> str:
    """The id of the entry an argument names, "" for the universal root (cli.md).

    An id, a unique prefix of its hex, a ``legacy_id``, ``HEAD``, ``ROOT``, or one of these with ``~n`` for its n-th
    ancestor. Raises NoEntry, Usage.
    """
    if not _is_text(argument):
        raise Usage("an entry is named in UTF-8", where=argument)
    position = _find(session, argument)
    if position is None:
        ancestor = _ANCESTOR.fullmatch(argument)
        start = _find(session, ancestor[1]) if ancestor else None
        if ancestor is None or start is None:
            raise NoEntry("the session holds no such entry", where=argument, next_step="see `agentsession-cas log`")
        position = _ancestor(session.source, start, int(ancestor[2] or 1), argument)
    return session.source.entry_id(position) if position >= 0 else ""


def _find(session: Session, argument: str) -> int | None:
    """The position an argument without ``~`` names, -1 for the universal root; None when there is no such entry."""
    source = session.source
    if argument == "HEAD":
        return session.leaf_position
    if argument == "ROOT":
        return -1
    digits = argument.removeprefix(_HASH)
    is_hex = _HEX.fullmatch(digits) is not None
    position = source.find(_HASH + digits) if is_hex and len(digits) == 64 else -1
    if position < 0 and argument:
        position = source.find_legacy(argument)
    if position >= 0:
        return position
    if not is_hex or len(digits) >= 64:
        return None
    prefix = _HASH + digits
    found = [entry_id for at in range(len(source)) if (entry_id := source.entry_id(at)).startswith(prefix)]
    if found and len(digits) < _PREFIX_MIN:
        raise NoEntry("the beginning of an id is too short", where=argument, next_step=_MORE)
    return source.find(_only(found, argument, "entries")) if found else None


def _ancestor(source: EntrySource, position: int, count: int, argument: str) -> int:
    for _ in range(count):
        if position < 0:
            raise NoEntry("the path is shorter than that", where=argument, next_step="see `agentsession-cas log`")
        position = source.parent(position)
    return position


def _only(found: Sequence[str], argument: str, what: str) -> str:
    if len(found) == 1:
        return found[0]
    some = ", ".join(found[:_SHOWN]) + (", …" if len(found) > _SHOWN else "")
    raise Usage(f"{argument!r} fits {len(found)} {what}: {some}", next_step="write more of it")


def _is_text(argument: str) -> bool:
    """Whether an argument was UTF-8: what was not arrives as lone surrogates."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True

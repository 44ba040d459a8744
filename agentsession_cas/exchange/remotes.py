"""Other stores by name: the ``[remotes]`` table of ``config.toml``, which people edit too (store.md Part B).

Read as TOML; written a line at a time, so that everything else in the file stays as somebody wrote it. A change that
does not read back as meant is not made: a file written some other way is for its author to edit.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any, Final

import orjson

from agentsession_cas.effects.durable import swap
from agentsession_cas.errors import BadConfig, BadInput, NoRemote, RemoteExists
from agentsession_cas.layout import Layout

__all__ = ["CONFIG_NAME", "as_address", "check_remote_name", "read_remotes", "set_remote", "unset_remote"]

CONFIG_NAME: Final = "config.toml"
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_LINES: Final = re.compile(r"[^\n]*\n|[^\n]+")
_TABLE: Final = re.compile(r"\s*\[")
_HEADER: Final = re.compile(r"\s*\[\s*remotes\s*\]\s*(#.*)?")
_KEY: Final = re.compile(r"""\s*("[^"]*"|'[^']*'|[A-Za-z0-9_-]+)\s*=""")


def check_remote_name(name: object) -> str:
    """A remote's name. Raises BadInput for what is none."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    raise BadInput(
        f"{name!r:.60} is no name for a remote", next_step="use letters, digits, '.', '_' and '-', at most 100"
    )


def as_address(path: str) -> str:
    """A path as ``config.toml`` can hold it. Raises BadInput for one that is not UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise BadInput(
            "where the remote is has to be a path in UTF-8", where=path, next_step="rename it, or link to it"
        ) from error
    return path


def read_remotes(layout: Layout) -> dict[str, str]:
    """Every remote: where its store is, by name. Raises BadConfig."""
    return _remotes(_text(layout), _path(layout))


def set_remote(layout: Layout, name: str, address: str) -> bool:
    """Name a store, durably; whether that is new. Raises RemoteExists for a name of another store, BadConfig."""
    text = _text(layout)
    known = _remotes(text, _path(layout))
    if name in known:
        if known[name] != address:
            raise RemoteExists(
                f"the remote is {known[name]}", where=name, next_step="remove it first, or take another name"
            )
        return False
    key = name if _BARE.fullmatch(name) else f'"{name}"'
    quoted = orjson.dumps(address).decode().replace("\x7f", "\\u007f")  # the one that JSON lets stand and TOML does not
    line = f"{key} = {quoted}\n"
    lines = _LINES.findall(text)
    at = next((index for index, each in enumerate(lines) if _HEADER.fullmatch(each.rstrip("\r\n"))), -1)
    if at >= 0:
        end = next((index for index in range(at + 1, len(lines)) if _TABLE.match(lines[index])), len(lines))
        while end > at + 1 and not lines[end - 1].strip():
            end -= 1
        lines.insert(end, line)
        if not lines[end - 1].endswith("\n"):
            lines[end - 1] += "\n"
    else:
        gap = "" if not text or text.endswith("\n\n") else "\n" if text.endswith("\n") else "\n\n"
        lines += [gap, "[remotes]\n", line]
    _write(layout, "".join(lines), {**known, name: address})
    return True


def unset_remote(layout: Layout, name: str) -> None:
    """Forget a remote, durably. Raises NoRemote, BadConfig."""
    text = _text(layout)
    known = _remotes(text, _path(layout))
    if name not in known:
        raise NoRemote("the store knows no remote of that name", where=name)
    inside, kept = False, []
    for line in _LINES.findall(text):
        if _TABLE.match(line):
            inside = _HEADER.fullmatch(line.rstrip("\r\n")) is not None
        key = _KEY.match(line) if inside else None
        if key is None or key[1].strip("\"'") != name:
            kept.append(line)
    _write(layout, "".join(kept), {each: where for each, where in known.items() if each != name})


def _path(layout: Layout) -> str:
    return f"{layout.root}/{CONFIG_NAME}"


def _text(layout: Layout) -> str:
    data = layout.host.fs.read(_path(layout)) or b""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadConfig("the configuration is no UTF-8", where=_path(layout), next_step="mend the file") from error


def _remotes(text: str, path: str) -> dict[str, str]:
    try:
        config: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadConfig(f"the configuration is no TOML: {error}", where=path, next_step="mend the file") from error
    remotes = config.get("remotes", {})
    if not isinstance(remotes, dict) or not all(isinstance(each, str) and each for each in remotes.values()):
        raise BadConfig(
            "remotes is no table of names and paths", where=path, next_step='write [remotes], then name = "/path"'
        )
    return remotes


def _write(layout: Layout, text: str, meant: dict[str, str]) -> None:
    """Put the new text in place, if it says what is meant."""
    path = _path(layout)
    try:
        says = _remotes(text, path)
    except BadConfig:
        says = {}
    if says != meant:
        raise BadConfig(
            "the remotes are not written a line each under [remotes]", where=path, next_step="edit the file by hand"
        )
    swap(layout.host, layout.tmp, path, text.encode())

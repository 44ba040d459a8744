"""Values as a caller handed them over, looked at once, at the public door.

What is of another kind than asked for is refused with its name and with what it was; behind the door nothing looks
again. Owns what passes for a JSON object (a mapping, or an object of an SDK that can say itself as one) and for a path.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol, TypeVar

from agentsession_cas.errors import BadInput

__all__ = [
    "AnyPath",
    "JsonObject",
    "as_callback",
    "as_list",
    "as_object",
    "as_path",
    "require",
    "require_callback",
    "require_text",
]

_SECONDS_MAX: Final = 1000 * 366 * 86400
_UNSPELT: Final = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""Half a surrogate pair that stands for no byte of a name either: no system has a name for it."""

_Kind = TypeVar("_Kind")
_Callback = TypeVar("_Callback", bound=Callable[..., object])


class _ModelDump(Protocol):
    def model_dump(self, *, mode: str) -> Any: ...


class _ToDict(Protocol):
    def to_dict(self) -> Any: ...


JsonObject = Mapping[str, Any] | _ModelDump | _ToDict
"""A JSON object: its members, or an object that gives them (pydantic's ``model_dump``, or ``to_dict``)."""


class _PathLike(Protocol):
    def __fspath__(self) -> str: ...


AnyPath = str | _PathLike
"""A path: a string, or a ``pathlib.Path`` or its like."""

_DUMPS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (("model_dump", {"mode": "json"}), ("to_dict", {}))


def require(value: object, kind: type[_Kind], name: str, next_step: str = "") -> _Kind:
    """``value``, which has to be of that kind. Raises BadInput."""
    if isinstance(value, kind):
        return value
    raise BadInput(f"{name} is a {kind.__name__}, not {_told(value)}", next_step=next_step)


def require_text(value: object, name: str, next_step: str = "") -> str:
    """``value``, which has to be a string that is not empty. Raises BadInput."""
    if isinstance(value, str) and value:
        return value
    raise BadInput(f"{name} is a non-empty string, not {_told(value)}", next_step=next_step)


def as_path(value: object, name: str) -> str:
    """A path as a string: one already, or a ``PathLike``. Raises BadInput for anything else, "" included."""
    spelled = getattr(value, "__fspath__", None)
    path = spelled() if callable(spelled) and not isinstance(value, type) else value
    if isinstance(path, str) and path and "\0" not in path and not _UNSPELT.search(path):
        return path
    raise BadInput(f"{name} is a path, not {_told(path)}", next_step="give a string or a pathlib.Path")


def as_object(value: object, name: str) -> dict[str, Any]:
    """A JSON object's members: see :data:`JsonObject`. Raises BadInput."""
    if isinstance(value, Mapping):
        return value if isinstance(value, dict) else dict(value)
    for method, arguments in () if isinstance(value, type) else _DUMPS:
        dump = getattr(value, method, None)
        members = dump(**arguments) if callable(dump) else None
        if isinstance(members, Mapping):
            return dict(members)
    raise BadInput(
        f"{name} is a JSON object, not {_told(value)}", next_step="give a dict, or an object that has model_dump()"
    )


def as_list(value: object, name: str) -> list[Any]:
    """The elements of a list or of anything that gives several; a text or an object is one. Raises BadInput."""
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes, bytearray, Mapping)):
        return list(value)
    raise BadInput(f"{name} is a list, not {_told(value)}", next_step="put it in a list")


def as_callback(value: _Callback | None, name: str) -> _Callback | None:
    """Something to call, or None to call nothing. Raises BadInput."""
    return None if value is None else require_callback(value, name, "give a function, or leave it out")


def require_callback(value: _Callback, name: str, next_step: str = "give a function") -> _Callback:
    """Something to call. Raises BadInput."""
    if callable(value):
        return value
    raise BadInput(f"{name} is called, and cannot be: {_told(value)}", next_step=next_step)


def as_seconds(value: object, name: str) -> float:
    """A number of seconds, not negative, at most a thousand years. Raises BadInput."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= _SECONDS_MAX:
        return float(value)
    raise BadInput(f"{name} is a number of seconds, not {_told(value)}", next_step="give 0 or more")


def _told(value: object) -> str:
    """A value in an error: what it is, and its text when it has little."""
    if value is None:
        return "None"
    if isinstance(value, str):
        return repr(value) if len(value) <= 40 else "a longer text"
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"

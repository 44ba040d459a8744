"""What the views of entries have in common, and composing bodies without empty members."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agentsession_cas.core.entry import Entry
from agentsession_cas.core.given import as_list, as_object
from agentsession_cas.errors import BadEntry

__all__ = [
    "Json",
    "View",
    "composed",
    "need",
    "one_of",
    "own",
    "owned",
]

Json = dict[str, Any]


class View:
    """An entry read as one of its type. Holds nothing but the entry; never changes it."""

    __slots__ = ("entry",)

    def __init__(self, entry: Entry) -> None:
        self.entry = entry

    @property
    def body(self) -> Json:
        """Every member of the body, in whatever form. Shared: do not change it."""
        return self.entry.body

    @property
    def id(self) -> str:
        """The entry's id."""
        return self.entry.id

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.entry.id})"


def composed(required: Mapping[str, Any], extra: Mapping[str, Any] | None = None, /, **optional: Any) -> Json:
    """A body of required members and of those optional ones that are neither None nor "".

    ``extra`` holds members the format does not define. Raises BadEntry for one that it does.
    """
    body = dict(required)
    extra = own("extra", extra) or {}
    for name in extra:
        if name in body or name in optional:
            raise BadEntry(f"{name} is a member of the format", where=f"/{name}", next_step="give it by its own name")
    body.update((name, value) for name, value in optional.items() if value is not None and value != "")
    body.update(extra)
    return body


def own(name: str, value: object) -> Json | None:
    """An object a caller gave, as a dict of its own; None for None. Raises BadInput."""
    return None if value is None else dict(as_object(value, name))


def owned(name: str, values: object) -> list[Json]:
    """A list of objects a caller gave, each as a dict of its own. Raises BadInput."""
    return [dict(as_object(each, f"an element of {name}")) for each in as_list(values, name)]


def need(name: str, value: object) -> str:
    """A string that may not be empty. Raises BadEntry."""
    if not isinstance(value, str) or not value:
        raise BadEntry(f"{name} is a non-empty string, not {value!r:.40}", where=f"/{name}")
    return value


def one_of(name: str, value: str, values: Iterable[str]) -> str:
    """A string out of a closed set. Raises BadEntry."""
    if value not in values:
        raise BadEntry(f"{name} is one of {', '.join(values)}, not {value!r:.40}", where=f"/{name}")
    return value

"""The verb that prints one thing by its hash: ``cat``. Owns where in a store a hash is looked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from agentsession_cas.cli.app import App, command

if TYPE_CHECKING:
    from agentsession_cas.store import Store

__all__ = ["cat_verb"]

_DIGITS: Final = re.compile("[0-9a-f]+")
_PREFIX_MIN: Final = 4
_HASH: Final = "sha256:"
_LOOK: Final = "see `agentsession-cas log`"


class _Thing(NamedTuple):
    kind: str
    hash: str
    data: bytes


@command("cat")
@click.argument("name", metavar="ENTRY|HASH")
def cat_verb(app: App, name: str) -> None:
    """Print an entry as its line, or the bytes of a body or a blob, by its hash or the first digits of it.

    Entries are looked for first, in every session; then bodies, then blobs. What is in a journal is found too.
    """
    import json

    found = _found(app.store(), name)
    if not app.as_json:
        app.out.data(found.data + (b"\n" if found.kind == "entry" else b""))
    elif found.kind == "blob":
        app.out.emit({"kind": found.kind, "hash": found.hash, "size": len(found.data)})
    else:
        app.out.emit({"kind": found.kind, "hash": found.hash, found.kind: json.loads(found.data)})


def _found(store: Store, name: str) -> _Thing:
    """What a name stands for. Raises NoObject, Usage."""
    from agentsession_cas.errors import NoObject, Usage

    digits = name.removeprefix(_HASH)
    if not _DIGITS.fullmatch(digits) or not _PREFIX_MIN <= len(digits) <= 64:
        raise Usage("a hash is 64 hex digits, or at least the first 4 of them", where=name, next_step=_LOOK)
    for kind in (_entries(store, digits), _objects(store, digits)):
        things = {thing.hash: thing for thing in kind}
        if len(things) > 1:
            some = ", ".join(sorted(things)[:4])
            raise Usage(f"{name!r} fits {len(things)}: {some}", next_step="write more of it")
        if things:
            return things.popitem()[1]
    raise NoObject("the store holds nothing of that hash", where=name, next_step=_LOOK)


def _entries(store: Store, digits: str) -> Iterator[_Thing]:
    """The entries whose id, or the bodies of entries whose hash, begins so; ids first."""
    beginning = _HASH + digits
    bodies: list[_Thing] = []
    any_entry = False
    for session_id in store.session_ids():
        session = store.read(session_id)
        if len(digits) == 64 and (position := session.source.find(beginning)) >= 0:
            entry = session.source.entry(position)
            yield _Thing("entry", entry.id, entry.line)
            return
        for entry in session:
            if entry.id.startswith(beginning):
                any_entry = True
                yield _Thing("entry", entry.id, entry.line)
            elif entry.content_hash.startswith(beginning):
                bodies.append(_Thing("content", entry.content_hash, entry.content))
    if not any_entry:
        yield from bodies


def _objects(store: Store, digits: str) -> Iterator[_Thing]:
    """The bodies and blobs that no session needs, or that entries name, whose hash begins so."""
    from agentsession_cas.core.packformat import Space

    for space, kind in ((Space.CONTENTS, "content"), (Space.MEDIA, "blob")):
        found = False
        for location in store.objects.iterate(space):
            if location.digest.hex().startswith(digits):
                found = True
                yield _Thing(kind, _HASH + location.digest.hex(), store.objects.get(space, location.digest))
        if found:
            return

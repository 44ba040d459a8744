"""Trained dictionaries on disk: ``objects/dict`` (store.md Part B).

Owns ``<id>.zdict`` and ``<id>.spare``, two copies of one dictionary, each a zstd frame: without its dictionary a block
is lost, and a disk loses sectors. Files never change. Must not: decide when one is trained, or delete one.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from agentsession_cas.core.zframes import DENSE, FRAME_HEAD_MAX, Dictionary, claimed_size, compress, expand
from agentsession_cas.effects import durable
from agentsession_cas.effects.host import Fs, Host
from agentsession_cas.errors import Corrupt, DiskError, NoFile

__all__ = ["ENDINGS", "Dictionaries"]

ENDINGS: Final = ("zdict", "spare")
"""Of the two copies."""
_NAME: Final = re.compile(r"([0-9a-f]{8})\.(zdict|spare)")


class Dictionaries:
    """The dictionaries of one store. Safe for threads."""

    def __init__(self, fs: Fs, directory: str) -> None:
        self._fs = fs
        self._guard = threading.Lock()
        self._loaded: dict[int, Dictionary] = {}
        self.directory = directory

    def get(self, number: int) -> Dictionary:
        """The dictionary of that id. Raises Corrupt when no copy of it is whole, DiskError."""
        found = self._loaded.get(number)
        if found is None:
            loaded = self._load(number)
            with self._guard:
                found = self._loaded.setdefault(number, loaded)
        return found

    def size(self, number: int) -> int:
        """Bytes of the dictionary of that id, 0 when no copy says."""
        loaded = self._loaded.get(number)
        if loaded is not None:
            return len(loaded.data)
        for ending in ENDINGS:
            with suppress(Corrupt, DiskError):
                return claimed_size((self._fs.read(self.path(number, ending)) or b"")[:FRAME_HEAD_MAX])
        return 0

    def _load(self, number: int) -> Dictionary:
        errors: list[Corrupt] = []
        for ending in ENDINGS:
            try:
                return self.read(number, ending)
            except Corrupt as error:
                errors.append(error)
        raise errors[0]

    def read(self, number: int, ending: str) -> Dictionary:
        """One copy. Raises Corrupt when it is not there or not whole, DiskError."""
        path = self.path(number, ending)
        data = self._fs.read(path)
        if data is None:
            raise Corrupt("a dictionary that blocks were made with is not there", where=path, next_step="run fsck")
        try:
            found = Dictionary(expand(data))
        except Corrupt as error:
            raise Corrupt(error.what, where=path, next_step="run fsck") from error
        if found.id != number:
            raise Corrupt("a dictionary under another's name", where=path, next_step="run fsck")
        return found

    def path(self, number: int, ending: str = ENDINGS[0]) -> str:
        """The file of a copy."""
        return f"{self.directory}/{number:08x}.{ending}"

    def files(self) -> Iterator[tuple[str, int, str]]:
        """Path, id and ending of every file; id 0 for one that does not belong."""
        try:
            names = self._fs.listdir(self.directory)
        except NoFile:
            return
        for name in names:
            found = _NAME.fullmatch(name)
            yield f"{self.directory}/{name}", int(found[1], 16) if found else 0, found[2] if found else ""

    def mend(self, host: Host, tmp_dir: str) -> None:
        """Write the copies anew that are gone or not whole, where the other one is."""
        for number in {number for _, number, _ in self.files() if number}:
            for ending in ENDINGS:
                try:
                    self.read(number, ending)
                except (Corrupt, DiskError):
                    with suppress(Corrupt):
                        self.publish(host, tmp_dir, self._load(number))

    def publish(self, host: Host, tmp_dir: str, dictionary: Dictionary) -> None:
        """Put a dictionary in place, both copies durable on return."""
        durable.ensure_dir(host.fs, self.directory)
        data = compress(dictionary.data, DENSE)
        for ending in ENDINGS:
            durable.publish(host, tmp_dir, self.path(dictionary.id, ending), data)
        host.fs.sync_dir(self.directory)
        with self._guard:
            self._loaded[dictionary.id] = dictionary

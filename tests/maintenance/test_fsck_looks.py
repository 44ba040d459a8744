"""A session is looked at again before it is called damaged, and never called sound when it read in no look."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from agentsession_cas import Store
from agentsession_cas.effects.host import Fs, real_host
from agentsession_cas.errors import DiskError
from tests.helpers.crashes import Through
from tests.helpers.damage import Bench


class Failing(Through):
    """A disk that fails so often to read journals, each time in another way."""

    def __init__(self, inner: Any, times: int) -> None:
        super().__init__(inner)
        self.left = times

    def read(self, path: str) -> bytes | None:
        if path.endswith("/alpha/journal") and self.left:
            self.left -= 1
            raise DiskError(f"trouble, {self.left} to come", where=path)
        return cast(bytes | None, self._inner.read(path))


def found(bench: Bench, times: int) -> tuple[list[str], int]:
    """The codes of what is found, and how much trouble was left."""
    host = real_host()
    fs = Failing(host.fs, times)
    with Store.open(bench.root, host=replace(host, fs=cast(Fs, fs)), read_only=True) as store:
        return [each.code for each in store.fsck().findings], fs.left


def test_what_one_look_finds_and_the_next_does_not_is_not_believed(bench: Bench) -> None:
    assert found(bench, 1) == ([], 0)
    assert found(bench, 3) == ([], 0)


def test_a_session_that_reads_in_no_look_is_not_called_sound(bench: Bench) -> None:
    codes, left = found(bench, 1000)
    assert codes[0] == "unreadable_file"
    assert 980 < left < 1000

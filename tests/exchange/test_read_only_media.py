"""A store on a medium that takes no writes: it is read, and whoever would write is told why in one line."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from agentsession_cas import Store, entry
from agentsession_cas.effects.host import Fs, Host, OpenFile, real_host, translate
from agentsession_cas.errors import ReadOnly
from tests.helpers.crashes import Through


class Sealed(Through):
    """A file system mounted read-only: whatever would change it is refused as the system does."""

    def open(self, path: str, *, write: bool = False) -> OpenFile:
        if write:
            raise translate(OSError(errno.EROFS, "read-only"), "open", path)
        file: OpenFile = self._inner.open(path)
        return file

    def _refuse(self, path: str, *_rest: object, **_more: object) -> None:
        raise translate(OSError(errno.EROFS, "read-only"), "write", path)

    create = mkdir = rename = unlink = rmdir = lock = _refuse


def sealed() -> Host:
    return replace(real_host(), fs=cast(Fs, Sealed(real_host().fs)))


def test_it_is_read_and_not_written(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store", create=True, background=False) as store, store.create(id="s") as session:
        session.append_batch([entry.user(f"{n}") for n in range(70)])
        session.checkpoint()
        session.append(entry.user("last"))
    with Store.open(tmp_path / "store", read_only=True, host=sealed()) as store:
        assert len(store.read("s")) == 71
        assert store.fsck().findings == []
        assert not store.repair(dry_run=True).changed
    with Store.open(tmp_path / "store", host=sealed()) as store:
        for write in (
            lambda: store.open_session("s"),
            lambda: store.create(id="t"),
            lambda: store.put_blob(b"x"),
            lambda: store.repair("s"),
            lambda: store.repack(),
            lambda: store.delete("s"),
        ):
            with pytest.raises(ReadOnly, match="open it read-only") as refused:
                write()
            assert "\n" not in str(refused.value)

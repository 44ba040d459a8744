"""Network file systems: told by the mounts, and refused with the reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from agentsession_cas import Store
from agentsession_cas.effects.host import Fs, real_host
from agentsession_cas.effects.network import network_of
from agentsession_cas.errors import UnsupportedSystem
from tests.helpers.crashes import Through

MOUNTS = b"""\
/dev/sda1 / ext4 rw 0 0
host:/export /net nfs4 rw 0 0
tmpfs /net/fast tmpfs rw 0 0
me@host: /home/me/far\\040away fuse.sshfs rw 0 0
short line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/data/store", ""),
        ("/net", "nfs4"),
        ("/net/a/store", "nfs4"),
        ("/network/store", ""),
        ("/net/fast/store", ""),
        ("/home/me/far away/store", "fuse.sshfs"),
    ],
)
def test_the_nearest_mount_decides(path: str, kind: str) -> None:
    assert network_of(path, MOUNTS) == kind
    assert network_of(path, b"") == ""


class Far(Through):
    """A file system that lies on another machine."""

    def network(self, _path: str) -> str:
        return "nfs"


def test_it_is_refused_unless_allowed(tmp_path: Path) -> None:
    host = replace(real_host(), fs=cast(Fs, Far(real_host().fs)))
    with pytest.raises(UnsupportedSystem, match=r"\(nfs\).*--allow-network-fs"):
        Store.open(tmp_path / "store", create=True, host=host)
    assert not (tmp_path / "store").exists()
    with Store.open(tmp_path / "store", create=True, host=host, allow_network_fs=True) as store:
        store.create(id="s").close()
    with pytest.raises(UnsupportedSystem):
        Store.open(tmp_path / "store", read_only=True, host=host)

"""Which file systems are another machine's, told by the list of mounts.

Owns the kinds that a store is not kept on unless asked: flock may hold on one machine alone there, and a mapping show
what another has long changed. Pure. Must not: read anything.
"""

from __future__ import annotations

from typing import Final

__all__ = ["MOUNTS", "network_of"]

MOUNTS: Final = "/proc/self/mounts"
"""Where Linux lists them; other systems have no such file, and nothing is told."""

_KINDS: Final = frozenset(
    (
        *("9p", "afs", "beegfs", "ceph", "cifs", "glusterfs", "lustre", "ncpfs", "nfs", "nfs4"),
        *("smb2", "smb3", "smbfs"),
        *("fuse.ceph", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"),
    )
)


def network_of(path: str, mounts: bytes) -> str:
    """The kind of network file system an absolute path lies on, by the lines of :data:`MOUNTS`; "" for none."""
    kind, longest = "", -1
    for line in mounts.splitlines():
        fields = line.split(b" ")
        if len(fields) < 3:
            continue
        # a space, a tab, a newline and a backslash in a path are written in octal
        raw = fields[1].decode("unicode_escape", "replace").encode("latin-1", "replace")
        point = raw.decode(errors="surrogateescape")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= longest:
            kind, longest = fields[2].decode("latin-1"), len(point)
    return kind if kind in _KINDS else ""

"""The orders of writes that all parts share: publish, swap, move, make and empty a directory.

Owns the rule that a name appears only after its bytes are synced. Invariants: what is at a target is always whole, the
old or the new; a function that promises durability has synced every directory it changed on return; where a caller may
change many names before one sync of their directory, the docstring says that the sync is his. Must not: decide what is
stored where, or remember what was already durable: "it is there" proves nothing about the disk.
"""

from __future__ import annotations

from contextlib import suppress

from agentsession_cas.effects.host import Buffer, Fs, Host, OpenFile
from agentsession_cas.errors import DiskError, FileTaken, NoFile, NotRegular

__all__ = ["create_with", "ensure_dir", "move", "parent", "publish", "remove_tree", "swap", "write_new"]


def parent(path: str) -> str:
    """The directory a path lies in."""
    head, _, _ = path.rpartition("/")
    return head or ("/" if path.startswith("/") else ".")


def create_with(fs: Fs, path: str, data: Buffer) -> OpenFile:
    """Create a file with these bytes, for the caller to sync and close. FileTaken when the name is.

    Files that have to be durable together are all created before the first is synced: a disk takes fewer turns for it.
    """
    file = fs.create(path)
    try:
        file.pwrite(data, 0)
    except BaseException:
        file.close()
        raise
    return file


def write_new(fs: Fs, path: str, data: Buffer) -> None:
    """Create a file with these bytes and sync it; its name is not yet durable. FileTaken when the name is."""
    file = create_with(fs, path, data)
    try:
        file.sync()
    finally:
        file.close()


def publish(host: Host, tmp_dir: str, target: str, data: Buffer) -> None:
    """Make ``target`` hold these bytes, replacing what is there; the caller syncs its directory.

    The bytes are written and synced under a fresh name in ``tmp_dir``, which must be on the same file system. A
    failure leaves the target as it was and takes the fresh name away where the disk allows it.
    """
    staged = f"{tmp_dir}/{host.entropy.take(10).hex()}"
    try:
        write_new(host.fs, staged, data)
        host.fs.rename(staged, target)
    except DiskError:
        with suppress(DiskError):
            host.fs.unlink(staged)
        raise


def swap(host: Host, tmp_dir: str, target: str, data: Buffer) -> None:
    """Replace a small file that others read, durably: a crash leaves the old bytes or the new, under its name."""
    publish(host, tmp_dir, target, data)
    host.fs.sync_dir(parent(target))


def move(fs: Fs, source: str, target: str) -> None:
    """Rename, durably in both directories: the new name first, so that the old is not missed before the new is safe."""
    fs.rename(source, target)
    fs.sync_dir(parent(target))
    if parent(source) != parent(target):
        fs.sync_dir(parent(source))


def ensure_dir(fs: Fs, path: str) -> None:
    """Make a directory that may be there, with a durable name. NotRegular when a file is."""
    try:
        fs.mkdir(path)
    except FileTaken:
        found = fs.stat(path)
        if found is not None and not found.is_dir:
            raise NotRegular("a file lies where a directory has to be", where=f"mkdir {path}") from None
    # also when it was there: who made it may have crashed before the sync
    fs.sync_dir(parent(path))


def remove_tree(fs: Fs, path: str) -> None:
    """Remove a directory and all below it; what another process removes meanwhile is no error. Syncs nothing."""
    pending = [path]
    while pending:
        directory = pending[-1]
        below: list[str] = []
        with suppress(NoFile):
            for name in fs.listdir(directory):
                inside = f"{directory}/{name}"
                found = fs.stat(inside)
                if found is not None and found.is_dir:
                    below.append(inside)
                elif found is not None:
                    with suppress(NoFile):
                        fs.unlink(inside)
        if below:
            pending += below
            continue
        with suppress(NoFile):
            fs.rmdir(directory)
        pending.pop()

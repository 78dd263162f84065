"""The folder a log lives in: private, local, and one server's at a time.

Takes an exclusive lock that the kernel gives back when the process ends, however it ends. Refuses
file systems whose locks and syncs cannot be trusted.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rota.errors import LogLocked, LogUnusable

if TYPE_CHECKING:
    from collections.abc import Iterator

UNSAFE_FILESYSTEMS = ("nfs", "cifs", "smb", "fuse", "9p", "afs", "ceph")


_ADVICE = {
    errno.ENOSPC: "the disk is full: make room on it, or give another --data-dir",
    errno.EDQUOT: "the quota is used up: make room, or give another --data-dir",
    errno.EROFS: "the file system is mounted for reading only: give another --data-dir",
    errno.EACCES: "this user may not write there: check the folder's owner and mode",
    errno.EPERM: "this user may not write there: check the folder's owner and mode",
}


def advice_for(error: OSError) -> str:
    return _ADVICE.get(error.errno or 0, "check that it exists and is writable")


class DataFolder:
    """A folder held for writing."""

    def __init__(self, path: Path, *, allow_network_fs: bool = False) -> None:
        """Make the folder if need be and lock it. Raises OSError or a LogError."""
        self.path = path
        self._lock_fd = -1
        self._is_mine = False
        _make(path)
        kind = _filesystem_of(path)
        if kind.startswith(UNSAFE_FILESYSTEMS) and not allow_network_fs:
            msg = f"{path} is on {kind}, where locks and syncs cannot be trusted"
            raise LogUnusable(msg, hint="use a local disk, or set server.allow_network_fs")
        self._lock()

    def _lock(self) -> None:
        self._lock_fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(self._lock_fd, 32, 0).decode(errors="replace").strip()
            self.close()
            msg = f"another rota server (process {owner or 'unknown'}) uses {self.path}"
            raise LogLocked(msg, hint="stop it, or give another --data-dir") from None
        self._is_mine = True
        os.ftruncate(self._lock_fd, 0)
        os.pwrite(self._lock_fd, f"{os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        if self._lock_fd >= 0:
            if self._is_mine:
                os.ftruncate(self._lock_fd, 0)
            os.close(self._lock_fd)
            self._lock_fd = -1


def _make(path: Path) -> None:
    """Make a folder, and those above it, that a power cut does not take away again."""
    made = []
    at = path.absolute()
    while not at.exists() and at != at.parent:
        made.append(at)
        at = at.parent
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in made:
        sync_folder(folder)
        sync_folder(folder.parent)


def sync_folder(path: Path) -> None:
    """Have the names in a folder written to the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def give_to_owner_of(known: Path, path: Path) -> None:
    """Give a file the owner and mode of another, where that is permitted.

    Who repairs a log may be root, and its server another user, who must be able to open it.
    """
    found = known.stat()
    with suppress(OSError):
        os.chown(path, found.st_uid, found.st_gid)
        path.chmod(found.st_mode & 0o777)


@contextmanager
def fresh_folder(path: Path) -> Iterator[Path]:
    """Give an empty folder; one that was left behind is emptied, and it goes afterwards."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(mode=0o700)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _filesystem_of(folder: Path) -> str:
    """Name the type of the file system a folder is on; empty where it cannot be told."""
    best, kind = "", ""
    try:
        lines = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return ""
    where = str(folder.resolve())
    for line in lines:
        _, point, fstype, *_ = line.split()
        inside = where == point or where.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fstype
    return kind

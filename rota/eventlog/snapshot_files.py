"""Snapshots as files of their own beside the log: `snapshots/SEQ.snap`.

A snapshot is a cache, so it has no place in the log's transactions: it would hold commits up and
make the file grow. A file is written under another name, a piece at a time, and renamed when it is
whole. Nothing is synced: a file that a power cut tore does not match its checksum, and is dropped.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING

from rota.eventlog.crash_points import reach
from rota.eventlog.port import Snapshot

if TYPE_CHECKING:
    from pathlib import Path

SNAPSHOTS_KEPT = 2
PIECE_BYTES = 256 << 10
SUFFIX = ".snap"
HEADER = struct.Struct(">8sQ32sIQ32s")
"""Magic, seq, the chain's digest there, version of the blob, its length, checksum of all that."""
_MAGIC = b"rotasnp1"
_CHECK_BYTES = 32


class SnapshotFiles:
    """The snapshots of one data folder."""

    def __init__(self, data_folder: Path, *, readonly: bool = False) -> None:
        """Keep them in a folder of their own, which is made with the first."""
        self._readonly = readonly
        self.folder = data_folder / "snapshots"

    def save(self, snapshot: Snapshot) -> None:
        """Keep a snapshot, dropping all but the newest two and what was left half-written.

        Raises OSError.
        """
        reach("snapshot.before_save")
        self.folder.mkdir(mode=0o700, exist_ok=True)
        for torn in self.folder.glob("*.tmp"):
            torn.unlink(missing_ok=True)
        path = self.folder / f"{snapshot.seq:020d}{SUFFIX}"
        temporary = path.with_suffix(".tmp")
        try:
            _write(temporary, snapshot)
            reach("snapshot.written")
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        for old in self._paths()[SNAPSHOTS_KEPT:]:
            old.unlink(missing_ok=True)
        reach("snapshot.saved")

    def exist(self) -> bool:
        """Whether there are any, whole or not."""
        return bool(self._paths())

    def load(self) -> list[Snapshot]:
        """Give the snapshots that are whole, newest first; whoever may write drops the others."""
        found = []
        for path in self._paths():
            with suppress(OSError):
                snapshot = _read(path)
                if snapshot is not None:
                    found.append(snapshot)
                elif not self._readonly:
                    path.unlink()
        return found

    def _paths(self) -> list[Path]:
        """Name the files there are, newest first."""
        try:
            paths = list(self.folder.iterdir())
        except OSError:
            return []
        return sorted((path for path in paths if path.suffix == SUFFIX), reverse=True)


def _write(path: Path, snapshot: Snapshot) -> None:
    blob = memoryview(snapshot.blob)
    fields = (_MAGIC, snapshot.seq, snapshot.digest, snapshot.version, len(blob))
    check = blake2b(HEADER.pack(*fields, b"")[:-_CHECK_BYTES], digest_size=_CHECK_BYTES)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb", buffering=0) as file:
        file.seek(HEADER.size)
        for at in range(0, len(blob), PIECE_BYTES):
            piece = blob[at : at + PIECE_BYTES]
            check.update(piece)
            while piece:
                piece = piece[file.write(piece) :]
        file.seek(0)
        file.write(HEADER.pack(*fields, check.digest()))


def _read(path: Path) -> Snapshot | None:
    """Read a file; None if it is not whole, or is none of ours. Raises OSError."""
    raw = path.read_bytes()
    if len(raw) < HEADER.size:
        return None
    magic, seq, digest, version, length, check = HEADER.unpack_from(raw)
    blob = memoryview(raw)[HEADER.size :]
    if magic != _MAGIC or len(blob) != length:
        return None
    real = blake2b(memoryview(raw)[: HEADER.size - _CHECK_BYTES], digest_size=_CHECK_BYTES)
    real.update(blob)
    return Snapshot(seq, digest, version, bytes(blob)) if real.digest() == check else None

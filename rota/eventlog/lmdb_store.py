"""The event log on disk: one LMDB environment in one folder.

The only module that knows LMDB. Default flags only (they survive power cuts; the faster ones do
not), the 0.9 file format, one writer thread. `append` is one transaction and one sync: when it
returns, the records are on the disk. A full map is grown and the transaction repeated; any other
error leaves the log as it was, and the caller must `reopen` before it writes again. Reads are
short and verify the chain; a lock keeps them out while the map is grown.
"""

from __future__ import annotations

import struct
import threading
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lmdb

from rota.errors import LogCorrupt, LogTooNew, LogUnusable
from rota.eventlog.chain import DIGEST_BYTES, GENESIS, extend
from rota.eventlog.crash_points import reach
from rota.eventlog.data_folder import DataFolder
from rota.eventlog.port import FORMAT_VERSION, Head, Snapshot, Stored

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAP_BYTES = 16 << 30
MAP_BYTES_MAX = 1 << 46
PROBE_BYTES = 256 << 10
READ_BYTES_MAX = 8 << 20
SNAPSHOTS_KEPT = 2

_DATABASES = (("meta", False), ("events", False), ("by_task", True), ("snapshots", False))
_SEQ = struct.Struct(">Q")
_new: Any = tuple.__new__  # past a NamedTuple's own constructor, for a million records
_SNAPSHOT_HEAD = struct.Struct(">32sI32s")
_RESTORE = "restore the data folder from a copy; `rota verify` checks one"


class LmdbLog:
    """An `EventLog` in a folder."""

    def __init__(
        self,
        folder: str | Path,
        *,
        map_bytes: int = MAP_BYTES,
        readonly: bool = False,
        allow_network_fs: bool = False,
    ) -> None:
        """Open the folder, creating it if it is to be written. Raises a LogError."""
        self.folder = Path(folder)
        self._readonly = readonly
        self._map_bytes = map_bytes
        self._guard = threading.Lock()
        self._held: DataFolder | None = None
        self._env: Any = None
        if readonly and not (self.folder / "data.mdb").exists():
            msg = f"there is no log in {self.folder}"
            raise LogUnusable(msg, hint="give the folder that `rota serve --data-dir` used")
        try:
            if not readonly:
                self._held = DataFolder(self.folder, allow_network_fs=allow_network_fs)
            self._open()
        except OSError as error:
            self.close()
            msg = f"cannot use the data folder {self.folder}: {error.strerror or error}"
            raise LogUnusable(msg, hint="check that it exists and is writable") from error
        except BaseException:
            self.close()
            raise

    # -- opening -----------------------------------------------------------------------------

    def _open(self) -> None:
        data = self.folder / "data.mdb"
        if data.exists():
            self._map_bytes = max(self._map_bytes, data.stat().st_size)
        self._db: dict[str, Any] = {}
        try:
            self._env = lmdb.open(
                str(self.folder),
                map_size=self._map_bytes,
                max_dbs=8,
                mode=0o600,
                readonly=self._readonly,
                lib_version=0,
                max_spare_txns=4,
            )
            self._check_size(data)
            self._env.reader_check()
            self._open_databases()
        except lmdb.Error as error:
            msg = f"cannot open the log in {self.folder}: {error}"
            raise LogUnusable(msg, hint=_RESTORE) from error

    def _check_size(self, data: Path) -> None:
        """Refuse a file that ends before its last page: reading there would kill the process."""
        pages = self._env.info()["last_pgno"] + 1
        if data.stat().st_size < pages * self._env.stat()["psize"]:
            msg = f"the log in {self.folder} is cut short"
            raise LogUnusable(msg, hint=_RESTORE)

    def _open_databases(self) -> None:
        create = not self._readonly
        if self._readonly:
            # A handle opened within a read-only transaction is lost with it.
            for name, dupsort in _DATABASES:
                self._db[name] = self._env.open_db(name.encode(), create=False, dupsort=dupsort)
        with self._env.begin(write=create) as txn:
            if create:
                self._db["meta"] = self._env.open_db(b"meta", txn=txn)
            found = txn.get(b"format", db=self._db["meta"])
            if found is not None and not found.isdigit():
                msg = f"the log in {self.folder} does not say its format"
                raise LogUnusable(msg, hint=_RESTORE)
            if found is not None and int(found) > FORMAT_VERSION:
                msg = (
                    f"the log in {self.folder} has format {int(found)}; "
                    f"this rota reads up to {FORMAT_VERSION}"
                )
                raise LogTooNew(msg, hint="use the rota that wrote it, or a newer one")
            if not create:
                return
            if found is None:
                txn.put(b"format", b"%d" % FORMAT_VERSION, db=self._db["meta"])
                txn.put(b"shard", b"0", db=self._db["meta"])
            for name, dupsort in _DATABASES:
                self._db[name] = self._env.open_db(name.encode(), txn=txn, dupsort=dupsort)

    # -- writing -----------------------------------------------------------------------------

    def append(self, records: Sequence[Stored], expected_seq: int, epoch: int) -> None:
        """Make the records durable after `expected_seq`. Raises LogUnusable; then `reopen`."""
        reach("commit.begin")
        events = [(_SEQ.pack(r.seq), r.digest + r.body) for r in records]
        index = [(r.task.encode(), _SEQ.pack(r.seq)) for r in records if r.task is not None]

        def put(txn: Any) -> None:
            self._check_writer(txn, expected_seq, epoch)
            added = txn.cursor(self._db["events"]).putmulti(events, append=True)[1]
            txn.cursor(self._db["by_task"]).putmulti(index)
            if added != len(events):
                msg = f"append after {expected_seq} refused: a record is already there"
                raise LogUnusable(msg)
            reach("commit.written")

        self._write(put)
        reach("commit.synced")

    def _check_writer(self, txn: Any, expected_seq: int, epoch: int) -> None:
        if int(txn.get(b"epoch", b"0", db=self._db["meta"])) != epoch:
            msg = f"writer of epoch {epoch} refused: another writer has claimed the log"
            raise LogUnusable(msg)
        cursor = txn.cursor(self._db["events"])
        head = _SEQ.unpack(cursor.key())[0] if cursor.last() else 0
        if head != expected_seq:
            msg = f"append after {expected_seq} refused: the log is at {head}"
            raise LogUnusable(msg)

    def _write(self, put: Callable[[Any], None]) -> None:
        """Run one write transaction, growing the map as often as it needs."""
        while True:
            try:
                with self._env.begin(write=True) as txn:
                    put(txn)
            except lmdb.MapFullError as error:
                if self._map_bytes * 2 > MAP_BYTES_MAX:
                    msg = f"the log has reached its largest size, {MAP_BYTES_MAX} bytes"
                    raise LogUnusable(msg) from error
                self._map_bytes *= 2
                with self._guard:
                    self._env.set_mapsize(self._map_bytes)
            except lmdb.Error as error:
                msg = f"the log does not accept writes: {error}"
                raise LogUnusable(msg, hint="check the disk's free space and health") from error
            else:
                return

    def claim(self) -> int:
        """Become the writer: raise the epoch."""
        epoch = self.epoch() + 1
        self._write(lambda txn: txn.put(b"epoch", b"%d" % epoch, db=self._db["meta"]))
        return epoch

    def reopen(self) -> Head:
        """Open anew after a failed append and prove, with a synced write, that it works."""
        try:
            with self._guard:
                if self._env is not None:
                    self._env.close()
                self._env = None
                self._open()
        except OSError as error:
            msg = f"cannot reopen the log: {error}"
            raise LogUnusable(msg) from error
        head = self.head()
        meta = self._db["meta"]
        self._write(lambda txn: txn.put(b"probe", bytes(PROBE_BYTES), db=meta))
        self._write(lambda txn: txn.delete(b"probe", db=meta))
        return head

    # -- reading -----------------------------------------------------------------------------

    def environment(self) -> Any:
        """Give the open environment; for this module, under the guard."""
        if self._env is None:
            msg = "the log is being reopened"
            raise LogUnusable(msg)
        return self._env

    def _reading(self) -> _Reading:
        return _Reading(self)

    def read(self, after: int, limit: int) -> list[Stored]:
        """Give up to `limit` verified records after `after` (fewer, if they are large)."""
        found: list[Stored] = []
        size = 0
        with self._reading() as txn:
            cursor = txn.cursor(self._db["events"])
            if after > 0:
                if not cursor.set_key(_SEQ.pack(after)):
                    return self._nothing_at(cursor, after)
                digest = cursor.value()[:DIGEST_BYTES]
                here = cursor.next()
            else:
                after = 0
                digest = GENESIS
                here = cursor.first()
            if not here:
                return found
            seq = after
            for value in cursor.iternext(keys=False):
                if seq - after >= limit or size > READ_BYTES_MAX:
                    break
                seq += 1
                body = value[DIGEST_BYTES:]
                previous, digest = digest, value[:DIGEST_BYTES]
                if extend(previous, body) != digest:
                    raise _wrong_at(cursor, seq)
                size += len(body)
                found.append(_new(Stored, (seq, digest, body, None)))
        return found

    def _nothing_at(self, cursor: Any, after: int) -> list[Stored]:
        """Tell a place beyond the head from a hole in the log."""
        if cursor.last() and _SEQ.unpack(cursor.key())[0] > after:
            raise _missing(after)
        return []

    def read_task(self, task_id: str, limit: int, after: int = 0) -> list[Stored]:
        """Give the verified records of one task, oldest first."""
        found: list[Stored] = []
        with self._reading() as txn:
            cursor = txn.cursor(self._db["by_task"])
            if not cursor.set_range_dup(task_id.encode()[:511] or b"\0", _SEQ.pack(after + 1)):
                return found
            events = self._db["events"]
            for key in cursor.iternext_dup():
                if len(found) >= limit:
                    break
                seq = _SEQ.unpack(key)[0]
                value = txn.get(key, db=events)
                before = txn.get(_SEQ.pack(seq - 1), db=events) if seq > 1 else GENESIS
                if value is None or before is None:
                    raise _missing(seq if value is None else seq - 1)
                body = value[DIGEST_BYTES:]
                if extend(before[:DIGEST_BYTES], body) != value[:DIGEST_BYTES]:
                    raise _broken(seq)
                found.append(Stored(seq, value[:DIGEST_BYTES], body, task_id))
        return found

    def has_task(self, task_id: str) -> bool:
        """Whether any record is indexed under this task."""
        with self._reading() as txn:
            return txn.get(task_id.encode()[:511] or b"\0", db=self._db["by_task"]) is not None

    def known_of(self, task_ids: Sequence[str]) -> set[str]:
        """Give those under which any record is indexed, all looked up in one transaction."""
        with self._reading() as txn:
            get, index = txn.get, self._db["by_task"]
            return {
                task_id
                for task_id in task_ids
                if get(task_id.encode()[:511] or b"\0", db=index) is not None
            }

    def head(self) -> Head:
        """Give the last durable record's seq and digest."""
        with self._reading() as txn:
            cursor = txn.cursor(self._db["events"])
            if not cursor.last():
                return Head(0, GENESIS)
            return Head(_SEQ.unpack(cursor.key())[0], cursor.value()[:DIGEST_BYTES])

    def epoch(self) -> int:
        """Give the epoch under which appends are accepted now."""
        with self._reading() as txn:
            return int(txn.get(b"epoch", b"0", db=self._db["meta"]))

    # -- snapshots ---------------------------------------------------------------------------

    def save_snapshot(self, snapshot: Snapshot) -> None:
        """Keep a snapshot, dropping all but the newest two."""
        reach("snapshot.before_save")
        check = blake2b(snapshot.blob, digest_size=DIGEST_BYTES).digest()
        head = _SNAPSHOT_HEAD.pack(snapshot.digest, snapshot.version, check)

        def put(txn: Any) -> None:
            cursor = txn.cursor(self._db["snapshots"])
            new = _SEQ.pack(snapshot.seq)
            kept = [key for key in cursor.iternext(keys=True, values=False) if key != new]
            for key in kept[: max(0, len(kept) - SNAPSHOTS_KEPT + 1)]:
                txn.delete(key, db=self._db["snapshots"])
            txn.put(new, head + snapshot.blob, db=self._db["snapshots"])

        self._write(put)
        reach("snapshot.saved")

    def load_snapshots(self) -> list[Snapshot]:
        """Give the snapshots that are whole, newest first."""
        found: list[Snapshot] = []
        with self._reading() as txn:
            for key, value in txn.cursor(self._db["snapshots"]).iterprev():
                if len(value) < _SNAPSHOT_HEAD.size:
                    continue
                digest, version, check = _SNAPSHOT_HEAD.unpack_from(value)
                blob = value[_SNAPSHOT_HEAD.size :]
                if blake2b(blob, digest_size=DIGEST_BYTES).digest() == check:
                    found.append(Snapshot(_SEQ.unpack(key)[0], digest, version, blob))
        return found

    def close(self) -> None:
        """Close the environment and let go of the folder."""
        env, self._env = self._env, None
        if env is not None:
            env.close()
        if self._held is not None:
            self._held.close()


class _Reading:
    """One short read transaction, under the guard; LMDB's own errors become ours."""

    __slots__ = ("_guard", "_log", "_txn")

    def __init__(self, log: LmdbLog) -> None:
        self._log, self._guard = log, log._guard  # noqa: SLF001 - two halves of one thing

    def __enter__(self) -> Any:
        self._guard.acquire()
        try:
            self._txn = self._log.environment().begin()
        except BaseException as error:
            self._guard.release()
            self._translate(error)
            raise
        return self._txn

    @staticmethod
    def _translate(error: BaseException | None) -> None:
        if isinstance(error, lmdb.Error):
            msg = f"the log cannot be read: {error}"
            raise LogUnusable(msg, hint=_RESTORE) from error

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            self._txn.abort()
        finally:
            self._guard.release()
        self._translate(error)


def _wrong_at(cursor: Any, seq: int) -> LogCorrupt:
    """Tell a record that is broken from one that is not there: then its successor's is."""
    return _broken(seq) if cursor.key() == _SEQ.pack(seq) else _missing(seq)


def _broken(seq: int) -> LogCorrupt:
    return LogCorrupt(seq, f"record {seq} does not match its digest", hint=_RESTORE)


def _missing(seq: int) -> LogCorrupt:
    return LogCorrupt(seq, f"record {seq} is missing", hint=_RESTORE)

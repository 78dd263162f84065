"""The event log on disk: one LMDB environment in one folder.

With lmdb_environment.py, which opens the file, the only one that knows LMDB. One writer thread.
`append` is one transaction and one sync: when it returns, the records are on the disk. A full map
is grown and the transaction repeated; any other error leaves the log as it was, and the caller must
`reopen` before it writes again. If that fails, the file is open for reading only. Reads are short,
verify the chain, and may be in any thread; a turnstile keeps them out while the map is grown or the
file is opened anew.
"""

from __future__ import annotations

import shutil
import struct
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lmdb

from rota.errors import LogError, LogUnusable
from rota.eventlog import failed_index
from rota.eventlog.chain import DIGEST_BYTES, GENESIS, extend
from rota.eventlog.codec import decode, subject_of
from rota.eventlog.crash_points import reach
from rota.eventlog.damage import another, broken, damaged, misled, misplaced, missing
from rota.eventlog.data_folder import DataFolder, advice_for
from rota.eventlog.heading import is_about
from rota.eventlog.lmdb_environment import open_databases, open_environment, translated
from rota.eventlog.page_check import PageCheck
from rota.eventlog.port import READ_BYTES_MAX, Head, Stored
from rota.eventlog.snapshot_files import SnapshotFiles
from rota.eventlog.turnstile import Turnstile
from rota.eventlog.upgrades import upgrade

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rota.eventlog.port import Snapshot

MAP_BYTES = 16 << 30
MAP_BYTES_MAX = 1 << 46
PROBE_BYTES = 256 << 10
CLOSE_S = 5.0
"""How long whoever still reads is waited for when the log is closed."""

_SEQ = struct.Struct(">Q")
_new: Any = tuple.__new__  # past a NamedTuple's own constructor, for a million records


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
        self.turnstile = Turnstile()
        self._held: DataFolder | None = None
        self._env: Any = None
        self._snapshots = SnapshotFiles(self.folder, readonly=readonly)
        try:
            if not readonly:
                self._held = DataFolder(self.folder, allow_network_fs=allow_network_fs)
                self._look()
            self._open(readonly=readonly)
        except OSError as error:
            self.close()
            msg = f"cannot use the data folder {self.folder}: {error.strerror or error}"
            raise LogUnusable(msg, hint=advice_for(error)) from error
        except BaseException:
            self.close()
            raise

    # -- opening -----------------------------------------------------------------------------

    def _look(self) -> None:
        """Look at what is there before it is mapped, or a new file is made. Raises LogCorrupt."""
        shutil.rmtree(
            self.folder / "new", ignore_errors=True
        )  # of a `rota reindex` that was killed
        if (data := self.folder / "data.mdb").exists():
            PageCheck(data).look()
        elif self._snapshots.exist():
            what = f"the log in {self.folder} is gone: there are snapshots, and no data.mdb"
            raise damaged(what)

    def _open(self, *, readonly: bool) -> None:
        self._db: dict[str, Any] = {}
        try:
            self._env, self._map_bytes = open_environment(
                self.folder, self._map_bytes, readonly=readonly
            )
            self._db = open_databases(self._env, self.folder, readonly=readonly)
            write = None if readonly else self._write
            self._is_indexed = upgrade(self._env.begin, write, self._db)
        except BaseException as error:
            self._close_environment()
            if isinstance(error, lmdb.Error):
                raise translated(f"cannot open the log in {self.folder}", error) from error
            raise

    def _open_anew(self, *, readonly: bool) -> None:
        with self.turnstile.alone():
            self._close_environment()
            self._open(readonly=readonly)

    @contextmanager
    def _readable_after_failure(self) -> Iterator[None]:
        """Open for reading only if the file does not accept writes.

        After a failed write LMDB may refuse everything, reads too, until the file is opened anew.
        """
        try:
            yield
        except LogUnusable:
            with suppress(LogError, OSError):
                self._open_anew(readonly=True)
            raise

    def _close_environment(self) -> None:
        env, self._env = self._env, None
        if env is not None:
            env.close()

    # -- writing -----------------------------------------------------------------------------

    def append(self, records: Sequence[Stored], expected_seq: int, epoch: int) -> None:
        """Make the records durable after `expected_seq`. Raises LogUnusable; then `reopen`."""
        reach("commit.begin")
        events = [(_SEQ.pack(r.seq), r.digest + r.body) for r in records]
        index = [(r.task.encode(), _SEQ.pack(r.seq)) for r in records if r.task is not None]
        failures = failed_index.rows_of(records)

        def put(txn: Any) -> None:
            self._check_writer(txn, expected_seq, epoch)
            added = txn.cursor(self._db["events"]).putmulti(events, append=True)[1]
            txn.cursor(self._db["by_task"]).putmulti(index)
            if failures:
                txn.cursor(self._db["failed"]).putmulti(failures)
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
                with self.turnstile.alone():
                    self._env.set_mapsize(self._map_bytes)
            except lmdb.Error as error:
                raise translated("the log does not accept writes", error) from error
            else:
                return

    def claim(self) -> int:
        def put(txn: Any) -> None:
            for name in (b"epoch", failed_index.INDEXED):
                txn.put(name, b"%d" % epoch, db=self._db["meta"])

        with self._readable_after_failure():
            epoch = self.epoch() + 1
            self._write(put)
        return epoch

    def reopen(self) -> Head:
        """Open anew after a failed append and prove, with a synced write, that it works."""
        with self._readable_after_failure():
            try:
                self._open_anew(readonly=False)
            except OSError as error:
                msg = f"cannot reopen the log: {error}"
                raise LogUnusable(msg) from error
            head, meta = self.head(), self._db["meta"]
            self._write(lambda txn: txn.put(b"probe", bytes(PROBE_BYTES), db=meta))
            self._write(lambda txn: txn.delete(b"probe", db=meta))
        return head

    # -- reading -----------------------------------------------------------------------------

    def environment(self) -> Any:
        """Give the open environment; for this module, inside the turnstile."""
        if self._env is None:
            msg = "the log is being reopened"
            raise LogUnusable(msg)
        return self._env

    def _reading(self) -> _Reading:
        return _Reading(self)

    def read(self, after: int, limit: int, bytes_max: int = READ_BYTES_MAX) -> list[Stored]:
        found: list[Stored] = []
        size, pack = 0, _SEQ.pack
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
            for key, value in cursor.iternext():
                if seq - after >= limit or size > bytes_max:
                    break
                seq += 1
                body = value[DIGEST_BYTES:]
                previous, digest = digest, value[:DIGEST_BYTES]
                if extend(previous, body) != digest:
                    raise broken(seq) if key == pack(seq) else missing(seq)
                if key != pack(seq):
                    raise misplaced(seq, key)
                size += len(body)
                found.append(_new(Stored, (seq, digest, body, None)))
        return found

    def in_order(
        self, progress: Callable[[int, int], None], *, after: int = 0, every: int = 1000
    ) -> Iterator[Stored]:
        """Give all records by the chain alone, whatever the keys and the branches say.

        For a log that is damaged: all in one transaction. It tells of each so-many-th after
        `after`. Raises LogCorrupt.
        """
        seq, digest = 0, GENESIS
        with self._reading() as txn:
            events = self._db["events"]
            count = txn.stat(events)["entries"]
            for value in txn.cursor(events).iternext(keys=False):
                body, previous, digest = value[DIGEST_BYTES:], digest, value[:DIGEST_BYTES]
                seq += 1
                if extend(previous, body) != digest:
                    raise broken(seq)
                yield Stored(seq, digest, body, subject_of(decode(body).event))
                if seq > after and seq % every == 0:
                    progress(seq, count)
            if count > seq:
                raise damaged(f"the log has {count} records, and {seq} can be read", seq + 1)
        progress(seq, seq)

    def _nothing_at(self, cursor: Any, after: int) -> list[Stored]:
        """Tell a place beyond the head from a hole in the log."""
        if cursor.last() and _SEQ.unpack(cursor.key())[0] > after:
            raise missing(after)
        return []

    def read_task(
        self, task_id: str, limit: int, after: int = 0, bytes_max: int = READ_BYTES_MAX
    ) -> list[Stored]:
        found: list[Stored] = []
        size = 0
        with self._reading() as txn:
            cursor = txn.cursor(self._db["by_task"])
            if not cursor.set_range_dup(task_id.encode()[:511] or b"\0", _SEQ.pack(after + 1)):
                return found
            events = self._db["events"]
            for key in cursor.iternext_dup():
                if len(found) >= limit or size > bytes_max:
                    break
                if len(key) != _SEQ.size:
                    raise damaged(f"the index of task {task_id} is damaged")
                seq = _SEQ.unpack(key)[0]
                value = txn.get(key, db=events)
                before = txn.get(_SEQ.pack(seq - 1), db=events) if seq > 1 else GENESIS
                if value is None or before is None:
                    raise misled(task_id, seq if value is None else seq - 1)
                body = value[DIGEST_BYTES:]
                if extend(before[:DIGEST_BYTES], body) != value[:DIGEST_BYTES]:
                    raise broken(seq)
                if not is_about(body, task_id):
                    raise another(task_id, seq)
                size += len(body)
                found.append(Stored(seq, value[:DIGEST_BYTES], body, task_id))
        return found

    def has_task(self, task_id: str) -> bool:
        with self._reading() as txn:
            return txn.get(task_id.encode()[:511] or b"\0", db=self._db["by_task"]) is not None

    def last_subject(self, first: str, end: str) -> str:
        with self._reading() as txn:
            cursor = txn.cursor(self._db["by_task"])
            is_there = cursor.prev() if cursor.set_range(end.encode()) else cursor.last()
            found = cursor.key().decode(errors="replace") if is_there else ""
            return found if found >= first else ""

    def failed_before(self, seq: int, limit: int) -> list[tuple[int, str]]:
        """Give (seq, task) of the newest failures before `seq`; scans where there is no index."""
        if self._is_indexed:
            with self._reading() as txn:
                return failed_index.before(txn, self._db, seq, limit)
        found: list[tuple[int, str]] = []
        while seq > 0 and len(found) < limit:
            with self._reading() as txn:
                some, seq = failed_index.scan(txn, self._db["events"], seq, limit - len(found))
            found += some
        return found

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
        with self._reading() as txn:
            cursor, count = txn.cursor(self._db["events"]), txn.stat(self._db["events"])["entries"]
            head = Head(0, GENESIS)
            if cursor.last():
                head = Head(_SEQ.unpack(cursor.key())[0], cursor.value()[:DIGEST_BYTES])
            if count > head.seq:  # a damaged branch can hide the pages after it
                raise damaged(f"the log has {count} records, and ends at {head.seq}", head.seq + 1)
            if count < head.seq:
                raise damaged(f"the log has {count} records, and the last has the key {head.seq}")
            return head

    def epoch(self) -> int:
        with self._reading() as txn:
            found = txn.get(b"epoch", b"0", db=self._db["meta"])
            if not found.isdigit():
                raise damaged(f"the log in {self.folder} does not say its epoch")
            return int(found)

    # -- snapshots ---------------------------------------------------------------------------

    def save_snapshot(self, snapshot: Snapshot) -> None:
        try:
            self._snapshots.save(snapshot)
        except OSError as error:
            msg = f"the snapshot cannot be written: {error}"
            raise LogUnusable(msg) from error

    def load_snapshots(self) -> list[Snapshot]:
        return self._snapshots.load()

    def close(self) -> None:
        """Close the environment and let go of the folder.

        Under a read that hangs it is left open: closing it would crash the process.
        """
        with self.turnstile.alone(CLOSE_S) as is_alone:
            if is_alone:
                self._close_environment()
            self._env = None
        if self._held is not None:
            self._held.close()


class _Reading:
    """One short read transaction, inside the turnstile; LMDB's own errors become ours.

    After a failed write LMDB may begin none: then it waits until the file is opened anew.
    """

    __slots__ = ("_log", "_txn")

    def __init__(self, log: LmdbLog) -> None:
        self._log = log

    def __enter__(self) -> Any:
        turnstile = self._log.turnstile
        while True:
            times = turnstile.enter()
            try:
                self._txn = self._log.environment().begin()
            except BaseException as error:
                turnstile.leave()
                if isinstance(error, lmdb.PanicError) and turnstile.wait_for_change(times):
                    continue
                self._translate(error)
                raise
            return self._txn

    @staticmethod
    def _translate(error: BaseException | None) -> None:
        if isinstance(error, lmdb.Error):
            raise translated("the log cannot be read", error) from error

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            self._txn.abort()
        finally:
            self._log.turnstile.leave()
        self._translate(error)

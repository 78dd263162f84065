"""Opening LMDB's file: made whole or not at all, looked at before it is used.

Default flags only (they survive power cuts; the faster ones do not) and the 0.9 file format. Tells
a file that is damaged from one that cannot be opened at the moment.
"""

from __future__ import annotations

import mmap
from contextlib import nullcontext, suppress
from math import inf
from typing import TYPE_CHECKING, Any

import lmdb

from rota.errors import LogTooNew, LogUnusable
from rota.eventlog.damage import damaged
from rota.eventlog.data_folder import advice_for, fresh_folder, give_to_owner_of, sync_folder
from rota.eventlog.failed_index import INDEXED
from rota.eventlog.page_check import DATABASES, MAY_LACK, PAGES_MIN, TRIES, PageCheck
from rota.eventlog.port import FORMAT_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rota.errors import LogError

_NEW_BYTES = 1 << 20
_DAMAGE = (
    lmdb.BadTxnError,
    lmdb.BadValsizeError,
    lmdb.CorruptedError,
    lmdb.CursorFullError,
    lmdb.IncompatibleError,
    lmdb.InvalidError,
    lmdb.NotFoundError,
    lmdb.PageFullError,
    lmdb.PageNotFoundError,
    lmdb.VersionMismatchError,
)
"""What LMDB says of a file that is not what it wrote; all else is the disk's or the system's."""


def translated(what: str, error: lmdb.Error) -> LogError:
    """Tell bytes that are not what was written from a disk that does not do what it should."""
    if isinstance(error, _DAMAGE):
        return damaged(f"{what}: {error}")
    return LogUnusable(f"{what}: {error}", hint="check the disk's free space and health")


def open_environment(folder: Path, map_bytes: int, *, readonly: bool) -> tuple[Any, int]:
    """Open the file, making it if it is to be written; give it, and how much of it is mapped."""
    data = folder / "data.mdb"
    if not data.exists():
        if readonly:
            msg = f"there is no log in {folder}"
            raise LogUnusable(msg, hint="give the folder that `rota serve --data-dir` used")
        _create(data)
    length = data.stat().st_size
    if length < PAGES_MIN * mmap.PAGESIZE:
        raise damaged(f"the log in {folder} is cut short: its file has {length} bytes")
    PageCheck(data).look_at_beginning()
    map_bytes = max(map_bytes, length)
    env = _open(folder, map_bytes, readonly=readonly)
    if readonly:
        give_to_owner_of(data, folder / "lock.mdb")  # it may have been made just now
    pages = env.info()["last_pgno"] + 1
    if data.stat().st_size < pages * env.stat()["psize"]:  # reading there would kill the process
        env.close()
        raise damaged(f"the log in {folder} is cut short")
    env.reader_check()
    return env, map_bytes


def look_at_pages(folder: Path, progress: Callable[[int, int], None]) -> None:
    """Look at all pages of a log, which a server may be writing. Raises a LogError.

    A read transaction is held meanwhile, so that no page that it sees is written anew.
    """
    try:
        with open_environment(folder, 0, readonly=True)[0] as env:
            for _ in range(TRIES):
                with env.begin() as txn:
                    check = PageCheck(folder / "data.mdb")
                    if check.look(inf, txn=txn.id(), progress=progress):
                        return
    except lmdb.Error as error:
        raise translated(f"cannot open the log in {folder}", error) from error
    except OSError as error:
        msg = f"cannot read the log in {folder}: {error.strerror or error}"
        raise LogUnusable(msg, hint=advice_for(error)) from error
    msg = f"the log in {folder} is written faster than it can be looked at"
    raise LogUnusable(msg, hint="try again")


def _open(folder: Path, map_bytes: int, *, readonly: bool = False) -> Any:
    return lmdb.open(
        str(folder),
        map_size=map_bytes,
        max_dbs=8,
        mode=0o600,
        readonly=readonly,
        lib_version=0,
        max_spare_txns=4,
    )


def _create(data: Path) -> None:
    """Make the file elsewhere and move it here: then there is none, or a whole one."""
    with fresh_folder(data.parent / "new") as new:
        with _open(new, _NEW_BYTES) as env, env.begin(write=True) as txn:
            meta = env.open_db(b"meta", txn=txn)
            txn.put(b"format", b"%d" % FORMAT_VERSION, db=meta)
            txn.put(b"shard", b"0", db=meta)
        (new / "data.mdb").replace(data)
    sync_folder(data.parent)


def open_databases(env: Any, folder: Path, *, readonly: bool) -> dict[str, Any]:
    """Open the databases, once the file has said its format."""
    db: dict[str, Any] = {}
    if readonly:
        # A handle opened within a read-only transaction is lost with it.
        for name, dupsort in DATABASES:
            with suppress(lmdb.NotFoundError) if name in MAY_LACK else nullcontext():
                db[name] = env.open_db(name.encode(), create=False, dupsort=dupsort)
    with env.begin(write=not readonly) as txn:
        if not readonly:
            db["meta"] = env.open_db(b"meta", txn=txn)
        _check_format(folder, txn.get(b"format", db=db["meta"]))
        if not readonly:
            if not txn.cursor().set_key(b"failed"):  # an index that is made now is not complete
                txn.delete(INDEXED, db=db["meta"])
            for name, dupsort in DATABASES:
                db[name] = env.open_db(name.encode(), txn=txn, dupsort=dupsort)
    return db


def _check_format(folder: Path, found: bytes | None) -> None:
    if found is None or not found.isdigit():
        raise damaged(f"the log in {folder} does not say its format")
    if int(found) > FORMAT_VERSION:
        msg = f"the log in {folder} has format {int(found)}; this rota reads up to {FORMAT_VERSION}"
        raise LogTooNew(msg, hint="use the rota that wrote it, or a newer one")

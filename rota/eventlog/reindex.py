"""Making the indexes of a log anew from its records alone: what `rota reindex` does.

Every record is read in the order of the chain and written to another file, with its keys, branches
and indexes made anew. That file takes the place of the old one when it is whole and synced: whoever
is killed before leaves the old one as it was.
"""

from __future__ import annotations

from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING

from rota.eventlog.committer import GROUP_RECORDS_MAX
from rota.eventlog.data_folder import DataFolder, fresh_folder, give_to_owner_of, sync_folder
from rota.eventlog.lmdb_store import LmdbLog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rota.eventlog.port import Head


def reindex(folder: Path, progress: Callable[[int, int], None]) -> Head:
    """Write the log anew; give its head. Raises a LogError, also while a server uses it."""
    with (
        closing(LmdbLog(folder, readonly=True)) as old,
        closing(DataFolder(folder)),
        fresh_folder(folder / "new") as new,
    ):
        with closing(LmdbLog(new)) as log:
            epoch, records = log.claim(), old.in_order(progress)
            while group := list(islice(records, GROUP_RECORDS_MAX)):
                log.append(group, group[0].seq - 1, epoch)
            head = log.head()
        for path in (new / "data.mdb", folder / "lock"):
            give_to_owner_of(folder / "data.mdb", path)
        # LMDB's table of readers belongs to the old file: the new one must not meet it.
        (folder / "lock.mdb").unlink(missing_ok=True)
        (new / "data.mdb").replace(folder / "data.mdb")
        sync_folder(folder)
    return head

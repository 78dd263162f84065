"""What is done with a data folder offline: the jobs that shield.py runs in a child process."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import orjson

from rota.actors.recovery import rebuild
from rota.cli.shield import LOCATE, RECORDS, REINDEXING
from rota.cli.verification import INDEX, PAGES, verify
from rota.domain.packed import written
from rota.eventlog.lmdb_environment import look_at_pages
from rota.eventlog.lmdb_store import LmdbLog
from rota.eventlog.port import Head
from rota.eventlog.reindex import reindex
from rota.http import views

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Report = Callable[[int, int], None]
    Reports = Callable[[str], Report]


def verify_job(folder: Path, report: Reports, *, kept: list[Any] | None) -> dict[str, Any]:
    head = None if kept is None else Head(kept[0], bytes.fromhex(kept[1]))
    look_at_pages(folder, report(PAGES))
    with closing(LmdbLog(folder, readonly=True)) as log:
        log.epoch()
        found = verify(log, head, progress=report(RECORDS), index_progress=report(INDEX))
    return {**found._asdict(), "head": [found.head.seq, found.head.digest.hex()]}


def replay_job(
    folder: Path,
    report: Reports,
    *,
    until_seq: int | None,
    until_at: int | None,
    use_snapshots: bool,
    with_tasks: bool,
) -> dict[str, Any]:
    from rota.cli.audit import summary_of  # noqa: PLC0415 - which imports shield, and so this

    progress = report(RECORDS)
    with closing(LmdbLog(folder, readonly=True)) as log:
        head = log.head()
        total = head.seq if until_seq is None else min(until_seq, head.seq)
        state = rebuild(
            log,
            until_seq=until_seq,
            until_at=until_at,
            use_snapshots=use_snapshots,
            progress=lambda seq: progress(seq, total),
        )
    shown = [views.native(task) for task in state.tasks] if with_tasks else None
    return {"summary": summary_of(state, head), "tasks": orjson.loads(written(shown))}


def locate_job(folder: Path, report: Reports, *, after: int, every: int) -> None:
    """Read as far as the chain goes, and tell of each so-many-th record after `after`."""
    with closing(LmdbLog(folder, readonly=True)) as log:
        for _ in log.in_order(report(RECORDS), after=after, every=every):
            pass


def reindex_job(folder: Path, report: Reports) -> list[Any]:
    head = reindex(folder, report(RECORDS))
    return [head.seq, head.digest.hex()]


JOBS: dict[str, Callable[..., Any]] = {
    "verify": verify_job,
    "replay": replay_job,
    REINDEXING: reindex_job,
    LOCATE: locate_job,
}

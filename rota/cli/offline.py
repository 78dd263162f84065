"""What is done with a data folder offline: the jobs that shield.py runs in a child process."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from rota.actors.recovery import rebuild
from rota.cli.shield import LOCATE, RECORDS
from rota.cli.verification import INDEX, verify
from rota.eventlog.lmdb_store import LmdbLog
from rota.eventlog.port import Head
from rota.http import views

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Report = Callable[[int, int], None]
    Reports = Callable[[str], Report]


def verify_job(folder: Path, report: Reports, *, kept: list[Any] | None) -> dict[str, Any]:
    head = None if kept is None else Head(kept[0], bytes.fromhex(kept[1]))
    with closing(LmdbLog(folder, readonly=True)) as log:
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
    tasks = [views.native(task) for task in state.tasks] if with_tasks else None
    return {"summary": summary_of(state, head), "tasks": tasks}


def locate_job(folder: Path, report: Reports, *, after: int, stride: int) -> None:
    """Read on after a record that is good, so many at a time, to see how far that goes."""
    progress = report(RECORDS)
    with closing(LmdbLog(folder, readonly=True)) as log:
        while found := log.read(after, stride):
            after = found[-1].seq
            progress(after, after)


JOBS: dict[str, Callable[..., Any]] = {
    "verify": verify_job,
    "replay": replay_job,
    LOCATE: locate_job,
}

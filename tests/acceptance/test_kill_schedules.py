"""A server dies at every durability boundary while it makes up for missed moments: one task for each.

The log is that of a server which was shut down three months ago. Whoever starts it again has ninety
moments to make up for, of each of two schedules, and dies at one boundary after the other.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from support.clocks import SetClock
from support.http_server import Rota, until
from support.kill_harness import open_log, verify
from support.server_process import ServerFailed, ServerProcess

from rota.client.sync_client import JsonClient
from rota.domain import events as e
from rota.eventlog.codec import decode

if TYPE_CHECKING:
    from pathlib import Path

DAYS = 90
DAY_S = 86_400
POINTS = (
    "commit.begin:2", "commit.written:3", "commit.synced:2", "journal.recorded:9",
    "journal.durable:2", "pool.before_start:2", "pool.after_result:2", "recovery.folded",
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log with two schedules of ninety days ago."""
    rota = Rota(tmp_path, {}, SetClock(-DAYS * DAY_S))
    rota.start()
    task = {"agentId": "ann", "action": "echo"}
    for overlap in ("queue", "cancel"):
        body = {"name": overlap, "cron": "0 0 * * *", "task": task, "overlap": overlap}
        answer = rota.post("/v1/schedules", {**body, "catchUp": "all"})
        assert answer.status == 201, answer
    rota.stop()
    return tmp_path / "data"


def records(folder: Path) -> list[Any]:
    log = open_log(folder)
    try:
        return [decode(each.body) for each in log.read(0, 1 << 30)]
    finally:
        log.close()


def started(folder: Path) -> dict[str, list[int]]:
    """Give the moments that fired; each has made its task, in the next records."""
    found: dict[str, list[int]] = {}
    told = records(folder)
    born = Counter(r.event.task for r in told if isinstance(r.event, e.TaskSubmitted))
    fired = [r for r in told if isinstance(r.event, e.ScheduleFired)]
    for record in fired:
        if record.event.outcome == "started":
            assert born[record.event.subject] == 1, record
            after = [r.event for r in told[record.seq : record.seq + 2]]
            assert any(getattr(each, "task", None) == record.event.subject for each in after)
            found.setdefault(record.event.schedule, []).append(record.event.moment)
    assert sum(born.values()) == sum(map(len, found.values()))
    return found


def test_each_moment_makes_one_task_wherever_the_server_dies(folder: Path) -> None:
    for point in POINTS:
        server = ServerProcess(folder, env={"ROTA_CRASH_AT": point})
        try:
            server.start()
        except ServerFailed:
            pass  # it died before it could say that it listens
        else:
            assert server.wait() == -9, server.output()
        for moments in started(folder).values():
            assert len(set(moments)) == len(moments), point
    with ServerProcess(folder) as server, JsonClient(server.url) as rota:
        for name in ("queue", "cancel"):
            view = until(lambda name=name: (s := rota.get_schedule(name))["fired"] >= DAYS and s)
            assert (view["missed"], view["skipped"], view["waiting"]) == (0, 0, 0)
    for moments in started(folder).values():
        assert moments == sorted(set(moments))
        apart = {later - one for one, later in pairwise(moments)}
        assert apart == {DAY_S * 1_000_000}
    verify(folder)

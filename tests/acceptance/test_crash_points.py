"""A server dies at every durability boundary, by name, and is started again.

One story for each crash point says exactly what must and must not be in the log; then the points
that a load passes often are reached under load, where the general promises must hold.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest
from support.kill_harness import (
    Hooks,
    Ledger,
    Load,
    audited,
    client,
    compare,
    config,
    dies_at_its_point,
    get,
    hooks,
    open_log,
    serving,
    submit,
    submit_until_gone,
    until_quiet,
    until_state,
    verify,
)
from support.server_process import ServerFailed, ServerProcess

from rota.eventlog.crash_points import POINTS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from support.kill_harness import Audit

    Story = Callable[[Path, str, Hooks], Awaitable[None]]


async def recovered(folder: Path, acknowledged: list[str]) -> Audit:
    """Start clean, let everything end, stop in good order; give the audited log."""
    ledger = Ledger()
    ledger.acknowledged.update(acknowledged)
    before = audited(folder, ledger)
    async with serving(folder) as server, client() as session:
        await compare(session, server.url, before)
        for task in acknowledged:
            await get(session, f"{server.url}/v1/tasks/{task}")
        await until_quiet(session, server.url)
        assert await asyncio.to_thread(server.stop) == 0, server.output()
    audit = audited(folder, ledger)
    audit.check_all_ended()
    return audit


def kinds_of(audit: Audit, task: str) -> list[str]:
    """Tell one task's history by the kinds of its events."""
    return [kind for _, kind, about in audit.history if about == task]


# -- one story for each point --------------------------------------------------------------------


def dies_writing(submissions_in_the_log: int) -> Story:
    """The third of a row of submissions, each a commit of its own, is cut off."""

    async def story(folder: Path, point: str, target: Hooks) -> None:
        del target
        async with serving(folder, crash_at=f"{point}:4") as server, client() as session:
            acknowledged = await submit_until_gone(session, server.url, action="browse")
            await dies_at_its_point(server)
        assert len(acknowledged) == 2, "the third was never acknowledged"
        assert audited(folder).kinds["task_submitted"] == submissions_in_the_log
        await recovered(folder, acknowledged)

    return story


async def dies_before_an_attempt_starts(folder: Path, point: str, target: Hooks) -> None:
    """The task was assigned and never ran; the attempt is not spent."""
    del target
    async with serving(folder, crash_at=f"{point}:2") as server, client() as session:
        acknowledged = await submit_until_gone(session, server.url)
        await dies_at_its_point(server)
    first = audited(folder)
    [cut_off] = [task for task, phase in first.phase.items() if phase == "assigned"]
    audit = await recovered(folder, acknowledged)
    assert kinds_of(audit, cut_off) == [
        "task_submitted",
        "task_assigned",
        "attempt_interrupted",
        "task_assigned",
        "task_started",
        "task_succeeded",
    ]
    assert audit.state.tasks.by_id[cut_off].attempt == 1


async def dies_after_an_attempt_ended(folder: Path, point: str, target: Hooks) -> None:
    """The attempt ran to its end and nobody wrote it down: it runs again, at no cost."""
    del target
    async with serving(folder, crash_at=point) as server, client() as session:
        task = await submit(session, server.url, action="sleep", params={"ms": 50})
        await dies_at_its_point(server)
    assert audited(folder).phase[task] == "running"
    audit = await recovered(folder, [task])
    assert kinds_of(audit, task)[2:] == [
        "task_started",
        "attempt_interrupted",
        "task_assigned",
        "task_started",
        "task_succeeded",
    ]
    found = audit.state.tasks.by_id[task]
    assert (found.attempt, found.interruptions) == (1, 1)


def dies_delivering(sent_before: int) -> Story:
    """A callback is cut off before or after it was sent; it comes (again) under the same id."""

    async def story(folder: Path, point: str, target: Hooks) -> None:
        async with serving(folder, crash_at=point) as server, client() as session:
            task = await submit(session, server.url, callbackUrl=target.url)
            await dies_at_its_point(server)
        first = audited(folder)
        assert first.phase[task] == "succeeded"
        assert list(first.state.deliveries.pending) == [task], "the callback is still owed"
        assert len(target.ids().get(task, [])) == sent_before
        audit = await recovered(folder, [task])
        assert len(target.ids()[task]) == sent_before + 1
        target.check([task])
        [ended] = [seq for seq, kind, _ in audit.history if kind == "task_succeeded"]
        assert target.ids()[task][0] == f"dlv_{ended}_{task}"
        assert audit.kinds["delivery_succeeded"] == 1

    return story


def dies_saving_a_snapshot(kept: int) -> Story:
    """The server dies around its first snapshot; with it or without, the state is the same."""

    async def story(folder: Path, point: str, target: Hooks) -> None:
        del target
        settings = config()
        settings["server"]["snapshot_every_events"] = 100
        async with serving(folder, settings, point) as server, client() as session:
            acknowledged = await submit_until_gone(session, server.url)
            await dies_at_its_point(server)
        log = open_log(folder)
        snapshots = log.load_snapshots()
        log.close()
        assert len(snapshots) == kept
        assert bool(audited(folder).check_snapshots()) == bool(kept), "it is used if it is there"
        await recovered(folder, acknowledged)

    return story


async def dies_having_folded_the_log(folder: Path, point: str, target: Hooks) -> None:
    """A start that dies after reading changes nothing; the next one recovers all the same."""
    del target
    async with serving(folder) as server, client() as session:
        task = await submit(session, server.url, action="sleep", params={"ms": 300})
        await until_state(session, server.url, task, "running")
        await asyncio.to_thread(server.kill)
    before = audited(folder)
    for _ in range(2):
        server = ServerProcess(folder, config(), {"ROTA_CRASH_AT": point})
        with pytest.raises(ServerFailed) as failed:
            await asyncio.to_thread(server.start)
        assert failed.value.returncode == -9
    assert audited(folder).seq == before.seq, "nothing was written"
    audit = await recovered(folder, [task])
    found = audit.state.tasks.by_id[task]
    assert (found.attempt, found.interruptions) == (1, 1), "one interruption, however many starts"


async def dies_having_drained(folder: Path, point: str, target: Hooks) -> None:
    """The last records of an orderly stop are cut off: the next start is one after a crash."""
    del target
    settings = config()
    settings["server"]["grace_s"] = 0.1
    async with serving(folder, settings, point) as server, client() as session:
        task = await submit(session, server.url, action="sleep", params={"ms": 900})
        await until_state(session, server.url, task, "running")
        assert await asyncio.to_thread(server.stop) == -9
    first = audited(folder)
    assert first.phase[task] == "running"
    assert not first.kinds["server_stopped"]
    audit = await recovered(folder, [task])
    assert audit.kinds["attempt_interrupted"] == 1
    assert audit.state.tasks.by_id[task].attempt == 1


STORIES: dict[str, Any] = {
    "commit.begin": dies_writing(2),
    "commit.written": dies_writing(2),
    "commit.synced": dies_writing(3),
    "journal.recorded": dies_writing(2),
    "journal.durable": dies_writing(3),
    "pool.before_start": dies_before_an_attempt_starts,
    "pool.after_result": dies_after_an_attempt_ended,
    "webhook.before_send": dies_delivering(0),
    "webhook.after_send": dies_delivering(1),
    "snapshot.before_save": dies_saving_a_snapshot(0),
    "snapshot.written": dies_saving_a_snapshot(0),
    "snapshot.saved": dies_saving_a_snapshot(1),
    "recovery.folded": dies_having_folded_the_log,
    "shutdown.drained": dies_having_drained,
}


def test_every_crash_point_has_its_story() -> None:
    assert set(STORIES) == set(POINTS)


@pytest.mark.parametrize("point", POINTS)
def test_a_server_that_died_at_a_point_goes_on_where_it_was(tmp_path: Path, point: str) -> None:
    async def main() -> None:
        async with hooks() as target:
            await STORIES[point](tmp_path / "data", point, target)

    asyncio.run(main())


# -- under load ----------------------------------------------------------------------------------

UNDER_LOAD = {
    "commit.written": 60,
    "journal.durable": 55,
    "pool.before_start": 70,
    "pool.after_result": 65,
    "webhook.after_send": 5,
    "snapshot.before_save": 2,
}


@pytest.mark.parametrize(("point", "times"), UNDER_LOAD.items())
def test_nothing_acknowledged_is_lost_when_a_loaded_server_dies_at_a_point(
    tmp_path: Path, point: str, times: int
) -> None:
    async def main() -> None:
        folder = tmp_path / "data"
        ledger = Ledger()
        dice = random.Random(f"{point}:{times}")
        async with hooks() as target:
            async with serving(folder, crash_at=f"{point}:{times}") as server:
                load = Load(server.url, ledger, dice, target.url)
                async with asyncio.timeout(30):
                    await load.run()
                await dies_at_its_point(server)
            audit = audited(folder, ledger)
            async with serving(folder) as server, client() as session:
                await compare(session, server.url, audit)
                pull = await until_quiet(session, server.url)
                assert await asyncio.to_thread(server.stop) == 0, server.output()
            audit = audited(folder, ledger)
            audit.check_all_ended()
            target.check(ledger.with_callback - pull)
        verify(folder)

    asyncio.run(main())


def test_a_name_that_is_no_crash_point_is_refused(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data", None, {"ROTA_CRASH_AT": "commit.never"})
    with pytest.raises(ServerFailed, match="names no crash point") as failed:
        server.start()
    assert failed.value.returncode == 1

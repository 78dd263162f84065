"""Stopping and going on: what SIGTERM promises, and what an interruption costs.

An orderly stop lets running attempts end within the grace period, records the rest as interrupted,
and closes the log with `server_stopped`. Only real crashes count toward the five interruptions
after which a task fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from support.kill_harness import (
    END_S,
    audited,
    client,
    config,
    get,
    post,
    serving,
    submit,
    until_quiet,
    until_state,
)
from support.receivers import OK, receiving

if TYPE_CHECKING:
    from pathlib import Path

    import aiohttp
    from support.kill_harness import Audit
    from support.server_process import ServerProcess

LONG = {"action": "sleep", "params": {"ms": 60_000}}


def settings(grace_s: float, **scheduler: Any) -> dict[str, Any]:
    """Give a configuration with this grace period."""
    found = config(**scheduler)
    found["server"]["grace_s"] = grace_s
    return found


def told(audit: Audit, task: str) -> list[str]:
    """Tell one task's history by the kinds of its events."""
    return [kind for _, kind, about in audit.history if about == task]


def ahead(ms: int) -> str:
    """Give the moment so many milliseconds from now."""
    moment = datetime.now(UTC) + timedelta(milliseconds=ms)
    return moment.isoformat().replace("+00:00", "Z")


async def running(session: aiohttp.ClientSession, url: str, **fields: Any) -> str:
    """Submit a task and wait until it runs."""
    task = await submit(session, url, **fields)
    await until_state(session, url, task, "running")
    return task


async def stopped(server: ServerProcess, number: int = signal.SIGTERM) -> None:
    """Stop in good order."""
    code = await asyncio.to_thread(server.stop, number)
    assert code == 0, server.output()


async def until_drains(session: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    """Wait, on a connection that is already open, until the server says that it stops."""
    async with asyncio.timeout(END_S):
        while True:
            async with session.get(f"{url}/health/ready") as response:
                said: dict[str, Any] = await response.json()
                if response.status == 503:
                    return said
            await asyncio.sleep(0.005)


def test_an_attempt_that_ends_within_the_grace_period_is_recorded_and_one_that_does_not_resumes(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        folder = tmp_path / "data"
        limits = settings(0.8, maxPerAgentInflight=2)
        async with serving(folder, limits) as server, client() as session:
            long = await running(session, server.url, **LONG)
            short = await running(session, server.url, action="sleep", params={"ms": 500})
            queued = await submit(session, server.url)
            await stopped(server)
        audit = audited(folder)
        assert audit.history[-1][1] == "server_stopped"
        assert told(audit, short)[-1] == "task_succeeded"
        assert told(audit, long)[-1] == "attempt_interrupted"
        assert told(audit, queued) == ["task_submitted"], "nothing new is dispatched"
        assert audit.state.tasks.by_id[long].interruptions == 0
        async with serving(folder, limits) as server, client() as session:
            assert (await until_state(session, server.url, queued, "succeeded"))["attempt"] == 1
            view = await until_state(session, server.url, long, "running")
            assert view["attempt"] == 1, "the attempt was not spent"
            assert "interruptions" not in view, "an orderly stop does not count"
            events = (await get(session, f"{server.url}/v1/tasks/{long}/events"))["events"]
            [cut] = [event for event in events if event["kind"] == "attempt_interrupted"]
            assert cut["data"] == {"attempt": 1, "reason": "shutdown"}
            assert [e["data"]["attempt"] for e in events if e["kind"] == "task_assigned"] == [1, 1]
            status, _ = await post(session, f"{server.url}/v1/tasks/{long}/cancel")
            assert status == 200
            await stopped(server)
        audited(folder).check_all_ended()

    asyncio.run(main())


def test_a_draining_server_takes_no_work_and_still_answers_reads(tmp_path: Path) -> None:
    async def main() -> None:
        folder = tmp_path / "data"
        async with serving(folder, settings(1.5)) as server, client() as session:
            long = await running(session, server.url, action="sleep", params={"ms": 700})
            stopping = asyncio.create_task(stopped(server))
            said = await until_drains(session, server.url)
            assert said["reason"] == "stopping"
            status, body = await post(
                session, f"{server.url}/v1/tasks", {"agentId": "a1", "action": "echo"}
            )
            assert (status, body["code"]) == (503, "shutting_down")
            assert body["retryable"] is True
            view = await get(session, f"{server.url}/v1/tasks/{long}")
            assert view["state"] == "running"
            await stopping
        audit = audited(folder)
        assert audit.kinds["task_submitted"] == 1, "what was refused was not stored"
        assert audit.phase[long] == "succeeded"

    asyncio.run(main())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_server_stops_at_once_with_exit_code_0(tmp_path: Path, number: int) -> None:
    async def main() -> None:
        folder = tmp_path / "data"
        async with serving(folder, settings(20)) as server, client() as session:
            task = await submit(session, server.url)
            await until_quiet(session, server.url)
            async with asyncio.timeout(10):
                await stopped(server, number)
        audit = audited(folder)
        assert audit.phase[task] == "succeeded"
        assert audit.history[-1][1] == "server_stopped"
        assert audit.check_snapshots() == audit.seq, "the last snapshot is of the whole log"

    asyncio.run(main())


def test_server_stopped_is_the_last_event_even_if_a_request_holds_up_the_end(
    tmp_path: Path,
) -> None:
    """A body that never comes keeps a connection open while deadlines pass and a callback ends."""

    async def main() -> None:
        folder = tmp_path / "data"

        async def slow(writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(0.2)
            writer.write(OK)
            await writer.drain()

        async with (
            receiving(slow) as receiver,
            serving(folder, settings(0.1)) as server,
            client() as session,
        ):
            for ms in range(200, 2200, 200):
                text = ahead(ms)
                await submit(session, server.url, action="browse", deadline=text)
            await submit(session, server.url, agentId="a2", callbackUrl=receiver.url())
            await receiver.wait_for_requests(1)
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(
                b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
            )
            await writer.drain()
            await get(session, f"{server.url}/v1/stats")
            await stopped(server)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        kinds = [kind for _, kind, _ in audited(folder).history]
        assert kinds.count("server_stopped") == 1
        assert kinds[-1] == "server_stopped", kinds[-5:]

    asyncio.run(main())


def test_the_fifth_crash_fails_a_task_and_orderly_restarts_do_not_count(tmp_path: Path) -> None:
    async def main() -> None:
        folder = tmp_path / "data"
        task = ""
        for crashes, orderly in enumerate([False, True, False, True, False, False, False]):
            async with serving(folder, settings(0.01)) as server, client() as session:
                if not task:
                    task = await submit(session, server.url, **LONG)
                view = await until_state(session, server.url, task, "running")
                assert view["attempt"] == 1, crashes
                if orderly:
                    await stopped(server)
                else:
                    assert await asyncio.to_thread(server.kill) == -9
        async with serving(folder) as server, client() as session:
            view = await until_state(session, server.url, task, "failed")
            assert view["error"] == {"code": "interrupted", "message": "interrupted 5 times"}
            assert view["interruptions"] == 5
            other = await submit(session, server.url)
            await until_state(session, server.url, other, "succeeded")
            await stopped(server)
        audit = audited(folder)
        assert told(audit, task).count("attempt_interrupted") == 7
        audit.check_all_ended()

    asyncio.run(main())


@pytest.mark.parametrize("orderly", [False, True], ids=["crash", "orderly stop"])
def test_a_task_that_must_not_run_twice_fails_when_it_is_interrupted(
    tmp_path: Path, *, orderly: bool
) -> None:
    async def main() -> None:
        folder = tmp_path / "data"
        async with receiving() as receiver:
            fields = {**LONG, "onInterrupt": "fail", "callbackUrl": receiver.url()}
            async with serving(folder, settings(0.01)) as server, client() as session:
                task = await running(session, server.url, **fields)
                await (stopped(server) if orderly else asyncio.to_thread(server.kill))
            async with serving(folder) as server, client() as session:
                view = await until_state(session, server.url, task, "failed")
                assert view["error"]["code"] == "interrupted"
                await until_quiet(session, server.url)
                await stopped(server)
            assert len(receiver.requests) == 1, "its end is told"
        audit = audited(folder)
        assert told(audit, task).count("task_started") == 1, "it ran once"
        audit.check_all_ended()

    asyncio.run(main())

"""Leases of a real server: they outlive kill -9, and two hundred workers that wait use no CPU."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from acceptance.test_idle import CPU_MS_MAX, MEASURED_S, SWITCHES_PER_S_MAX, settled, used
from support.http_server import Client
from support.kill_harness import client, config, get, post, serving, submit, verify
from support.leasing import say, take, take_one
from support.server_process import ServerProcess

WAITING = 200


def plain(server: ServerProcess) -> Client:
    """Give a client of a server."""
    made = Client()
    made.port = server.port
    return made


def test_leases_outlive_kill_9_and_their_workers_go_on(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with ServerProcess(folder) as server:
        rota = plain(server)
        tasks = [rota.submit_native("ann", "fit", params={"n": n}) for n in range(6)]
        leases = take(rota, max=6, leaseMs=60_000)
        assert [lease["taskId"] for lease in leases] == tasks
        assert say(rota, leases[0], "complete", result="before").status == 200
        assert say(rota, leases[1], "heartbeat", progress=50).status == 200
        server.kill()
    with ServerProcess(folder) as server:
        rota = plain(server)
        [row] = rota.get("/v1/workers").json["workers"]
        assert (row["workerId"], row["holds"]) == ("ada", 5)
        assert take(rota, "ben", max=10) == []
        assert say(rota, leases[0], "complete").code == "stale_attempt"
        assert say(rota, leases[1], "heartbeat").status == 200
        for lease in leases[1:4]:
            assert say(rota, lease, "complete", result="after").status == 200
        assert say(rota, leases[4], "fail", error="no").status == 200
        assert say(rota, leases[5], "release").status == 200
        assert take_one(rota, "ben")["taskId"] == tasks[5]
        for task in tasks[:5]:
            assert "attempt_interrupted" not in rota.kinds(task)
        assert rota.kinds(tasks[1])[-2:] == ["lease_ended", "task_succeeded"]
        server.stop()
    verify(folder)


def test_a_worker_that_waits_hears_of_the_servers_end_and_comes_again(tmp_path: Path) -> None:
    folder = tmp_path / "data"

    async def main() -> None:
        async with serving(folder, config()) as server, client() as session:
            asked = asyncio.create_task(ask(session, server.url, "ada", 30_000))
            await until_waiting(session, server.url, 1)
            await asyncio.to_thread(server.stop)
            assert await asked == []

    asyncio.run(main())
    verify(folder)


async def ask(session: Any, url: str, worker: str, wait_ms: int) -> list[Any]:
    """Wait for tasks of a type of its own."""
    body = {"workerId": worker, "waitMs": wait_ms, "types": [f"for-{worker}"]}
    status, said = await post(session, f"{url}/v1/leases", body)
    assert status == 200, said
    leases: list[Any] = said["leases"]
    return leases


async def until_waiting(session: Any, url: str, count: int) -> None:
    """Wait until so many workers wait."""
    async with asyncio.timeout(20):
        while True:
            rows = (await get(session, f"{url}/v1/workers?limit=1000"))["workers"]
            if sum(row["waiting"] for row in rows) == count:
                return
            await asyncio.sleep(0.02)


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="there is no schedstat")
def test_two_hundred_workers_that_wait_use_no_cpu(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            serving(tmp_path / "data", config()) as server,
            client() as session,
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as many,
        ):
            for n in range(10):
                await submit(session, server.url, action=f"for-nobody-{n}")
            asked = [
                asyncio.create_task(ask(many, server.url, f"w{n}", 60_000)) for n in range(WAITING)
            ]
            await until_waiting(session, server.url, WAITING)
            before = await settled(server.pid)
            start = time.monotonic()
            await asyncio.sleep(MEASURED_S)
            after = used(server.pid)
            span = time.monotonic() - start
            task = await submit(session, server.url, action="for-w7")
            [lease] = await asyncio.wait_for(asked[7], 10)
            assert lease["taskId"] == task
            assert sum(each.done() for each in asked) == 1
            for each in asked:
                each.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        cpu_ms = after.cpu_ms - before.cpu_ms
        switches = (after.switches - before.switches) / span
        measured = f"idle for {span:.1f} s: {cpu_ms:.2f} ms of CPU, {switches:.0f} switches per s"
        assert cpu_ms < CPU_MS_MAX, measured
        assert switches < SWITCHES_PER_S_MAX, measured

    asyncio.run(main())

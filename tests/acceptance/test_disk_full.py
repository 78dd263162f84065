"""A real server on a disk that fills up: read-only while it is full, and back by itself after.

The disk is filled in two ways: RLIMIT_FSIZE set on the running process from outside, and, where
the tests may mount, a small tmpfs. A small map is no full disk: it grows and nobody notices.
"""

from __future__ import annotations

import asyncio
import random
import resource
import sys
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from support.disks import small_disk
from support.kill_harness import (
    Ledger,
    Load,
    audited,
    client,
    compare,
    config,
    get,
    hooks,
    post,
    serving,
    submit,
    until,
    until_quiet,
    until_state,
)
from support.server_process import ServerFailed, ServerProcess

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import aiohttp

BACK_S = 12.0
ROOMY: dict[str, Any] = {"maxQueueSize": 100_000, "maxPerAgent": 100_000}
UNKNOWN = "/v1/tasks/tsk_00000000"
PAD = {"pad": "x" * 20_000}


def limit_files(server: ServerProcess, size: int) -> None:
    """Let the server's files grow to `size` bytes and no further."""
    _, hard = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (size, hard))


def free_files(server: ServerProcess) -> None:
    """Take the limit away."""
    _, hard = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (hard, hard))


async def fill(session: aiohttp.ClientSession, url: str, kept: list[str]) -> dict[str, Any]:
    """Submit until the disk is full; give the first refusal."""
    body = {"agentId": "a1", "action": "browse", "params": PAD}
    for _ in range(2000):
        status, said = await post(session, f"{url}/v1/tasks", body)
        if status != 202:
            assert (status, said["code"]) == (503, "storage_unavailable"), said
            return said
        kept.append(said["taskId"])
    msg = "the disk never filled up"
    raise AssertionError(msg)


async def read(session: aiohttp.ClientSession, url: str) -> tuple[int, dict[str, Any]]:
    """GET; give the status and the answer."""
    async with session.get(url) as response:
        return response.status, orjson.loads(await response.read())


async def until_ready(session: aiohttp.ClientSession, url: str) -> None:
    """Wait until the server takes work again."""
    async with asyncio.timeout(BACK_S):
        while True:
            async with session.get(f"{url}/health/ready") as response:
                if response.status == 200:
                    return
            await asyncio.sleep(0.05)


async def check_read_only(
    session: aiohttp.ClientSession, url: str, kept: list[str], cancel: str
) -> None:
    """Reads and /health go on; whatever would write is refused."""
    health = await get(session, f"{url}/health")
    assert health["status"] == "degraded"
    assert health["reason"]
    async with session.get(f"{url}/health/ready") as response:
        assert response.status == 503
        assert (await response.json())["reason"] == health["reason"]
    await get(session, f"{url}/health/live")
    for task in kept:
        view = await get(session, f"{url}/v1/tasks/{task}")
        assert view["taskId"] == task
    listed = await get(session, f"{url}/v1/tasks?limit=1000")
    assert {row["taskId"] for row in listed["tasks"]} >= set(kept[-900:])
    await get(session, f"{url}/v1/events?limit=1000")
    await get(session, f"{url}/v1/stats")
    async with session.get(url + UNKNOWN) as response:
        assert response.status == 404
    refused = [
        ("/v1/tasks", {"agentId": "a1", "action": "echo"}),
        (f"/v1/tasks/{cancel}/cancel", None),
        ("/tasks/batch", {"agentId": "a1", "tasks": [{"action": "echo"}]}),
        ("/v1/agents/a1/pause", None),
    ]
    for path, body in refused:
        status, said = await post(session, f"{url}{path}", body)
        assert (status, said["code"]) == (503, "storage_unavailable"), (path, said)
        assert said["retryable"] is True


async def fill_and_free(
    server: ServerProcess, full: Callable[[], None], free: Callable[[], None]
) -> list[str]:
    """Fill the disk, look round, make room, and see all of it end."""
    url = server.url
    async with client() as session:
        done = [await submit(session, url) for _ in range(10)]
        for task in done:
            await until_state(session, url, task, "succeeded")
        runs = await submit(session, url, agentId="a2", action="sleep", params={"ms": 60_000})
        await until_state(session, url, runs, "running")
        waits = await submit(session, url, action="browse")
        kept = [*done, runs, waits]
        full()
        said = await fill(session, url, kept)
        assert said["retryable"] is True
        await check_read_only(session, url, kept, waits)
        free()
        await until_ready(session, url)
        assert (await get(session, f"{url}/health"))["status"] == "ok"
        after = await submit(session, url)
        await until_state(session, url, after, "succeeded")
        view = await until_state(session, url, runs, "running")
        assert view["attempt"] == 1
        assert (await post(session, f"{url}/v1/tasks/{runs}/cancel"))[0] == 200
        await compare(session, url, audited(server.data_dir))
    return [*kept, after]


def test_a_full_disk_makes_the_server_read_only_until_there_is_room(tmp_path: Path) -> None:
    async def main() -> None:
        folder = tmp_path / "data"
        ledger = Ledger()
        async with serving(folder, config(**ROOMY)) as server:

            def full() -> None:
                limit_files(server, (folder / "data.mdb").stat().st_size + 400_000)

            kept = await fill_and_free(server, full, lambda: free_files(server))
            ledger.acknowledged.update(kept)
            assert await asyncio.to_thread(server.stop) == 0, server.output()
        audit = audited(folder, ledger)
        assert audit.kinds["task_submitted"] == len(kept), "what was refused was not stored"
        audit.check_all_ended()

    asyncio.run(main())


def test_a_file_system_without_space_is_survived_and_resumed(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "3m") as disk:

        async def main() -> None:
            folder = disk / "data"
            ballast = disk / "ballast"
            ballast.write_bytes(bytes(1 << 20))
            ledger = Ledger()
            async with serving(folder, config(**ROOMY)) as server:
                kept = await fill_and_free(server, lambda: None, ballast.unlink)
                ledger.acknowledged.update(kept)
                assert await asyncio.to_thread(server.stop) == 0, server.output()
            audit = audited(folder, ledger)
            assert audit.kinds["task_submitted"] == len(kept)

        asyncio.run(main())


def test_a_server_killed_or_stopped_on_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        folder = tmp_path / "data"
        kept: list[str] = []
        for stop in ("stop", "kill"):
            async with serving(folder, config(**ROOMY)) as server, client() as session:
                limit_files(server, (folder / "data.mdb").stat().st_size + 300_000)
                await fill(session, server.url, kept)
                code = await asyncio.to_thread(getattr(server, stop))
                assert code == (0 if stop == "stop" else -9), server.output()
        async with serving(folder, config(**ROOMY)) as server, client() as session:
            for task in kept:
                assert (await get(session, f"{server.url}/v1/tasks/{task}"))["state"] == "ready"
        ledger = Ledger()
        ledger.acknowledged.update(kept)
        assert audited(folder, ledger).kinds["task_submitted"] == len(kept)

    asyncio.run(main())


class Crowd:
    """Clients that write and read without a pause, and keep what they were told."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url
        self.stop = asyncio.Event()
        self.ledger = Ledger()
        self.answers: set[tuple[int, str]] = set()

    async def write(self, number: int) -> None:
        """Submit tasks."""
        body = {"agentId": f"a{number}", "action": "echo", "params": PAD}
        while not self.stop.is_set():
            status, said = await post(self._session, f"{self._url}/v1/tasks", body)
            self.answers.add((status, said.get("code", "")))
            if status == 202:
                self.ledger.acknowledged.add(said["taskId"])
            else:
                await asyncio.sleep(0.01)

    async def read(self) -> None:
        """Look at everything; a look that waited for what was then lost is repeated once."""
        paths = ["/v1/tasks?limit=5", "/v1/events?limit=5", "/v1/stats", "/health", UNKNOWN]
        dice = random.Random(1)
        while not self.stop.is_set():
            path = dice.choice(paths)
            status, said = await read(self._session, self._url + path)
            if said.get("code") == "storage_unavailable":
                status, said = await read(self._session, self._url + path)
            assert status == (404 if path == UNKNOWN else 200), (path, status, said)
            await asyncio.sleep(0.002)


def test_clients_see_only_storage_unavailable_while_the_disk_fills_under_load(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        folder = tmp_path / "data"
        async with serving(folder, config(**ROOMY)) as server, client() as session:
            limit_files(server, (folder / "data.mdb").stat().st_size + 500_000)
            crowd = Crowd(session, server.url)
            async with asyncio.timeout(40), asyncio.TaskGroup() as group:
                for number in range(4):
                    group.create_task(crowd.write(number))
                group.create_task(crowd.read())
                group.create_task(crowd.read())
                await until(lambda: server.output().count("the log still fails") >= 2)
                free_files(server)
                await until_ready(session, server.url)
                before = len(crowd.ledger.acknowledged)
                await until(lambda: len(crowd.ledger.acknowledged) >= before + 20)
                crowd.stop.set()
            await until_quiet(session, server.url)
            await compare(session, server.url, audited(folder))
            assert await asyncio.to_thread(server.stop) == 0, server.output()
        assert crowd.answers == {(202, ""), (503, "storage_unavailable")}
        audited(folder, crowd.ledger).check_all_ended()

    asyncio.run(main())


class LimitedServer(ServerProcess):
    """A server whose files may not grow from its first moment on."""

    size = 0

    def command(self) -> list[str]:
        """Set the limit, then become the server."""
        code = (
            "import os, resource, sys\n"
            f"resource.setrlimit(resource.RLIMIT_FSIZE, ({self.size}, {self.size}))\n"
            "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
        )
        return [sys.executable, "-c", code, *super().command()[1:]]


def test_a_server_cannot_start_on_a_full_disk_and_says_so(tmp_path: Path) -> None:
    server = LimitedServer(tmp_path / "data")
    server.size = 8192
    with pytest.raises(ServerFailed) as failed:
        server.start()
    assert failed.value.returncode == 1, failed.value.output
    assert "Traceback" not in failed.value.output, failed.value.output
    assert str(tmp_path / "data") in failed.value.output or "free space" in failed.value.output


def test_a_small_map_grows_under_load_and_no_client_notices(tmp_path: Path) -> None:
    async def main() -> None:
        folder = tmp_path / "data"
        settings = config()
        settings["server"]["map_bytes"] = 131_072
        ledger = Ledger()
        async with hooks() as target, serving(folder, settings) as server:
            load = Load(server.url, ledger, random.Random(5), target.url)
            loading = asyncio.create_task(load.run())
            async with client() as session, asyncio.timeout(20):
                for number in range(60):
                    body = {"agentId": "big", "action": "echo", "params": PAD}
                    status, said = await post(session, f"{server.url}/v1/tasks", body)
                    assert status in (202, 429), (number, said)
                loading.cancel()
                await asyncio.gather(loading, return_exceptions=True)
                await until_quiet(session, server.url)
                assert (await get(session, f"{server.url}/health"))["status"] == "ok"
                await compare(session, server.url, audited(folder, ledger))
            assert await asyncio.to_thread(server.stop) == 0, server.output()
            assert "ERROR" not in server.output(), server.output()
        assert (folder / "data.mdb").stat().st_size > 4 * 131_072
        audited(folder, ledger).check_all_ended()

    asyncio.run(main())

"""An idle server uses no CPU, and a thousand open streams cost only their sockets.

What it uses is read from /proc: nanoseconds on a CPU and voluntary switches, over all threads.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from support.kill_harness import client, config, get, hooks, serving, submit, until_quiet

from rota.config import STREAMS_MAX

MEASURED_S = 3.0
CPU_MS_MAX = 50.0
SWITCHES_PER_S_MAX = 60.0
EACH_MAX = STREAMS_MAX // 2
"""The share of one caller."""


class Use(NamedTuple):
    """What a process has used so far."""

    cpu_ms: float
    switches: int


def used(pid: int) -> Use:
    """Read it for all threads of a process."""
    ns = switches = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        ns += int((thread / "schedstat").read_text().split()[0])
        for line in (thread / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches:"):
                switches += int(line.split()[1])
    return Use(ns / 1e6, switches)


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="there is no schedstat")
@pytest.mark.parametrize("history", [False, True], ids=["fresh", "after work"])
def test_an_idle_server_uses_no_cpu(tmp_path: Path, *, history: bool) -> None:
    async def main() -> None:
        async with hooks() as target, serving(tmp_path / "data", config()) as server:
            assert server.config_path is not None, "the file is watched"
            async with client() as session:
                for _ in range(20 if history else 0):
                    await submit(session, server.url, callbackUrl=target.url)
                    await submit(session, server.url, action="sleep", params={"ms": 10})
                await submit(session, server.url, action="browse")
                await until_quiet(session, server.url)
            before = await settled(server.pid)
            start = time.monotonic()
            await asyncio.sleep(MEASURED_S)
            after = used(server.pid)
            span = time.monotonic() - start
        cpu_ms = after.cpu_ms - before.cpu_ms
        switches = (after.switches - before.switches) / span
        measured = f"idle for {span:.1f} s: {cpu_ms:.2f} ms of CPU, {switches:.0f} switches per s"
        assert cpu_ms < CPU_MS_MAX, measured
        assert switches < SWITCHES_PER_S_MAX, measured

    asyncio.run(main())


async def settled(pid: int) -> Use:
    """Wait until the process has stopped being busy with what came before."""
    before = used(pid)
    for _ in range(50):
        await asyncio.sleep(0.1)
        after = used(pid)
        if after.cpu_ms - before.cpu_ms < 2:
            return after
        before = after
    return before


async def open_stream(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a stream of events and read its greeting."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /v1/events/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    await reader.readuntil(b": rota event stream\n\n")
    return reader, writer


def test_a_callers_share_of_streams_stays_open_and_all_get_the_next_event(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path / "data", config()) as server, client() as session:
            streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
            async with asyncio.timeout(40):
                for _ in range(EACH_MAX // 50):
                    opening = (open_stream(server.port) for _ in range(50))
                    streams += await asyncio.gather(*opening)
                assert len(streams) == EACH_MAX == 500
                async with session.get(f"{server.url}/v1/events/stream") as response:
                    assert response.status == 503
                    assert (await response.json())["code"] == "too_many_streams"
                task = await submit(session, server.url, action="browse")
                words = f'"kind":"task_submitted","v":1,"task":"{task}"'.encode()
                await asyncio.gather(*(reader.readuntil(words) for reader, _ in streams))
                await get(session, f"{server.url}/health")
            for _, writer in streams[: EACH_MAX // 2]:
                writer.close()
            other = await submit(session, server.url, action="browse")
            words = f'"task":"{other}"'.encode()
            async with asyncio.timeout(20):
                rest = streams[EACH_MAX // 2 :]
                await asyncio.gather(*(reader.readuntil(words) for reader, _ in rest))
            assert await asyncio.to_thread(server.stop) == 0, server.output()
            async with asyncio.timeout(20):
                endings = await asyncio.gather(*(reader.read() for reader, _ in rest))
            assert all(ending.endswith(b"0\r\n\r\n") for ending in endings), "ended in good order"
            for _, writer in rest:
                writer.close()

    asyncio.run(main())

"""What do workers cost: whole lives by lease and settle, the way to a waiting one, a thousand?

In one run: the plain lifecycle without HTTP (lifecycle.py); as many lives by one process of a
worker; from submit to the first line of a waiting function, next to a builtin; the CPU of
a server with a thousand waiting workers; the cost of a grant then, next to that with one worker.
"""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import uvloop
from common import arguments, median, percentile, report, rota_server, temp_folder
from lifecycle import one_round

from rota.client import Worker
from rota.client.client import AsyncJsonClient

SHARE, TIMES = 0.5, 2.0
CONCURRENCY = 256
WAITING = 1000
MODULE = """
from rota.client import Worker

worker = Worker(concurrency={n}, prefetch={n})


@worker.task("live")
async def live(x):
    return x
"""


async def lives(url, folder, count):
    """Submit tasks under a pause, let one worker process do them all; give tasks a second."""
    (folder / "living.py").write_text(MODULE.format(n=CONCURRENCY))
    async with AsyncJsonClient(url, timeout_s=120) as rota:
        await rota.pause()
        last = None
        for at in range(0, count, 1000):
            items = [{"action": "live", "params": {"x": n}} for n in range(at, at + 1000)]
            last = await rota.submit_batch(items, agent=f"agent-{at % 64}")
        command = [sys.executable, "-m", "rota", "worker", "living", "--quiet", "--url", url]
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        process = subprocess.Popen(command, cwd=folder, env=env)  # noqa: ASYNC220
        try:
            while not (await rota.workers())["workers"]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            start = time.perf_counter()
            await rota.resume()
            done = 0
            async for event in rota.stream(after=0, kinds=("task_succeeded",)):
                done += event["kind"] == "task_succeeded"
                if done >= count:
                    break
            assert last is not None
            return count / (time.perf_counter() - start)
        finally:
            process.terminate()
            process.wait(60)


async def latencies(url, count):
    """Give seconds from submit to the first line of a waiting function, and to a builtin's end."""
    worker = Worker(url)
    began = asyncio.Queue()

    @worker.task("wake")
    async def wake():
        began.put_nowait(time.perf_counter())

    run = asyncio.create_task(worker.run(signals=False))
    ours, builtin = [], []
    async with AsyncJsonClient(url) as rota:
        await asyncio.sleep(0.5)
        for _ in range(count):
            start = time.perf_counter()
            await rota.submit("wake", "latency")
            ours.append(await began.get() - start)
            await asyncio.sleep(0.005)
        for _ in range(count):
            start = time.perf_counter()
            task = await rota.submit("echo", "latency")
            await rota.wait(task["taskId"], 10)
            builtin.append(time.perf_counter() - start)
            await asyncio.sleep(0.005)
    worker.stop()
    await run
    return ours, builtin


def cpu_s(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def at_rest(pid):
    """Let a server end what it does about the past, such as a snapshot of all those tasks."""
    for _ in range(30):
        before = cpu_s(pid)
        await asyncio.sleep(2)
        if cpu_s(pid) - before < 0.02:
            return


async def crowd(url, pid, grants):
    """Let a thousand workers wait with filters of their own: CPU of 10 s, then grants."""

    async def grant_s(rota):
        spent = []
        for _ in range(grants):
            start = time.perf_counter()
            leased = await rota.lease("one", actions=["crowd"])
            spent.append(time.perf_counter() - start)
            (held,) = leased["leases"]
            await rota.complete(held["leaseId"], held["token"])
        return median(spent)

    async with (
        AsyncJsonClient(url, timeout_s=120) as rota,
        AsyncJsonClient(url, timeout_s=120) as others,
    ):
        others._opened().connector._limit = 0  # noqa: SLF001 - more at once than a program needs
        for _ in range(100):
            await rota.submit_batch([{"action": "crowd"} for _ in range(1000)], agent="crowd")
        alone = await grant_s(rota)
        polls = [
            asyncio.create_task(others.lease(f"w{n}", actions=[f"type-{n}"], wait_s=60))
            for n in range(WAITING)
        ]
        await asyncio.sleep(5)
        await at_rest(pid)
        before = cpu_s(pid)
        await asyncio.sleep(10)
        idle = cpu_s(pid) - before
        crowded = await grant_s(rota)
        for poll in polls:
            poll.cancel()
        await asyncio.gather(*polls, return_exceptions=True)
    return idle, alone, crowded


def main():
    args = arguments(
        __doc__.splitlines()[0],
        tasks=(20_000, "whole lives"),
        samples=(500, "submissions one by one"),
        grants=(300, "grants, with one worker and with a thousand"),
    )
    with temp_folder() as folder:
        plain = uvloop.run(one_round(folder / "plain", args.tasks, 1000))
        with rota_server(folder) as (port, process):
            url = f"http://127.0.0.1:{port}"
            by_worker = asyncio.run(lives(url, folder, args.tasks))
            ours, builtin = asyncio.run(latencies(url, args.samples))
            idle, alone, crowded = asyncio.run(crowd(url, process.pid, args.grants))
    share, times = by_worker / plain, crowded / alone
    rows = [
        ("full lifecycle without HTTP", plain, "tasks/s", "", None),
        ("by one worker process and settle", by_worker, "tasks/s", "", None),
        ("share of the plain lifecycle", share, "x", f"at least {SHARE}", share >= SHARE),
        ("submit to a waiting function p50", percentile(ours, 50) * 1e3, "ms", "", None),
        ("submit to a waiting function p99", percentile(ours, 99) * 1e3, "ms", "", None),
        ("submit to the end of a builtin p50", percentile(builtin, 50) * 1e3, "ms", "", None),
        ("submit to the end of a builtin p99", percentile(builtin, 99) * 1e3, "ms", "", None),
        (f"CPU in 10 s, {WAITING} waiting", idle, "s", "", None),
        ("a grant, one worker, p50", alone * 1e3, "ms", "", None),
        (f"a grant, {WAITING} others wait, p50", crowded * 1e3, "ms", "", None),
        ("ratio of the two", times, "x", f"at most {TIMES}", times <= TIMES),
    ]
    report("workers", rows, as_json=args.json)


if __name__ == "__main__":
    main()

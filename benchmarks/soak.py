"""What does a server look like after ten minutes of everything at once?

Clients submit plain tasks, batches with dependencies, tasks that fail and are tried again, tasks
with callbacks and keys; others cancel, wait, read the feed, read it and stop reading, go away in
the middle, or send too much. Each minute a row: tasks ended a second, memory, descriptors, disk,
latency of a submission. At the end all that was taken must have ended, and the log must verify.
"""

import asyncio
import json
import os
import random
import subprocess
import sys
import time

import aiohttp
from aiohttp import web
from common import arguments, percentile, report, rota_server, temp_folder
from watch import disk_mb, memory_mb

AGENTS = 50
CALM_S = 60


class Soak:
    """One run."""

    def __init__(self, port, seconds):
        self.url = f"http://127.0.0.1:{port}"
        self.end = time.monotonic() + seconds
        self.rng = random.Random(1)
        self.latencies = []
        self.statuses = {}
        self.called_back = 0
        self.promised = 0

    def is_over(self):
        return time.monotonic() >= self.end

    async def post(self, path, body, headers=None):
        """Send something that is taken, or refused in good order."""
        start = time.perf_counter()
        async with self.session.post(self.url + path, json=body, headers=headers) as answer:
            await answer.read()
            self.latencies.append((time.perf_counter() - start) * 1000)
            self.statuses[answer.status] = self.statuses.get(answer.status, 0) + 1
            return answer.status, await answer.json()

    def task(self):
        """Make up a task."""
        rng = self.rng
        body = {"agentId": f"agent-{rng.randrange(AGENTS)}", "priority": rng.randrange(4)}
        kind = rng.random()
        if kind < 0.6:
            body |= {"action": "echo", "params": {"text": "x" * rng.choice((10, 10, 1000, 20_000))}}
        elif kind < 0.8:
            body |= {"action": "sleep", "params": {"ms": rng.randrange(50)}, "timeoutMs": 40}
        else:
            retry = {"kind": "fixed", "baseMs": 200, "maxAttempts": 2}
            body |= {"action": "fail", "retry": retry}
        if rng.random() < 0.1:
            body["callbackUrl"] = self.receiver
        if rng.random() < 0.1:
            body["key"] = f"key-{rng.randrange(20)}"
        return body

    async def submitter(self):
        while not self.is_over():
            headers = {}
            if self.rng.random() < 0.1:
                headers["Idempotency-Key"] = f"k{self.rng.randrange(1 << 40)}"
            body = self.task()
            status, answer = await self.post("/v1/tasks", body, headers)
            self.promised += status == 202 and "callbackUrl" in body
            if status == 202 and self.rng.random() < 0.02:
                await self.post(f"/v1/tasks/{answer['taskId']}/cancel", {})
            await asyncio.sleep(0.02)

    async def batcher(self):
        while not self.is_over():
            items = [{"action": "echo", "ref": f"r{n}"} for n in range(20)]
            for n in range(1, 20):
                items[n]["dependsOn"] = [f"ref:r{self.rng.randrange(n)}"]
            agent = f"agent-{self.rng.randrange(AGENTS)}"
            await self.post("/v1/batches", {"agentId": agent, "tasks": items})
            await asyncio.sleep(0.2)

    async def flooder(self):
        """One agent that sends more than its queue takes."""
        body = {"agentId": "flood", "action": "nobody-does-this", "deadline": None}
        while not self.is_over():
            body["deadline"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 30))
            for _ in range(150):
                await self.post("/v1/tasks", body)
            await asyncio.sleep(5)

    async def reader(self, *, is_lazy):
        """Follow the feed; a lazy one stops reading, and goes away after a while."""
        while not self.is_over():
            path = "/v1/events/stream" + ("?after=0" if is_lazy else "")
            async with self.session.get(self.url + path, timeout=None) as answer:
                until = time.monotonic() + (5 if is_lazy else 30)
                while time.monotonic() < until and not self.is_over():
                    if is_lazy:
                        await asyncio.sleep(1)
                    elif not await answer.content.readany():
                        break

    async def waiter(self):
        """Wait for tasks, and leave before they end."""
        while not self.is_over():
            body = {"agentId": "waits", "action": "sleep", "params": {"ms": 300}}
            status, answer = await self.post("/v1/tasks", body)
            if status == 202:
                try:
                    path = f"/v1/tasks/{answer['taskId']}?waitMs=30000"
                    patience = aiohttp.ClientTimeout(self.rng.choice((0.1, 2)))
                    async with self.session.get(self.url + path, timeout=patience) as found:
                        await found.read()
                except TimeoutError:
                    pass
            await asyncio.sleep(0.1)

    async def stats(self):
        async with self.session.get(self.url + "/v1/stats") as answer:
            return await answer.json()

    async def receive(self, request):
        await request.read()
        self.called_back += 1
        return web.Response()

    async def run(self, pid, folder, every_s):
        """Run it all; give a row a minute and the figures of the end."""
        server = web.ServerRunner(web.Server(self.receive))
        await server.setup()
        site = web.TCPSite(server, "127.0.0.1", 0)
        await site.start()
        self.receiver = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/"  # noqa: SLF001
        rows = []
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as self.session:
            work = [self.submitter() for _ in range(8)]
            work += [self.batcher(), self.flooder(), self.waiter(), self.waiter()]
            work += [self.reader(is_lazy=n % 2 == 0) for n in range(6)]
            tasks = [asyncio.create_task(each) for each in work]
            ended = 0
            while not self.is_over():
                start = time.monotonic()
                await asyncio.sleep(min(every_s, max(0.1, self.end - start)))
                ended, before = await self.ended(), ended
                rows.append(
                    (
                        (ended - before) / (time.monotonic() - start),
                        memory_mb(pid),
                        len(os.listdir(f"/proc/{pid}/fd")),
                        disk_mb(folder),
                        percentile(self.latencies, 50),
                        percentile(self.latencies, 99),
                    )
                )
                self.latencies.clear()
                print("  ".join(f"{value:9,.1f}" for value in rows[-1]), file=sys.stderr)
            await asyncio.gather(*tasks)
            calm = time.monotonic() + CALM_S
            while time.monotonic() < calm:
                found = await self.stats()
                queue, callbacks = found["queue"], found["callbacks"]
                if not queue["waiting"] + queue["inflight"] + callbacks["pending"]:
                    break
                await asyncio.sleep(0.5)
        await server.cleanup()
        return rows, queue["waiting"] + queue["inflight"], callbacks

    async def ended(self):
        total = (await self.stats())["total"]
        return sum(total[name] for name in ("completed", "failed", "cancelled", "expired"))


def main():
    args = arguments(__doc__.splitlines()[0], seconds=(600, "seconds"), every=(60, "a row each"))
    with temp_folder() as folder:
        config = {"maxQueueSize": 5000, "maxPerAgent": 100, "maxInflight": 100, "resultTTLSec": 30}
        with rota_server(folder, webhooks={"allow_hosts": ["127.0.0.1"]}, **config) as (
            port,
            process,
        ):
            soak = Soak(port, args.seconds)
            print("  tasks/s   mem MB   descr.   disk MB   p50 ms   p99 ms", file=sys.stderr)
            rows, left, callbacks = asyncio.run(soak.run(process.pid, folder, args.every))
        verify = [sys.executable, "-m", "rota", "verify", "--data-dir", str(folder / "data")]
        verified = subprocess.run(verify, check=False, capture_output=True, text=True)
    print(verified.stdout.strip(), verified.stderr.strip(), file=sys.stderr)
    print(json.dumps(soak.statuses), file=sys.stderr)
    growth = rows[-1][1] / rows[len(rows) // 2][1]
    faults = sum(count for status, count in soak.statuses.items() if status >= 500)
    untold = soak.promised - callbacks["delivered"]
    found = [
        ("tasks ended", sum(row[0] for row in rows) / len(rows), "/s", "", None),
        ("memory, first row", rows[0][1], "MB", "", None),
        ("memory, last row over the middle one", growth, "", "<= 1.2", growth <= 1.2),
        ("descriptors, last row", rows[-1][2], "", "< 100", rows[-1][2] < 100),
        ("disk", rows[-1][3], "MB", "", None),
        ("submission, p50 of the last row", rows[-1][4], "ms", "", None),
        ("submission, p99 of the last row", rows[-1][5], "ms", "", None),
        ("answers of 500 and more", faults, "", "0", not faults),
        ("tasks not ended a minute after", left, "", "0", not left),
        ("callbacks promised and not delivered", untold, "", "0", not untold),
        ("exit code of verify", verified.returncode, "", "0", not verified.returncode),
    ]
    report(f"soak of {args.seconds} s", found, as_json=args.json)
    sys.exit(any(row[-1] is False for row in found))


if __name__ == "__main__":
    main()

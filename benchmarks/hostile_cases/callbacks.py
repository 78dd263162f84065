"""How fast are callbacks to one receiver, and does one that hangs hold up another?

The receiver takes 50 ms for each. Beside it four hosts take everything and never answer; then two
hundred more do. The figures are milliseconds for each callback, and the wait of a healthy host's.
"""

import asyncio
import statistics
import threading
import time

from common import RawClient, median, request_bytes, temp_folder

from hostile_cases._configured import configured

COUNT = 600
TAKES_S = 0.05
SILENT = 200
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class Receiver:
    """Answers after a while, or never on paths under /hang; listens on all of 127.0.0.0/8."""

    def __init__(self):
        self.arrived = {}
        self.loop = asyncio.new_event_loop()
        self.ready = threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        self.ready.wait(10)

    def _run(self):
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self._listen())
        self.ready.set()
        self.loop.run_forever()
        self.server.close()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0.1))
        self.loop.close()

    async def _listen(self):
        self.server = await asyncio.start_server(self._serve, "0.0.0.0", 0, backlog=1024)
        self.port = self.server.sockets[0].getsockname()[1]

    async def _serve(self, reader, writer):
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                path = head.split(" ", 2)[1]
                length = int(head.lower().split("content-length:")[1].split("\r\n")[0])
                await reader.readexactly(length)
                self.arrived[path] = time.perf_counter()
                if path.startswith("/hang"):
                    await asyncio.sleep(3600)
                await asyncio.sleep(TAKES_S)
                writer.write(ANSWER)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)


def submit(client, url):
    body = {"agentId": "a", "action": "echo", "params": {}, "callbackUrl": url}
    status, answer = client.call(request_bytes("/v1/tasks", body))
    assert status in (200, 201, 202), (status, answer)


def wait_for(holds, within_s=120):
    end = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > end:
            raise SystemExit("what the case waits for does not come")
        time.sleep(0.002)


def waits_of_a_healthy_host(client, receiver, name, count=30):
    """Give how long each callback to a healthy host takes to arrive, in ms."""
    waits = []
    for n in range(count):
        path = f"/{name}/{n}"
        start = time.perf_counter()
        submit(client, f"http://127.0.0.1:{receiver.port}{path}")
        wait_for(lambda path=path: path in receiver.arrived)
        waits.append((receiver.arrived[path] - start) * 1000)
    return waits


def cases():
    receiver = Receiver()
    try:
        with temp_folder() as folder:
            yield from measure(folder, receiver)
    finally:
        receiver.close()


def measure(folder, receiver):
    webhooks = {"allowHosts": ["127.0.0.0/8"], "timeoutMs": 10_000}
    with configured(folder, webhooks=webhooks) as (port, _process):
        client = RawClient(port)
        client.call(request_bytes("/v1/scheduler/pause", {}))
        for n in range(COUNT):
            submit(client, f"http://127.0.0.1:{receiver.port}/quick/{n}")
        start = time.perf_counter()
        client.call(request_bytes("/v1/scheduler/resume", {}))
        wait_for(lambda: len(receiver.arrived) >= COUNT)
        each = (time.perf_counter() - start) * 1000 / COUNT
        yield "one receiver that takes 50 ms: each callback", each, "ms", 6
        for host in range(4):
            for n in range(40):
                submit(client, f"http://127.0.1.{host + 1}:{receiver.port}/hang/{host}/{n}")
        time.sleep(0.5)
        waits = waits_of_a_healthy_host(client, receiver, "beside4")
        yield "a healthy host's callback while 4 hosts hang, p50", median(waits), "ms", 50
        for host in range(SILENT):
            for n in range(4):
                address = f"127.0.2.{host + 1}"
                submit(client, f"http://{address}:{receiver.port}/hang/more{host}/{n}")
        time.sleep(0.5)
        waits = waits_of_a_healthy_host(client, receiver, "beside200")
        worst = statistics.quantiles(waits, n=20)[-1]
        yield f"the same while {SILENT} more hang, p95", worst, "ms", 250
        client.close()

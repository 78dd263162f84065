"""Many tasks wait and snapshots are frequent: do acknowledgements wait, and does the disk fill?

Two servers, each with the same backlog, are asked in turns, one task at a time: one takes a
snapshot as often as it may, the other never. The quotient is what snapshots cost.
"""

import contextlib
import json
import sys
import time

from common import RawClient, _process, percentile, request_bytes, run_load, temp_folder
from submissions import batches
from watch import disk_mb

WAITING = 50_000
SECONDS = 60
SUBMIT = request_bytes("/v1/tasks", {"agentId": "a", "action": "wait-here"})
ROOM = dict.fromkeys(("maxQueueSize", "maxPerAgent", "maxInflight", "maxPerAgentInflight"), 10**7)


@contextlib.contextmanager
def server(folder, every):
    """Start a server with a backlog; gives a client of it."""
    folder.mkdir()
    settings = {"scheduler": ROOM, "server": {"snapshot_every_events": every}}
    (folder / "bench.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "rota", "serve", "--port", "0", "--paused"]
    command += ["--data-dir", str(folder / "data"), "--config", str(folder / "bench.json")]
    with _process(command) as (port, _):
        run_load(port, batches("wait-here", WAITING))
        client = RawClient(port)
        yield client
        client.close()


def acks(client, seconds):
    """Submit one by one for a while; give the waits in ms."""
    waits, end = [], time.perf_counter() + seconds
    while (begin := time.perf_counter()) < end:
        status, _ = client.call(SUBMIT)
        assert status == 202, status
        waits.append((time.perf_counter() - begin) * 1000)
        time.sleep(0.001)
    return waits


def cases():
    with (
        temp_folder() as folder,
        server(folder / "often", 100) as often,
        server(folder / "never", 10**9) as never,
    ):
        before = disk_mb(folder / "often" / "data"), disk_mb(folder / "never" / "data")
        with_them, without = [], []
        for _ in range(SECONDS // 5):
            with_them += acks(often, 5)
            without += acks(never, 5)
        kept = list((folder / "often" / "data" / "snapshots").glob("*.snap"))
        snapshots = disk_mb(folder / "often" / "data" / "snapshots") if kept else 0
        grown = disk_mb(folder / "often" / "data") - before[0]
        plain = (disk_mb(folder / "never" / "data") - before[1]) * len(with_them) / len(without)
        size = max((path.stat().st_size for path in kept), default=0) / 1e6
        ratio = percentile(with_them, 99) / percentile(without, 99)
        yield (
            f"99th percentile of acks with snapshots, {WAITING:,} waiting",
            percentile(with_them, 99),
            "ms",
            50,
        )
        yield "the same over that without snapshots", ratio, "times", 3
        yield f"growth in {SECONDS} s beyond that of the records", grown - plain, "MB", 3 * size + 5
        yield "of that in snapshots", snapshots, "MB", 3 * size + 1

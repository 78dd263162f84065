"""Refusals: somebody knocks thousands of times at a full queue, with as long a body as may be."""

import time

from common import RawClient, request_bytes, rota_server, run_load, temp_folder
from watch import disk_mb, memory_mb

REFUSALS = 16_000


def cases():
    """Knock."""
    body = {
        "agentId": "a" * 200,
        "action": "b" * 200,
        "ref": "r" * 200,
        "callbackUrl": "https://example.com/" + "c" * 2000,
        "params": {"long": "x" * 8000},
    }
    with temp_folder() as folder, rota_server(folder, maxQueueSize=1) as (port, process):
        client = RawClient(port)
        client.call(request_bytes("/v1/tasks", {"agentId": "a", "action": "waits"}))
        refused = request_bytes("/v1/tasks", body)
        run_load(port, [refused] * 500)  # warm
        disk, memory = disk_mb(folder), memory_mb(process.pid)
        seconds, statuses = run_load(port, [refused] * REFUSALS)
        assert statuses == {429: REFUSALS}, statuses
        grown = memory_mb(process.pid) - memory
        told = client.get("/scheduler/stats")["metrics"]["tasksRejected"]
        time.sleep(1.5)  # the last count is recorded a second after it began
        kept = client.get("/v1/stats")["queue"]["tasksInMemory"]
        yield f"disk for {REFUSALS} refusals in {seconds:.1f} s", disk_mb(folder) - disk, "MB", 2.0
        yield "memory for them", grown, "MB", 10.0
        yield "of them in memory", kept, "tasks", 1001
        yield "not in tasksRejected", REFUSALS + 500 - told, "refusals", 0
        client.close()

"""Memory: agents that come and go, results and bodies that are large, keys by the million."""

import asyncio
import time
import tracemalloc

from common import RawClient, request_bytes, rota_server, run_load, temp_folder
from watch import memory_mb

AGENTS = 250_000
RESULTS = 2_000
RESULT_BYTES = 100_000
BODIES = 50
LISTS = 45_000
KEYS = 200_000


def cases():
    """Come and go, and look what stays."""
    with temp_folder() as folder, rota_server(folder, resultTTLSec=5) as (port, process):
        yield from _agents(port, process.pid)
    with temp_folder() as folder, rota_server(folder) as (port, process):
        yield from _results(port, process.pid)
    with temp_folder() as folder, rota_server(folder) as (port, process):
        yield from _bodies(port, process.pid)
    yield f"each of {KEYS} idempotency keys", _key_bytes(), "bytes", 250


def _at_rest(port, pid):
    """Wait until nothing is under way, and give the memory."""
    client = RawClient(port)
    for _ in range(600):
        queue = client.get("/v1/stats")["queue"]
        if not queue["waiting"] and not queue["inflight"]:
            break
        time.sleep(0.2)
    client.close()
    return memory_mb(pid)


def _agents(port, pid):
    def batch(first):
        tasks = [{"agentId": f"agent-{n}", "action": "echo"} for n in range(first, first + 500)]
        return request_bytes("/v1/batches", {"tasks": tasks})

    run_load(port, [batch(first) for first in range(0, 5000, 500)], 4)
    before = _at_rest(port, pid)
    run_load(port, [batch(first) for first in range(5000, AGENTS, 500)], 4)
    yield f"memory while {AGENTS:,} agents go", _at_rest(port, pid) - before, "MB", 1500
    time.sleep(8)  # their tasks are forgotten, though nothing happens
    yield "memory after they went", memory_mb(pid) - before, "MB", 250
    client = RawClient(port)
    for path in ("/v1/agents", "/scheduler/stats"):
        start = time.perf_counter()
        status, body = client.call(request_bytes(path, None, "GET"))
        assert status == 200
        yield f"GET {path} then", (time.perf_counter() - start) * 1000, "ms", 200
        yield f"GET {path}, size", len(body) / 1000, "KB", 300
    client.close()


def _results(port, pid):
    large = {"agentId": "a", "action": "echo", "params": {"long": "x" * RESULT_BYTES}}
    run_load(port, [request_bytes("/v1/tasks", large)] * 50, 8)
    before = _at_rest(port, pid)
    run_load(port, [request_bytes("/v1/tasks", large)] * RESULTS, 8)
    what = f"memory after {RESULTS:,} results of {RESULT_BYTES // 1000} KB"
    yield what, _at_rest(port, pid) - before, "MB", 150


def _bodies(port, pid):
    lists = {"agentId": "a", "action": "waits", "params": {"lists": [[]] * LISTS}}
    request = request_bytes("/v1/tasks", lists)
    client = RawClient(port)
    status, _ = client.call(request)
    assert status == 202, status
    before = memory_mb(pid)
    for _ in range(BODIES):
        client.call(request)
    grown = memory_mb(pid) - before
    client.close()
    each = grown * 1e6 / BODIES / len(request)
    yield "memory for a waiting byte of empty lists", each, "bytes", 4


def _key_bytes():
    from rota.domain import events as e
    from rota.domain.plan import Plan
    from rota.projections.state import State

    async def fold():
        state = State()
        tracemalloc.start()
        for n in range(KEYS):
            task, at = f"tsk_{n:08d}", 1_800_000_000_000_000 + n
            plan = Plan(idempotency=f"order-{n:030d}", digest=f"{n:032x}")
            submitted = e.TaskSubmitted(task, "a", "echo", "builtin", 1, plan=plan)
            state.apply(e.Record(2 * n + 1, at, submitted, "client"))
            state.apply(e.Record(2 * n + 2, at, e.TaskCancelled(task, "a", "ready")))
            state.tasks.forget(at + 301_000_000)
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert len(state.keys.held) == KEYS
        return size / KEYS

    return asyncio.run(fold())

"""Projects: lists that are full, tasks that are large, keys said again, many starts and stops.

Beside each /health/live is asked all the time; the figure is its longest wait. The memory is that
of about as many bytes on lists as there may be.
"""

import time

import orjson
from common import RawClient, request_bytes, rota_server, temp_folder
from watch import memory_mb, stalls

STALL_MS_MAX = 100
LISTS = 20
LIST_TASKS = 999
PROJECTS = 500
LARGE = 60
LARGE_BYTES = 1_000_000


def _tasks(project, body):
    return request_bytes(f"/v1/projects/{project}/tasks", body)


def _keyed():
    said = {"action": "waits", "params": {"text": "x" * 100}}
    return {"tasks": [{**said, "idempotencyKey": f"k{n}"} for n in range(LIST_TASKS)]}


def _before(client):
    """Fill a list so that each goes before the one that was there."""
    _, answer = client.call(_tasks("before", {"action": "waits"}))
    first = orjson.loads(answer)["taskId"]
    return _tasks("before", {"before": first, "tasks": [{"action": "waits"}] * LIST_TASKS})


def _several(how, **more):
    for at in range(0, PROJECTS, 100):
        names = [f"p{n}" for n in range(at, at + 100)]
        yield request_bytes(f"/v1/projects/{how}", {"projects": names, **more})


def steps(client):
    """Give what is done, and the requests that do it."""
    yield (
        f"{LISTS} lists of {LIST_TASKS} keyed tasks",
        (_tasks(f"list-{n}", _keyed()) for n in range(LISTS)),
    )
    yield f"{LIST_TASKS} tasks before one", iter([_before(client)])
    again = {"action": "waits", "params": {"text": "x" * 100}, "idempotencyKey": "k500"}
    yield "a key again, on a full list", (_tasks("list-0", again) for _ in range(300))
    odd = {"action": "waits", **{f"k{n}": 1 for n in range(300)}}
    yield "300 x 300 unknown keys", iter([_tasks("odd", {"tasks": [odd] * 300})])
    large = {"action": "waits", "params": {"text": "x" * LARGE_BYTES}}
    yield f"{LARGE} tasks of 1 MB", (_tasks("large", large) for _ in range(LARGE))
    page = request_bytes("/v1/projects/large/tasks?limit=1000", None, "GET")
    yield "pages of large tasks", (page for _ in range(5))
    yield f"{PROJECTS} projects", (_tasks(f"p{n}", {"action": "waits"}) for n in range(PROJECTS))
    page = request_bytes("/v1/projects?limit=1000", None, "GET")
    yield "pages of projects", (page for _ in range(5))
    yield f"{PROJECTS} runs started, 100 at a time", _several("run", mode="loop")
    yield f"{PROJECTS} runs force-stopped", _several("force-stop")


def cases():
    with temp_folder() as folder, rota_server(folder) as (port, process):
        client = RawClient(port)
        before = memory_mb(process.pid)
        for what, requests in steps(client):
            with stalls(port) as waits:
                time.sleep(0.1)
                for request in requests:
                    status, answer = client.call(request)
                    assert status < 500, answer
                time.sleep(0.1)
            yield f"{what} ({status})", max(waits), "ms", STALL_MS_MAX
        client.close()
        yield "memory of all of it", memory_mb(process.pid) - before, "MB", 250

"""Of what all callers share, what does one that takes all it can leave to another?

Each case has a caller with a token of its own that asks until it is refused, or more often than
there is room for. Then another asks for a little of the same: how often it is refused, which must
not be, and how long /health/live has to wait meanwhile.
"""

import socket
import time

import orjson
from common import temp_folder
from watch import disk_mb, memory_mb, stalls

from hostile_cases._configured import WIDE, configured
from hostile_cases.callers import ADMIN, Client, asked, made, server

STALL_MS_MAX = 100
OTHERS = 20
LARGE_BYTES = 3_900_000
NEVER = "0 0 1 1 *"


def cases():
    """Take all there is of each."""
    with server() as (port, _, operator):
        tokens = made(operator, "greedy", "work"), made(operator, "other", "work")
        yield from _lines(port, *tokens)
        tokens = made(operator, "many", "submit"), made(operator, "few", "submit")
        yield from _labels(port, *tokens)
        yield from _streams(port, *tokens)
    with server(scheduler={**WIDE, "maxPerAgent": 100}) as (port, process, operator):
        tokens = made(operator, "greedy", "submit"), made(operator, "other", "submit")
        yield from _schedules(port, *tokens)
        yield from _rooms(port, *tokens, process.pid)
    with server(scheduler={**WIDE, "maxLogBytesPerMinute": 64 << 20}) as (port, _, operator):
        yield from _written(port, made(operator, "greedy", "submit"), made(operator, "o", "submit"))
    yield from _changes()


def refused(client, requests, good=(200, 201, 202)):
    """Ask for each; give how many were not answered as they should be."""
    return sum(client.call(*request)[0] not in good for request in requests)


def taken(client, requests, code):
    """Ask until it is refused with this code; give how many were not."""
    for at, request in enumerate(requests):
        status, answer = client.call(*request)
        if status in (429, 503):
            assert orjson.loads(answer)["code"] == code, answer
            return at
        assert status in (200, 201, 202), answer
    raise SystemExit(f"nothing was refused with {code}")


def _lines(port, greedy, other):
    """Wait in 1,000 lines with each of 150 requests."""
    many = {"agents": [f"a{n}" for n in range(10)], "types": [f"t{n}" for n in range(100)]}
    asks = [asked("POST", "/v1/leases", greedy, {"workerId": "w", "waitMs": 60_000, **many})]
    with stalls(port) as waits:
        socks = [socket.create_connection(("127.0.0.1", port), 10) for _ in range(150)]
        for sock in socks:
            sock.sendall(asks[0])
        time.sleep(2)
        few = {"workerId": "o", "types": many["types"], "waitMs": 20}
        client = Client(port, other)
        count = refused(client, [("POST", "/v1/leases", few)] * OTHERS)
        client.close()
        client = Client(port, greedy)
        at_once = {"workerId": "w", "waitMs": 0, **many}
        at_once = refused(client, [("POST", "/v1/leases", at_once)] * OTHERS)
        client.close()
    for sock in socks:
        sock.close()
    yield f"150 lease requests of 1,000 lines: refused of another's {OTHERS}", count, "", 0
    yield f"its own {OTHERS} that do not wait: refused", at_once, "", 0
    yield "health meanwhile", max(waits), "ms", STALL_MS_MAX


def _labels(port, greedy, other):
    def tasks(who, count):
        for n in range(count):
            task = {"agentId": who, "action": "waits", "requires": [f"{who}{n}"]}
            yield "POST", "/v1/tasks", task

    many, few = Client(port, greedy), Client(port, other)
    count = taken(many, tasks("g", 300), "too_many_requirements")
    yield "sets of labels that one requires, of 256", count, "", 128
    yield f"another's {OTHERS}: refused", refused(few, tasks("o", OTHERS)), "", 0
    many.close()
    few.close()


def _streams(port, greedy, other):
    def opened(token, count):
        found = []
        for _ in range(count):
            sock = socket.create_connection(("127.0.0.1", port), 10)
            sock.sendall(asked("GET", "/v1/events/stream", token))
            found.append((sock, sock.recv(12) == b"HTTP/1.1 200"))
        return found

    many, few = opened(greedy, 700), opened(other, OTHERS)
    yield "streams of one, of 1,000", sum(is_open for _, is_open in many), "", 500
    yield f"another's {OTHERS}: refused", sum(not is_open for _, is_open in few), "", 0
    for sock, _ in many + few:
        sock.close()


def _schedules(port, greedy, other):
    """Have schedules make more than may wait, and workflows that their author may not submit."""
    client, another = Client(port, greedy), Client(port, other)
    task = {"agentId": "a", "action": "waits"}
    flow = {"name": "flow", "cron": NEVER, "workflow": {"tasks": [task] * 100}}
    may = client.call("POST", "/v1/schedules", flow)[0] == 201
    yield "a workflow by a schedule of who may submit none", may, "", 0

    def schedules():
        for n in range(150):
            yield "POST", "/v1/schedules", {"name": f"s{n}", "cron": NEVER, "task": task}

    made_of = taken(client, schedules(), "too_many_scheduled_tasks")
    yield "schedules of an agent of which 100 tasks may wait", made_of, "", 100
    with stalls(port) as waits:
        for _ in range(5):
            for n in range(made_of):
                client.call("POST", f"/v1/schedules/s{n}/run", {})
            again = {"agentId": "a", "action": "waits"}
            client.call("POST", "/v1/tasks", again)
    body = orjson.loads(client.call("GET", "/v1/tasks?limit=1000&agentId=a&state=ready")[1])
    yield "tasks that wait after 500 runs", body["count"], "", 100
    yield "health meanwhile", max(waits), "ms", STALL_MS_MAX
    tasks = [("POST", "/v1/tasks", {"agentId": "b", "action": "waits"})] * OTHERS
    yield f"another's {OTHERS} tasks: refused", refused(another, tasks), "", 0
    client.close()
    another.close()


def _rooms(port, greedy, other, pid):
    """Fill the rooms of schedules and of lists: 64 MiB each."""
    large = {"agentId": "c", "action": "waits", "params": {"x": "y" * LARGE_BYTES}}
    client, another = Client(port, greedy), Client(port, other)

    def schedules(who, count):
        for n in range(count):
            task = {**large, "agentId": f"{who}{n}"}
            yield "POST", "/v1/schedules", {"name": f"{who}{n}", "cron": NEVER, "task": task}

    def items(who, count):
        item = {name: large[name] for name in ("action", "params")}
        for n in range(count):
            yield "POST", f"/v1/projects/{who}{n}/tasks", item

    before = memory_mb(pid)
    with stalls(port) as waits:
        counts = [
            (taken(client, schedules("g", 20), "schedules_too_large"), schedules),
            (taken(client, items("g", 20), "projects_full"), items),
        ]
        for count, what in counts:
            name = what.__name__
            yield f"{name} of 3.9 MB that one has, of 64 MiB", count, "", 8
            yield f"another's three {name}: refused", refused(another, what("o", 3)), "", 0
    yield "health meanwhile", max(waits), "ms", STALL_MS_MAX
    yield "grown by", memory_mb(pid) - before, "MB", 250
    client.close()
    another.close()


def _written(port, greedy, other):
    """Have written to the log what may be of 64 MiB a minute."""
    while time.time() % 60 > 45:
        time.sleep(1)  # a minute is needed that does not end meanwhile
    task = {"agentId": "a", "action": "waits", "params": {"x": "y" * 1_000_000}}
    client, another = Client(port, greedy), Client(port, other)
    count = taken(client, [("POST", "/v1/tasks", task)] * 70, "too_much_written")
    yield "tasks of 1 MB that one has written in a minute, of 64 MiB", count, "", 34
    tasks = [("POST", "/v1/tasks", {**task, "agentId": "b"})] * 10
    yield "another's ten: refused", refused(another, tasks), "", 0
    client.close()
    another.close()


def _changes():
    """Change a large schedule a hundred times."""
    tokens = {"tokens": {"operator": ADMIN}}
    with temp_folder() as folder, configured(folder, server=tokens) as (port, _):
        client = Client(port, ADMIN)
        task = {"agentId": "c", "action": "waits", "params": {"x": "y" * LARGE_BYTES}}
        body = {"name": "large", "cron": NEVER, "task": task}
        status, answer = client.call("POST", "/v1/schedules", body)
        assert status == 201, answer
        before = disk_mb(folder / "data")
        with stalls(port) as waits:
            for n in range(100):
                patch = {"jitterMs": n + 1}
                status, answer = client.call("PATCH", "/v1/schedules/large", patch)
                assert status == 200, answer
        client.close()
        grown = disk_mb(folder / "data") - before
        yield "disk for 100 changes of a schedule of 3.9 MB", grown, "MB", 4
        yield "health meanwhile", max(waits), "ms", STALL_MS_MAX

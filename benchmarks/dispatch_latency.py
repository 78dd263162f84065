"""How long from a submission to the first line of its task?

Submit over HTTP, `echo` runs in the server. The clock starts before the request is written and
stops at the `at` of `task_started`, stamped directly before the builtin runs. Idle: one at a time,
4 ms apart, and so are the round trips and commits of the floor (a machine that has slept wakes up
slowly, whoever wakes it); floor and server take turns. Loaded: an open load of 200 tasks/s, sent
on schedule whether or not the last was answered.
"""

import time

import orjson
from common import (
    RawClient,
    arguments,
    echo_round_trip,
    echo_server,
    median,
    percentile,
    report,
    request_bytes,
    rota_server,
    synced_commits,
    temp_folder,
)

BODY = {"agentId": "bench", "action": "echo", "params": {"text": "hello", "n": 5}}
GOAL = 1.5
PAUSE_S = 0.004
ROUNDS = 4


def started_times(client, after):
    """Read when each task started from the feed."""
    found = {}
    while True:
        page = client.get(f"/v1/events?after={after}&limit=1000")
        for event in page["events"]:
            if event["kind"] == "task_started":
                found[event["task"]] = event["at"] / 1e6
        if page["next"] == after:
            return found
        after = page["next"]


def settled(client, count):
    """Wait until that many tasks are done."""
    for _ in range(1000):
        if client.get("/v1/stats")["sinceStart"]["completed"] >= count:
            return
        time.sleep(0.02)
    raise SystemExit("the tasks did not finish")


def idle(port, count, before):
    """Submit one at a time, each after the one before is done and the server is quiet."""
    client = RawClient(port)
    request = request_bytes("/v1/tasks", BODY)
    sent, answered = {}, []
    for _ in range(count):
        at = time.time()
        start = time.perf_counter()
        status, body = client.call(request)
        answered.append(time.perf_counter() - start)
        assert status == 202, body
        sent[orjson.loads(body)["taskId"]] = at
        time.sleep(PAUSE_S)
    settled(client, before + count)
    started = started_times(client, 0)
    client.close()
    return [started[task] - at for task, at in sent.items()][count // 10 :], answered


def loaded(port, rate, seconds, before):
    """Send on schedule over eight connections."""
    clients = [RawClient(port) for _ in range(8)]
    request = request_bytes("/v1/tasks", BODY)
    sent, waiting = {}, [None] * len(clients)

    def collect(slot):
        if waiting[slot] is not None:
            status, body = clients[slot].receive()
            assert status == 202, body
            sent[orjson.loads(body)["taskId"]] = waiting[slot]
            waiting[slot] = None

    begin = time.perf_counter()
    count = rate * seconds
    for n in range(count):
        due = begin + n / rate
        while (left := due - time.perf_counter()) > 0:
            time.sleep(left)
        slot = n % len(clients)
        collect(slot)
        waiting[slot] = time.time()
        clients[slot].sock.sendall(request)
    for slot in range(len(clients)):
        collect(slot)
    settled(clients[0], before + count)
    started = started_times(clients[0], 0)
    for client in clients:
        client.close()
    return [started[task] - at for task, at in sent.items()]


def main():
    args = arguments(
        __doc__.splitlines()[0],
        tasks=(1000, "tasks, one at a time"),
        rate=(200, "tasks/s of the open load"),
        seconds=(10, "seconds of the open load"),
    )
    echo, commit, times, answered = [], [], [], []
    with temp_folder() as folder, echo_server() as (echo_port, _), rota_server(folder) as (port, _):
        slice_of = args.tasks // ROUNDS
        for n in range(ROUNDS):
            echo += echo_round_trip(echo_port, BODY, slice_of, PAUSE_S)
            commit += synced_commits(folder / f"floor-{n}", slice_of, pause=PAUSE_S)
            found, waited = idle(port, slice_of, n * slice_of)
            times += found
            answered += waited
        open_load = loaded(port, args.rate, args.seconds, ROUNDS * slice_of)
    floor = median(echo) + median(commit)
    ratio = median(times) / floor
    rows = [
        ("aiohttp echo round trip p50", median(echo) * 1e3, "ms", "", None),
        ("one synced LMDB commit p50", median(commit) * 1e3, "ms", "", None),
        ("floor: echo + commit", floor * 1e3, "ms", "", None),
        ("idle dispatch p50", median(times) * 1e3, "ms", "", None),
        ("idle dispatch p99", percentile(times, 99) * 1e3, "ms", "", None),
        ("idle dispatch p50 / floor", ratio, "x", f"at most {GOAL}", ratio <= GOAL),
        ("idle answer (202) p50", median(answered) * 1e3, "ms", "", None),
        (f"dispatch at {args.rate}/s p50", median(open_load) * 1e3, "ms", "", None),
        (f"dispatch at {args.rate}/s p99", percentile(open_load, 99) * 1e3, "ms", "", None),
    ]
    report("dispatch latency", rows, as_json=args.json)


if __name__ == "__main__":
    main()

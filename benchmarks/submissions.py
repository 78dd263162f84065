"""How many durable submissions per second, and how many tasks from end to end?

64 keep-alive connections, one submission a request, each answered after its events are synced. The
floor is an aiohttp + uvloop server that parses the same body and answers without storing. Then the
same with tasks that run (echo), to the last completion, and in bulk: 50 tasks a request.
"""

import time

from common import (
    RawClient,
    arguments,
    echo_server,
    median,
    report,
    request_bytes,
    rota_server,
    run_load,
    temp_folder,
)

GOAL = 0.5
PARAMS = {"text": "hello", "n": 5}


def bodies(action, count, agents=64):
    """Prepare one request per agent and repeat them."""
    made = [
        request_bytes("/v1/tasks", {"agentId": f"agent-{n}", "action": action, "params": PARAMS})
        for n in range(agents)
    ]
    return (made[n % agents] for n in range(count))


def batches(action, count, agents=64):
    """Prepare requests of 50 tasks each."""
    items = [{"action": action, "params": PARAMS}] * 50
    made = [
        request_bytes("/tasks/batch", {"agentId": f"agent-{n}", "tasks": items})
        for n in range(agents)
    ]
    return (made[n % agents] for n in range(count // 50))


def per_second(port, requests, count):
    """Run one load; give its rate."""
    seconds, statuses = run_load(port, requests)
    assert set(statuses) == {202}, statuses
    return count / seconds


def end_to_end(port, requests, count):
    """Run one load and wait for the last completion; give the rate of tasks."""
    client = RawClient(port)
    before = client.get("/v1/stats")["total"]["completed"]
    start = time.perf_counter()
    run_load(port, requests)
    while client.get("/v1/stats")["total"]["completed"] < before + count:
        time.sleep(0.002)
    seconds = time.perf_counter() - start
    client.close()
    return count / seconds


def main():
    args = arguments(
        __doc__.splitlines()[0],
        tasks=(20_000, "submissions a round"),
        rounds=(3, "rounds, floor and server in turn"),
    )
    count = args.tasks
    floors, rates, tasks, bulk = [], [], [], []
    with (
        temp_folder() as folder,
        echo_server() as (floor_port, _),
        rota_server(folder) as (port, _),
    ):
        run_load(floor_port, bodies("wait", 2000))
        run_load(port, bodies("wait", 2000))
        for _ in range(args.rounds):
            floors.append(per_second(floor_port, bodies("wait", count), count))
            rates.append(per_second(port, bodies("wait", count), count))
    with temp_folder() as folder, rota_server(folder) as (port, _):
        for _ in range(args.rounds):
            tasks.append(end_to_end(port, bodies("echo", count), count))
            bulk.append(end_to_end(port, batches("echo", count), count // 50 * 50))
    ratio = median(rates) / median(floors)
    rows = [
        ("floor: parse and answer, nothing stored", median(floors), "/s", "", None),
        ("durable submissions", median(rates), "/s", "", None),
        ("durable submissions / floor", ratio, "x", f"at least {GOAL}", ratio >= GOAL),
        ("end to end, 64 clients, one submit a call", median(tasks), "tasks/s", "", None),
        ("end to end, 64 clients, 50 tasks a call", median(bulk), "tasks/s", "", None),
    ]
    report("submissions", rows, as_json=args.json)


if __name__ == "__main__":
    main()

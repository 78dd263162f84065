"""What do 10,000 schedules cost while nothing is due, and how fast do all of them fire at once?

A real server on a real log, in a process of its own, whose clock is set so that a minute begins
when the schedules have been made and watched. All of them have it for their moment, and make a
task that waits for a worker. The time runs from the moment until the last of them is on disk;
meanwhile another request is made without a pause, and the longest that it waited is the most that
the loop was held. The floor is as many plain submissions by 64 clients, in the same run.
"""

import os
import time
from datetime import UTC, datetime

from common import (
    RawClient,
    arguments,
    percentile,
    report,
    request_bytes,
    rota_server,
    run_load,
    temp_folder,
)
from idle import cpu_ms

SITE = "import time\nreal = time.time\ntime.time = lambda: real() + {ahead}\n"
TASK = {"agentId": "a", "action": "lift"}
GOAL_CPU_MS, GOAL_S = 20, 1.0
RECORDS = 2
"""A firing and its task."""


def set_clock(folder, in_s):
    """Have the servers that are started from now on see a minute begin in so many seconds."""
    ahead = 60 - in_s - time.time() % 60
    (folder / "sitecustomize.py").write_text(SITE.format(ahead=ahead))
    os.environ["PYTHONPATH"] = str(folder)
    return time.time() + in_s, ahead


def main():
    args = arguments(
        __doc__.splitlines()[0],
        schedules=(10_000, "schedules"),
        seconds=(10, "seconds watched"),
        making=(20, "seconds that making them may take"),
    )
    count = args.schedules
    with temp_folder() as folder:
        moment, ahead = set_clock(folder, args.making + args.seconds + 5)
        named = datetime.fromtimestamp(round(moment + ahead), UTC)
        cron = f"{named.minute} {named.hour} * * *"
        with rota_server(folder) as (port, process):
            body = {"cron": cron, "task": TASK}
            bodies = ({"name": f"s{n}", **body} for n in range(count))
            make_s, statuses = run_load(port, (request_bytes("/v1/schedules", b) for b in bodies))
            assert statuses == {201: count}, statuses
            plain_s, statuses = run_load(port, [request_bytes("/v1/tasks", TASK)] * count)
            assert statuses == {202: count}, statuses
            client = RawClient(port)
            before = client.get("/v1/events/head")["seq"]
            time.sleep(max(0, moment - args.seconds - 2 - time.time()))
            spent = cpu_ms(process.pid)
            time.sleep(args.seconds)
            spent = cpu_ms(process.pid) - spent
            assert time.time() < moment, "making them took too long; give --making more seconds"
            time.sleep(max(0, moment - time.time()))
            waits = []
            while True:
                began = time.perf_counter()
                seq = client.get("/v1/events/head")["seq"]
                waits.append(time.perf_counter() - began)
                if seq >= before + RECORDS * count:
                    break
                time.sleep(0.005)
            fire_s = time.time() - moment
            client.close()
    rows = [
        ("schedules made, 64 clients", count / make_s, "/s", "", None),
        (
            f"CPU over {args.seconds} s, nothing due",
            spent,
            "ms",
            f"under {GOAL_CPU_MS}",
            spent < GOAL_CPU_MS,
        ),
        (f"{count:,} fire, until all are on disk", fire_s, "s", f"≤ {GOAL_S}", fire_s <= GOAL_S),
        ("plain submissions, as many", plain_s, "s", "", None),
        ("firing, of the time of those", fire_s / plain_s, "", "", None),
        ("a request meanwhile, longest", max(waits) * 1000, "ms", "", None),
        ("a request meanwhile, p50", percentile(waits, 50) * 1000, "ms", "", None),
    ]
    report("schedules", rows, as_json=args.json)


if __name__ == "__main__":
    main()

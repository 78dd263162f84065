"""One write fails while the log is long: who has to wait for the state to be rebuilt?

The disk is made to fail by RLIMIT_FSIZE, set on the running server from outside, and is whole again
as soon as the first request was refused. Snapshots are deleted, so all of it is folded anew.
"""

import resource
import shutil
import time

from common import RawClient, percentile, request_bytes, rota_server, temp_folder
from replay import write_log
from watch import stalls

EVENTS = 300_000
SUBMIT = request_bytes("/v1/tasks", {"agentId": "a", "action": "wait-here"})


def until(what, seconds=120):
    """Poll a condition; give how long it took."""
    begin = time.perf_counter()
    while not what():
        if time.perf_counter() - begin > seconds:
            raise SystemExit("it never came to that")
        time.sleep(0.01)
    return time.perf_counter() - begin


def cases():
    with temp_folder() as folder:
        write_log(folder / "data", EVENTS, 0)
        with rota_server(folder) as (port, process):
            client = RawClient(port)
            assert client.call(SUBMIT)[0] in (200, 201, 202)
            time.sleep(3)  # a first snapshot is taken: away with it
            shutil.rmtree(folder / "data" / "snapshots", ignore_errors=True)
            limits = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
            with stalls(port, "/health") as waits:
                time.sleep(0.5)
                quiet = max(waits)
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (8192, limits[1]))
                refused = []

                def is_refused():
                    begin = time.perf_counter()
                    status, _ = client.call(SUBMIT)
                    refused.append((time.perf_counter() - begin) * 1000)
                    return status == 503

                until(is_refused)
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, limits)
                again = until(lambda: not is_refused())
                time.sleep(0.5)
            client.close()
        yield (
            f"longest wait for /health, one failed write, {EVENTS:,} events",
            max(waits),
            "ms",
            250,
        )
        yield "99th percentile of the same", percentile(waits, 99), "ms", 100
        yield "longest wait for a refusal", max(refused), "ms", 250
        yield "longest wait for /health before", quiet, "ms", 100
        yield "until it takes work again", again, "s", 60

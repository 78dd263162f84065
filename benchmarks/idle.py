"""What does an idle server cost?

A server that has done some work and then nothing: its CPU time over ten seconds, from the kernel.
"""

import time
from pathlib import Path

from common import RawClient, arguments, report, request_bytes, rota_server, temp_folder

GOAL_MS = 20


def cpu_ms(pid):
    """Give the CPU time of all threads, in milliseconds."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total / 1e6


def main():
    args = arguments(__doc__.splitlines()[0], seconds=(10, "seconds watched"))
    with temp_folder() as folder, rota_server(folder) as (port, process):
        client = RawClient(port)
        for _ in range(200):
            client.call(request_bytes("/v1/tasks", {"agentId": "a", "action": "echo"}))
        time.sleep(2)
        before = cpu_ms(process.pid)
        time.sleep(args.seconds)
        used = cpu_ms(process.pid) - before
        client.close()
    rows = [
        (
            f"CPU over {args.seconds} s, one connection open",
            used,
            "ms",
            f"under {GOAL_MS}",
            used < GOAL_MS,
        ),
    ]
    report("idle server", rows, as_json=args.json)


if __name__ == "__main__":
    main()

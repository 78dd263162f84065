"""Run every benchmark, one after the other; `--json` prints one object a line."""

import subprocess
import sys
from pathlib import Path

NAMES = (
    "dispatch_latency",
    "submissions",
    "lifecycle",
    "workers",
    "task_model",
    "commands",
    "backlog",
    "bulk",
    "schedules",
    "replay",
    "idle",
    "hostile",
)


def main():
    here = Path(__file__).resolve().parent
    failed = 0
    for name in NAMES:
        command = [sys.executable, str(here / f"{name}.py"), *sys.argv[1:]]
        failed |= subprocess.run(command, check=False, timeout=900).returncode
    sys.exit(failed)


if __name__ == "__main__":
    main()

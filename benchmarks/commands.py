"""What does a command cost as a task, above starting it by oneself?

`/bin/true` as an attempt of the command executor, one after the other and eight at once, in turns
with `subprocess.run` of the same command (eight at once: in threads).
"""

import asyncio
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from common import arguments, median, report, temp_folder

from rota.config import ExecutorSettings
from rota.executors.command import CommandExecutor
from rota.executors.port import Attempt
from rota.executors.wards.keepers import Keepers
from rota.executors.wards.leftovers import marks_of

AT_ONCE = 8


def attempt(n):
    return Attempt(f"t{n}", "a", 1, n, "c", "c", {})


async def measured(folder, count):
    settings = ExecutorSettings(kind="command", argv=("/bin/true",))
    executor = CommandExecutor(settings, Keepers(marks_of(folder)), folder)
    await executor.run(attempt(0), print)
    ours, plain = [], []
    for n in range(count):
        start = time.perf_counter()
        outcome = await executor.run(attempt(n), print)
        ours.append(time.perf_counter() - start)
        assert outcome.ok, outcome
        start = time.perf_counter()
        subprocess.run(["/bin/true"], check=True)  # noqa: ASYNC221 - that is what is measured
        plain.append(time.perf_counter() - start)

    async def many(one):
        start = time.perf_counter()
        for at in range(0, count, AT_ONCE):
            await asyncio.gather(*(one(at + n) for n in range(AT_ONCE)))
        return count / (time.perf_counter() - start)

    rate = await many(lambda n: executor.run(attempt(n), print))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        loop = asyncio.get_running_loop()
        floor = await many(lambda _: loop.run_in_executor(pool, subprocess.run, ["/bin/true"]))
    await executor.close()
    return median(ours), median(plain), rate, floor


def main():
    args = arguments(__doc__.splitlines()[0], commands=(400, "commands"))
    with temp_folder() as folder:
        ours, plain, rate, floor = asyncio.run(measured(folder, args.commands))
    rows = [
        ("a command, p50", ours * 1e3, "ms", "", None),
        ("subprocess.run of the same, p50", plain * 1e3, "ms", "", None),
        ("above it", (ours - plain) * 1e3, "ms", "", None),
        (f"commands, {AT_ONCE} at once", rate, "/s", "", None),
        (f"subprocess.run, {AT_ONCE} at once", floor, "/s", "", None),
    ]
    report("commands", rows, as_json=args.json)


if __name__ == "__main__":
    main()

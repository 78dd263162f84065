"""What goes before a command in a sandbox, and whether that holds on this machine.

The program is bubblewrap. A sandbox has no network, no processes but its own and no capabilities,
can write nothing but the command's folders, and sees nothing of the data of any namespace, nor of
rota's configuration and its TLS key.
"""

from __future__ import annotations

import os
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

BWRAP = "bwrap"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PROBE_S = 10
SHM = "/dev/shm"  # noqa: S108 - the sandbox's own
SHM_BYTES = 256 << 20
"""So much may lie in a sandbox's /dev/shm, unless its command has a limit on memory."""
LOOK = ("cat", "/proc/self/status", "/proc/self/mountinfo")
WANTED = {"CapPrm": "0" * 16, "CapEff": "0" * 16, "CapBnd": "0" * 16, "NoNewPrivs": "1"}


def sandbox(
    cwd: str, hidden: Iterable[Path], more: Iterable[str] = (), shm_bytes: int = SHM_BYTES
) -> list[str]:
    """Give what goes before a command that may write `cwd` and `more`, and not see `hidden`.

    What lies inside of another comes after it; what is hidden goes before what may be written. In
    place of a folder it sees an empty one, in place of a file /dev/null.
    """
    mounts = [(Path(os.path.realpath(each)), "--bind") for each in (cwd, *more)]
    unseen = [Path(os.path.realpath(each)) for each in hidden]
    mounts += [(each, "--ro-bind" if each.is_file() else "--tmpfs") for each in unseen]
    mounts.sort(key=lambda mount: (len(mount[0].parts), mount[1]))
    argv = _walls(shm_bytes)
    for path, how in mounts:
        where = {"--bind": [str(path)], "--ro-bind": [os.devnull]}.get(how, [])
        argv += [how, *where, str(path)]
    for path, how in mounts:
        if how == "--tmpfs":
            argv += ["--remount-ro", str(path)]
    return [*argv, "--chdir", os.path.realpath(cwd), "--"]


def _walls(shm_bytes: int) -> list[str]:
    size = ["--size", str(shm_bytes)] if _knows_size(BWRAP) else []
    return [
        BWRAP, "--unshare-all", "--cap-drop", "ALL", "--die-with-parent", "--ro-bind", "/", "/",
        "--dev", "/dev", *size, "--tmpfs", SHM, "--remount-ro", "/dev", "--proc", "/proc",
    ]  # fmt: skip


def sandbox_problem() -> str:
    """Try the sandbox; say why it does not work or does not hold, nothing if it does."""
    try:
        done = _run([*_walls(SHM_BYTES), "--", *LOOK])
    except FileNotFoundError:
        return "there is no program 'bwrap'"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bwrap cannot be run: {error}"
    if done.returncode != 0:
        said = done.stderr.strip().rpartition("\n")[2]
        return said or f"bwrap ended with {done.returncode}"
    return weakness(done.stdout)


def weakness(seen: str) -> str:
    """Say what a process in a sandbox has that it must not, by what /proc tells it of itself."""
    lines = [line.split() for line in seen.splitlines()]
    has = {line[0].rstrip(":"): line[1] for line in lines if len(line) > 1}
    for name, value in WANTED.items():
        if has.get(name) != value:
            return f"inside of it {name} is {has.get(name)}, not {value}"
    roots = [line[5].split(",") for line in lines if line[4:5] == ["/"]]
    if not roots or any("ro" not in options for options in roots):
        return "inside of it / can be written"
    return ""


@lru_cache(maxsize=4)
def _knows_size(bwrap: str) -> bool:
    """Whether bwrap is new enough (0.7) to bound what lies in memory."""
    try:
        return "--size" in _run([bwrap, "--help"]).stdout
    except (OSError, subprocess.TimeoutExpired):
        return False


def _run(argv: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - a program of the machine, by its name
        argv, capture_output=True, text=True, timeout=PROBE_S, check=False, env={"PATH": PATH}
    )

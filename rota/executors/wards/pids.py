"""The ceiling on a command's processes that the kernel keeps, where there is one to be had.

A look at a command's processes now and then can be outrun by one that forks fast. Where a cgroup
with a limit on pids can be made, the keeper and all commands are in one, which keeps the worst
away; a command whose limit was asked for has one of its own. (Not all of them: to move a process
holds up every fork of the machine for some milliseconds.) Who is not root has RLIMIT_NPROC, which
counts everything of a user. Only the standard library is imported.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ALL_MAX = 16_384
"""So many processes and threads may all commands of a server have, where the kernel counts."""
MARGIN = 1000
"""So many more than there are may others of the user start, before RLIMIT_NPROC stops a command."""


def rlimit_nproc(most: int) -> int:
    """Give a bound on the processes of a user that a command with `most` of them cannot pass."""
    with open("/proc/loadavg", encoding="ascii") as file:  # noqa: PTH123 - starts fast
        there_are = int(file.read().split()[3].partition("/")[2])
    return there_are + most + MARGIN


def make_home(mark: str) -> str | None:
    """Make the folder in which each command gets a cgroup of its own; None if there cannot be."""
    for folder in _folders(_text("/proc/self/cgroup"), _text("/proc/self/mountinfo")):
        home = home_in(folder, mark)
        try:
            _delegate(folder)
            with contextlib.suppress(FileExistsError):
                os.mkdir(home)  # noqa: PTH102 - starts fast
            _delegate(home)
            probe = f"{home}/probe-{os.getpid()}"
            os.mkdir(probe)  # noqa: PTH102
            can = os.access(f"{probe}/pids.max", os.W_OK)
            os.rmdir(probe)  # noqa: PTH106
        except OSError:
            can = False
        if can:
            return home
        remove(home)
    return None


def homes(mark: str) -> list[str]:
    """Give the folders that an earlier keeper may have made."""
    found = _folders(_text("/proc/self/cgroup"), _text("/proc/self/mountinfo"))
    return [home for folder in found if os.path.isdir(home := home_in(folder, mark))]  # noqa: PTH112


def made_by(mark: str, keepers: set[int | None]) -> list[str]:
    """Give the cgroups that there are of keepers and wards."""
    folders = (of(home, pid) for home in homes(mark) for pid in keepers if pid is not None)
    return [folder for folder in folders if os.path.isdir(folder)]  # noqa: PTH112 - starts fast


def home_in(folder: str, mark: str) -> str:
    return f"{folder}/rota-{mark}"


def join(folder: str, most: int) -> bool:
    """Be in a cgroup with at most so many processes and threads; False if it cannot be."""
    try:
        os.mkdir(folder)  # noqa: PTH102 - starts fast
        _write(f"{folder}/pids.max", str(most))
        _write(f"{folder}/cgroup.procs", "0")
    except OSError:
        remove(folder)
        return False
    return True


def was_hit(folder: str) -> bool:
    """Tell whether a process was refused in a cgroup."""
    return "max 0" not in (_text(f"{folder}/pids.events") or "max 0")


def of(home: str, pid: int) -> str:
    """Name the cgroup of a ward, or of a keeper and all who have none of their own."""
    return f"{home}/{pid}"


def members(folder: str) -> list[int]:
    """Give who is in a cgroup, or in one right below it."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for path in (folder, *(each.path for each in os.scandir(folder) if each.is_dir())):
            found += map(int, _text(f"{path}/cgroup.procs").split())
    return found


def remove(folder: str) -> None:
    """Remove a cgroup, and those right below it, in which nobody is."""
    with contextlib.suppress(OSError):
        for each in os.scandir(folder):
            if each.is_dir():
                with contextlib.suppress(OSError):
                    os.rmdir(each.path)  # noqa: PTH106 - starts fast
        os.rmdir(folder)  # noqa: PTH106


def _folders(own: str, mounts: str) -> Iterator[str]:
    """Find where a cgroup may be made: in our own, or beside it, where version 2 wants it."""
    paths = {}
    for line in own.splitlines():
        _, names, path = line.split(":", 2)
        paths["pids" if "pids" in names.split(",") else names] = path
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        root, point = before.split()[3:5]
        kind, _, options = after.split()[:3]
        if kind == "cgroup2":
            path = paths.get("", "")
        elif kind == "cgroup" and "pids" in options.split(","):
            path = paths.get("pids", "")
        else:
            continue
        if path.startswith(root):
            folder = f"{point}/{path[len(root) :].strip('/')}".rstrip("/")
            yield folder
            if folder != point:
                yield folder.rpartition("/")[0]


def _delegate(folder: str) -> None:
    """Let the cgroups below have a limit on pids; version 1 needs no telling."""
    path = f"{folder}/cgroup.subtree_control"
    if os.path.exists(path) and "pids" not in _text(path).split():  # noqa: PTH110 - starts fast
        _write(path, "+pids")


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - starts fast
            return file.read()
    except OSError:
        return ""


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:  # noqa: PTH123 - starts fast
        file.write(text)

"""Finds and kills what a server that was killed has left running.

Keepers, wards and commands carry the folder's mark in their environment, and are in its cgroups if
there are any. Wards end by themselves when their server is gone, and take everything of theirs
along; here it is waited for that, and what is left is killed, with all below it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
from hashlib import blake2b
from typing import TYPE_CHECKING

import psutil

from rota.executors.wards import pids

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger("rota.executors")

MARK = "ROTA_SHARD"
FOLDER = "commands"
REMOVE = ("rm", "-rf", "--")
"""Removes a folder however deep it is; shutil's way holds a descriptor for each level."""
PATIENCE_S = 2.0
KILL_S = 5.0
POLL_S = 0.05


def marks_of(data_dir: Path) -> dict[str, str]:
    """Give what the processes of a data folder have in their environment."""
    name = str(data_dir.resolve()).encode()
    return {MARK: blake2b(name, digest_size=16).hexdigest()}


def marked(marks: dict[str, str]) -> list[psutil.Process]:
    """Find the processes, but for this one, that carry all of the marks."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and marks.items() <= process.environ().items():
                found.append(process)
    return [process for process in found if not has_ended(process)]


def kill_tree(pid: int) -> int:
    """Kill a process with all below it; give how many that were."""
    try:
        return _kill([psutil.Process(pid)])
    except psutil.Error:
        return 0


def kill_lost(marks: dict[str, str], cgroups: list[str], kept: set[int]) -> int:
    """Kill who carries all of the marks or is in one of the cgroups; give how many.

    Not those in the cgroups that are `kept`, nor who is below them.
    """
    found = {process.pid: process for process in marked(marks)}
    for pid in {pid for folder in cgroups for pid in pids.members(folder)}:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if not has_ended(process) and not kept & {pid, *(p.pid for p in process.parents())}:
                found.setdefault(pid, process)
    return _kill(list(found.values()))


def kill_leftovers(data_dir: Path) -> int:
    """Kill what an earlier server of this folder left, and clean up; give how many that were."""
    folder = data_dir / FOLDER
    if not folder.exists():  # it never ran a command
        return 0
    marks = marks_of(data_dir)
    homes = pids.homes(marks[MARK])
    found = {process.pid: process for process in marked(marks)}
    for pid in {pid for home in homes for pid in pids.members(home)} - {os.getpid()}:
        with contextlib.suppress(psutil.Error):
            found.setdefault(pid, psutil.Process(pid))
    killed = _kill(_still_there(list(found.values()), PATIENCE_S))
    for home in homes:
        pids.remove(home)
    for each in folder.iterdir():
        subprocess.run([*REMOVE, each], check=False)  # noqa: S603 - what a command worked in
    return killed


def _kill(left: list[psutil.Process]) -> int:
    doomed = {process.pid: process for process in left}
    for process in left:
        with contextlib.suppress(psutil.Error):
            doomed.update((each.pid, each) for each in process.children(recursive=True))
    for process in doomed.values():
        with contextlib.suppress(psutil.Error):
            process.kill()
    alive = _still_there(list(doomed.values()), KILL_S)
    if doomed:
        logger.warning("killed %d processes that nobody kept any more", len(doomed))
    for process in alive:
        logger.error("process %d, which nobody keeps any more, cannot be killed", process.pid)
    return len(doomed)


def _still_there(processes: list[psutil.Process], patience_s: float) -> list[psutil.Process]:
    """Wait for processes to end; give those that do not."""
    for _ in range(round(patience_s / POLL_S)):
        processes = [each for each in processes if not has_ended(each)]
        if not processes:
            break
        _, processes = psutil.wait_procs(processes, POLL_S)
    return processes


def has_ended(process: psutil.Process) -> bool:
    """Tell whether it is gone, or only waits for a parent that does not care."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return True

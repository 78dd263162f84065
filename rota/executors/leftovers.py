"""Finds and kills what a server that was killed has left running.

Keepers, wards and commands carry the folder's mark in their environment. Wards end by themselves
when their server is gone, and take everything of theirs along; here it is waited for that, and what
is left with the mark is killed, with all below it.
"""

from __future__ import annotations

import contextlib
import logging
from hashlib import blake2b
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger("rota.executors")

MARK = "ROTA_SHARD"
FOLDER = "commands"
PATIENCE_S = 2.0
KILL_S = 5.0


def marks_of(data_dir: Path) -> dict[str, str]:
    """Give what the processes of a data folder have in their environment."""
    name = str(data_dir.resolve()).encode()
    return {MARK: blake2b(name, digest_size=16).hexdigest()}


def marked(mark: str) -> list[psutil.Process]:
    """Find the processes that carry a mark."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def kill_leftovers(data_dir: Path) -> int:
    """Kill what an earlier server of this folder left; give how many that were."""
    if not (data_dir / FOLDER).exists():  # it never ran a command
        return 0
    mark = marks_of(data_dir)[MARK]
    _, left = psutil.wait_procs(marked(mark), PATIENCE_S)
    doomed = list(left)
    for process in left:
        with contextlib.suppress(psutil.Error):
            doomed += process.children(recursive=True)
    for process in doomed:
        with contextlib.suppress(psutil.Error):
            process.kill()
    _, alive = psutil.wait_procs(doomed, KILL_S)
    if doomed:
        logger.warning("killed %d processes that an earlier server had left", len(doomed))
    for process in alive:
        logger.error("process %d, left by an earlier server, cannot be killed", process.pid)
    return len(doomed)

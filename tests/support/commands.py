"""Commands to run and to be rid of: an executor with its keeper, and programs that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Any

import psutil

from rota.config import ExecutorSettings
from rota.executors.command import CommandExecutor
from rota.executors.port import Attempt, Note
from rota.executors.wards.keepers import Keepers
from rota.executors.wards.leftovers import marks_of

if TYPE_CHECKING:
    from pathlib import Path

    from rota.domain.commands import Outcome

PATIENCE_S = 60
PYTHON = sys.executable
IGNORES_TERM = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('up', flush=True)
time.sleep(600)
"""
FORKS = """
import os, time
os.fork()
os.fork()
print('up', flush=True)
time.sleep(600)
"""
ESCAPES = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve("/bin/sleep", ["sleep", "600"], {})
    os._exit(0)
os.wait()
print('up', flush=True)
time.sleep(600)
"""
FLOODS = """
import time
print('up', flush=True)
while True: print('x' * 1000)
"""
STUBBORN = {"ignores": IGNORES_TERM, "forks": FORKS, "escapes": ESCAPES, "floods": FLOODS}


def python(code: str) -> tuple[str, ...]:
    """Give the arguments that run Python code, started fast."""
    return (PYTHON, "-I", "-S", "-c", code)


class Shell:
    """An executor with its keeper, and what it told."""

    def __init__(self, folder: Path, argv: tuple[str, ...], **more: Any) -> None:
        settings = ExecutorSettings(kind="command", argv=argv, **more)
        self.folder = folder
        self.keepers = Keepers(marks_of(folder))
        self.executor = CommandExecutor(settings, self.keepers, folder)
        self.notes: list[Note] = []
        self.is_up = asyncio.Event()

    def tell(self, note: Note) -> None:
        self.notes.append(note)
        if "up" in note.lines:
            self.is_up.set()

    async def run(self, task: str = "tsk_1", **params: Any) -> Outcome:
        attempt = Attempt(task, "agent", 1, 7, "cmd", "cmd", params)
        async with asyncio.timeout(PATIENCE_S):
            return await self.executor.run(attempt, self.tell)

    @property
    def lines(self) -> list[str]:
        return [line for note in self.notes for line in note.lines]

    def alive(self) -> list[psutil.Process]:
        """Give whoever is below the keeper, and is neither a ward nor about to end."""
        if self.keepers.keeper is None or self.keepers.keeper.process.returncode is not None:
            return []
        keeper = psutil.Process(self.keepers.keeper.process.pid)
        found = []
        for each in keeper.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if each.cmdline() not in ([], keeper.cmdline()):
                    found.append(each)
        return found


async def ran(folder: Path, *argv: str, params: dict[str, Any] | None = None, **more: Any) -> Any:
    """Run a command to its end; give the outcome and the shell, in which nothing is left."""
    shell = Shell(folder, argv, **more)
    try:
        outcome = await shell.run(**(params or {}))
        assert not shell.alive()
    finally:
        await shell.executor.close()
    return outcome, shell

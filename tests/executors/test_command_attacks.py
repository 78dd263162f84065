"""Commands that turn against who keeps them: they end all the same, and so does the server."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from support.commands import PATIENCE_S, PYTHON, Shell, python

from rota.executors.port import Attempt
from rota.executors.wards import keepers, pids
from rota.executors.wards.leftovers import MARK, has_ended, marks_of

if TYPE_CHECKING:
    from pathlib import Path

WHO = """
import os, signal, subprocess, sys, time
ward = os.getppid()
with open(f"/proc/{ward}/stat") as file:
    keeper = int(file.read().rpartition(")")[2].split()[1])
"""
STOPS_WARD = (
    WHO
    + """
os.kill(ward, signal.SIGSTOP)
print("up", flush=True)
time.sleep(600)
"""
)
STOPS_BOTH = (
    WHO
    + """
os.kill(keeper, signal.SIGSTOP)
os.kill(ward, signal.SIGSTOP)
print("up", flush=True)
time.sleep(600)
"""
)
STOPS_FOR_EVER = (
    WHO
    + """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
while True:
    os.kill(keeper, signal.SIGSTOP)
    os.kill(ward, signal.SIGSTOP)
"""
)
KILLS_KEEPER_STOPS_WARD = (
    WHO
    + """
os.kill(keeper, signal.SIGKILL)
os.kill(ward, signal.SIGSTOP)
print("up", flush=True)
time.sleep(600)
"""
)
GETS_AWAY = (
    WHO
    + """
away = subprocess.Popen(["sleep", "600"], env={}, start_new_session=True,
    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(away.pid, flush=True)
print("up", flush=True)
time.sleep(0.5)
os.kill(keeper, signal.SIGKILL)
os.kill(ward, signal.SIGKILL)
"""
)
ATTACKS = {
    "stops its ward": STOPS_WARD,
    "stops both": STOPS_BOTH,
    "stops for ever": STOPS_FOR_EVER,
    "kills one": KILLS_KEEPER_STOPS_WARD,
}


def at_it(code: str, tmp_path: Path, **more: Any) -> Shell:
    return Shell(tmp_path, (PYTHON, "-I", "-c", code), graceMs=300, **more)


@pytest.fixture
def is_hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have silence taken for an answer sooner."""
    monkeypatch.setattr(keepers, "ANSWER_S", 1.0)


@pytest.mark.usefixtures("is_hasty")
@pytest.mark.parametrize("name", ATTACKS)
def test_the_time_limit_ends_it(tmp_path: Path, name: str) -> None:
    async def story() -> None:
        shell = at_it(ATTACKS[name], tmp_path, timeLimitMs=1500)
        outcome = await shell.run()
        assert outcome.code == "time_limit", outcome
        assert not shell.alive()
        await shell.executor.close()

    asyncio.run(story())


@pytest.mark.usefixtures("is_hasty")
@pytest.mark.parametrize("name", ATTACKS)
def test_a_cancel_ends_it(tmp_path: Path, name: str) -> None:
    async def story() -> None:
        shell = at_it(ATTACKS[name], tmp_path)
        task = asyncio.create_task(shell.run())
        await asyncio.wait_for(shell.is_up.wait(), PATIENCE_S)
        there = marked_below(shell)
        task.cancel()
        await asyncio.wait([task], timeout=PATIENCE_S)
        assert task.cancelled()
        assert all(map(has_ended, there))
        await shell.executor.close()

    asyncio.run(story())


def marked_below(shell: Shell) -> list[psutil.Process]:
    """Give the processes of the command, also if their keeper is gone."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            env = process.environ()
            if shell.keepers.marks.items() <= env.items() and "ROTA_ATTEMPT_TOKEN" in env:
                found.append(process)
    assert found
    return found


@pytest.mark.usefixtures("is_hasty")
def test_limits_go_on_when_a_command_stops_its_ward(tmp_path: Path) -> None:
    async def story() -> None:
        code = STOPS_BOTH.replace("time.sleep", "x = bytearray(300 << 20)\ntime.sleep")
        shell = at_it(code, tmp_path, memoryMbMax=100)
        assert (await shell.run()).code == "memory_limit"
        await shell.executor.close()

    asyncio.run(story())


@pytest.mark.usefixtures("is_hasty")
def test_who_stops_its_ward_again_and_again_loses_it(tmp_path: Path) -> None:
    async def story() -> None:
        code = STOPS_FOR_EVER.replace("    os.kill(keeper, signal.SIGSTOP)\n", "")
        shell = at_it(code, tmp_path)
        assert (await shell.run()).code == "command_lost"
        assert not shell.alive()
        await shell.executor.close()

    asyncio.run(story())


@pytest.mark.parametrize("name", ATTACKS)
def test_who_closes_waits_for_none_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Not even for one that has all the time in the world to end."""
    monkeypatch.setattr(keepers, "CLOSE_S", 1.0)

    async def story() -> None:
        shell = Shell(tmp_path, (PYTHON, "-I", "-c", ATTACKS[name]), graceMs=600_000)
        task = asyncio.create_task(shell.run())
        await asyncio.wait_for(shell.is_up.wait(), PATIENCE_S)
        there = marked_below(shell)
        task.cancel()
        await asyncio.sleep(0)
        await asyncio.wait_for(shell.executor.close(), PATIENCE_S)
        await asyncio.wait([task], timeout=PATIENCE_S)
        assert task.cancelled()
        async with asyncio.timeout(PATIENCE_S):
            while not all(map(has_ended, there)):
                await asyncio.sleep(0.05)

    asyncio.run(story())


@pytest.mark.parametrize("has_cgroup", [True, False])
def test_who_kills_all_its_keepers_is_found_in_its_cgroup_or_said_to_be_at_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_cgroup: bool
) -> None:
    """Where no cgroup can be made, both cases are the same."""
    if not has_cgroup:
        program = f"""import sys; sys.path.insert(0, {keepers.ROOT!r})
from rota.executors.wards import keeper, pids
pids.make_home = lambda mark: None
keeper.main()"""
        monkeypatch.setattr(keepers, "PROGRAM", program)

    async def story() -> None:
        shell = at_it(GETS_AWAY, tmp_path)
        quiet = Shell(tmp_path, python("import time; print('up', flush=True); time.sleep(600)"))
        quiet.executor._keepers = shell.keepers
        attempt = Attempt("tsk_2", "agent", 1, 8, "cmd", "cmd", {})
        other = asyncio.create_task(quiet.executor.run(attempt, quiet.tell))
        await asyncio.wait_for(quiet.is_up.wait(), PATIENCE_S)
        has_cgroup = bool(pids.homes(marks_of(tmp_path)[MARK]))
        outcome = await shell.run()
        assert outcome.code == "command_lost"
        away = int(shell.lines[0])
        assert ("only those" in outcome.error) == (not has_cgroup), outcome
        if has_cgroup:
            assert not psutil.pid_exists(away) or has_ended(psutil.Process(away))
        else:
            psutil.Process(away).kill()
        assert not other.done(), "another command goes on, kept by its own ward"
        other.cancel()
        await asyncio.wait([other], timeout=PATIENCE_S)
        await shell.executor.close()

    asyncio.run(story())

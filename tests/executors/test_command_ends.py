"""Commands: that nothing of them is left, however they, their wards or their server end."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import uvloop
from support.commands import IGNORES_TERM, PATIENCE_S, PYTHON, STUBBORN, Shell, python, ran

from rota.executors.sandbox import sandbox_problem
from rota.executors.wards.leftovers import FOLDER, MARK, has_ended, kill_leftovers, marked, marks_of

if TYPE_CHECKING:
    from pathlib import Path

    from rota.executors.wards.keepers import Command


def test_what_it_leaves_behind_is_killed_when_it_ends(tmp_path: Path) -> None:
    code = "import os, time\nif os.fork() == 0: time.sleep(600)\nprint('[1]')"
    outcome, _ = asyncio.run(ran(tmp_path, *python(code)))
    assert outcome.result == [1]


def test_one_whose_first_thread_has_ended_is_killed_too(tmp_path: Path) -> None:
    code = """
import ctypes, os, threading, time
if os.fork() == 0:
    threading.Thread(target=time.sleep, args=(600,)).start()
    ctypes.CDLL(None).syscall(60, 0)  # the thread ends, not the process
time.sleep(0.2)
print('[1]')
"""
    outcome, _ = asyncio.run(ran(tmp_path, PYTHON, "-c", code))
    assert outcome.result == [1], outcome


@pytest.mark.parametrize("sandbox", ["none", "bubblewrap"])
@pytest.mark.parametrize("name", STUBBORN)
def test_nothing_is_left_of_what_was_cut_off(tmp_path: Path, name: str, sandbox: str) -> None:
    """Where there can be no sandbox, the case that asks for one is the same as the other."""
    if sandbox_problem():
        sandbox = "none"

    async def story() -> None:
        argv = python(STUBBORN[name])
        shell = Shell(tmp_path, argv, graceMs=300, outputBytesMax=1 << 40, sandbox=sandbox)
        task = asyncio.create_task(shell.run())
        async with asyncio.timeout(PATIENCE_S):
            await shell.is_up.wait()
            assert shell.alive()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert not shell.alive()
        await shell.executor.close()

    asyncio.run(story())


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_one_can_be_cut_off_at_any_moment(tmp_path: Path, new_loop: Any) -> None:
    """Before it begins, while it does, while it runs, and as it ends by itself."""

    async def story() -> None:
        shell = Shell(tmp_path, ("true",), graceMs=100)
        await shell.run()
        turns = 1
        while True:
            task = asyncio.create_task(shell.run())
            for _ in range(turns):
                await asyncio.sleep(0)
            is_late = task.done()
            task.cancel()
            await asyncio.wait([task], timeout=PATIENCE_S)
            assert task.done()
            assert is_late or task.cancelled() or task.result().ok
            assert not shell.alive()
            if is_late:
                break
            turns += 1 + turns // 3
        await shell.executor.close()
        assert not list((tmp_path / FOLDER).iterdir())

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(story())


@pytest.mark.parametrize(("word", "number"), [("terminate", 15), ("kill", 9)])
def test_one_that_is_cut_off_as_it_begins_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, number: int
) -> None:
    async def story() -> None:
        shell = Shell(tmp_path, ("sleep", "600"), graceMs=50_000)
        start = shell.keepers.start

        async def start_and_end(*args: Any) -> Command:
            command = await start(*args)
            getattr(command, word)()
            return command

        monkeypatch.setattr(shell.keepers, "start", start_and_end)
        outcome = await shell.run()
        assert outcome.code == "command_killed"
        assert outcome.details is not None
        assert outcome.details["signal"] == number
        await shell.executor.close()

    asyncio.run(story())


def test_what_is_cut_off_may_clean_up_within_its_grace(tmp_path: Path) -> None:
    code = f"""
import signal, sys, time
def end(*_):
    open({str(tmp_path / "clean")!r}, "w").close()
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("up", flush=True)
time.sleep(600)
"""

    async def story() -> None:
        shell = Shell(tmp_path, python(code), graceMs=50_000)
        task = asyncio.create_task(shell.run())
        await asyncio.wait_for(shell.is_up.wait(), PATIENCE_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (tmp_path / "clean").exists()
        await shell.executor.close()

    asyncio.run(story())


def test_a_task_begins_again_only_when_nothing_of_its_last_attempt_is_left(tmp_path: Path) -> None:
    async def story() -> None:
        shell = Shell(tmp_path, python(IGNORES_TERM), graceMs=500)
        first = asyncio.create_task(shell.run())
        await asyncio.wait_for(shell.is_up.wait(), PATIENCE_S)
        (old,) = shell.alive()
        first.cancel()
        await asyncio.sleep(0)
        shell.is_up.clear()
        second = asyncio.create_task(shell.run())
        await asyncio.wait_for(shell.is_up.wait(), PATIENCE_S)
        assert first.done()
        (new,) = shell.alive()
        assert new.pid != old.pid
        second.cancel()
        await asyncio.wait([second])
        await shell.executor.close()

    asyncio.run(story())


def test_a_ward_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        code = "import os, signal, time\nos.kill(os.getppid(), 9)\ntime.sleep(600)"
        shell = Shell(tmp_path, python(code))
        outcome = await shell.run()
        assert outcome.code == "command_lost"
        assert not shell.alive()
        assert (await shell.run()).code == "command_lost", "the keeper goes on"
        await shell.executor.close()

    asyncio.run(story())


def test_a_keeper_that_is_killed_is_started_again(tmp_path: Path) -> None:
    async def story() -> None:
        shell = Shell(tmp_path, ("echo", "{}"))
        assert (await shell.run()).ok
        assert shell.keepers.keeper is not None
        process = shell.keepers.keeper.process
        process.kill()
        await process.wait()
        assert (await shell.run()).ok
        await shell.executor.close()

    asyncio.run(story())


def test_a_command_that_lost_its_ward_and_its_keeper_is_found_by_its_marks(tmp_path: Path) -> None:
    async def story() -> None:
        shell = Shell(tmp_path, python(IGNORES_TERM))
        task = asyncio.create_task(shell.run())
        await asyncio.wait_for(shell.is_up.wait(), PATIENCE_S)
        (process,) = shell.alive()
        ward = process.parent()
        assert shell.keepers.keeper is not None
        assert ward is not None
        shell.keepers.keeper.process.kill()
        await shell.keepers.keeper.process.wait()
        ward.kill()
        assert (await task).code == "command_lost"
        assert has_ended(process)
        await shell.executor.close()
        kill_leftovers(tmp_path)

    asyncio.run(story())


def test_a_ward_that_is_done_takes_another_command(tmp_path: Path) -> None:
    async def story() -> None:
        shell = Shell(tmp_path, python("import os; print([os.getppid()])"))
        wards = [(await shell.run()).result[0] for _ in range(5)]
        assert len(set(wards)) < 5
        ward = psutil.Process(wards[-1])
        ward.kill()
        while not has_ended(ward):
            await asyncio.sleep(0.01)
        assert (await shell.run()).ok, "one that was killed meanwhile is replaced"
        await shell.executor.close()

    asyncio.run(story())


def test_several_that_come_at_once_share_one_keeper(tmp_path: Path) -> None:
    async def story() -> None:
        shell = Shell(tmp_path, ("echo", "[{{n}}]"))
        outcomes = await asyncio.gather(*(shell.run(f"t{n}", n=n) for n in range(5)))
        assert [outcome.result for outcome in outcomes] == [[n] for n in range(5)]
        assert shell.keepers.keeper is not None
        keeper = shell.keepers.keeper.process.pid
        found = marked(marks_of(tmp_path))
        assert {each.pid for each in found if each.ppid() == os.getpid()} == {keeper}
        await shell.executor.close()

    asyncio.run(story())


NO_DESCRIPTORS = """
import asyncio, os, resource, sys
from pathlib import Path
from support.commands import Shell

def fill():
    taken = []
    try:
        while True: taken.append(os.dup(0))
    except OSError:
        return taken

async def main():
    shell = Shell(Path(sys.argv[1]), ("echo", "[1]"))
    assert (await shell.run()).ok
    resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
    for room in range(6):
        taken = fill()
        for _ in range(room): os.close(taken.pop())
        outcome = await shell.run()
        assert outcome.code == "command_not_started", (room, outcome)
        assert "Too many open files" in outcome.error, outcome
        for _ in range(3): await asyncio.sleep(0)
        free = fill()
        assert len(free) == room, (room, free)
        for fd in taken + free: os.close(fd)
    assert (await shell.run()).ok
    await shell.executor.close()

asyncio.run(main())
"""


def test_a_server_without_descriptors_says_so_and_loses_none(tmp_path: Path) -> None:
    code = f"import sys; sys.path[:0] = {sys.path!r}\n{NO_DESCRIPTORS}"
    done = subprocess.run(
        [PYTHON, "-c", code, tmp_path],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", STUBBORN)
def test_what_a_killed_server_left_is_killed_before_the_next_goes_on(
    tmp_path: Path, name: str
) -> None:
    server = f"""
import asyncio, sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
from support.commands import Shell

async def main():
    shell = Shell(Path({str(tmp_path)!r}), {python(STUBBORN[name])!r}, outputBytesMax=1 << 40)
    task = asyncio.create_task(shell.run())
    await shell.is_up.wait()
    print("up", flush=True)
    await task

asyncio.run(main())
"""

    async def story() -> None:
        process = await asyncio.create_subprocess_exec(
            PYTHON, "-c", server, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            assert await process.stdout.readline() == b"up\n"
        below = psutil.Process(process.pid).children(recursive=True)
        assert len(below) >= 3  # the keeper, a ward, the command
        process.kill()
        await process.wait()
        kill_leftovers(tmp_path)
        assert all(map(has_ended, below))
        assert not list((tmp_path / FOLDER).iterdir())

    asyncio.run(story())


def test_leftovers_with_the_mark_are_killed_even_when_nobody_keeps_them(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    process = subprocess.Popen(["sleep", "600"], env=marks_of(tmp_path))
    other = subprocess.Popen(["sleep", "600"], env={MARK: "another"})
    try:
        assert [each.pid for each in marked(marks_of(tmp_path))] == [process.pid]
        assert kill_leftovers(tmp_path) == 1
        process.wait(PATIENCE_S)
        assert other.poll() is None
    finally:
        for each in (process, other):
            each.kill()
            each.wait(PATIENCE_S)

"""The server's side of the keeper: starts it when it is needed, and commands in it.

A `Command` is one that runs, and the line to its ward; `gone` is set when nothing of it is left. A
keeper that was killed is replaced; its wards go on, and if one of them is killed too, what it left
is found by its marks, and in the keeper's cgroup if there is one. A ward that does not answer is
killed by its keeper; a keeper that does not, by us, with all below it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rota.executors.wards import pids, ward
from rota.executors.wards.leftovers import MARK, kill_lost, kill_tree

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

ROOT = str(Path(__file__).parents[3])
PROGRAM = (
    f"import sys; sys.path.insert(0, {ROOT!r})\n"
    "from rota.executors.wards.keeper import main; main()"
)
CLOSE_S = 5.0
ANSWER_S = 5.0
"""For so long a ward, and then its keeper, may take to answer."""
WAKE_S = 1.0
"""So often a keeper is told to go on, in case that a command has stopped it."""
TRIES = 3


class Command(asyncio.Protocol):
    """A command that runs under a ward, at the other end of a line."""

    def __init__(self, name: bytes, marks: dict[str, str], grace_s: float = 0.0) -> None:
        """Be the one under a name; whatever is of it has `marks` in its environment."""
        self.name = name
        self.marks = marks
        self.ward: int | None = None
        """The ward's pid, while the line is open."""
        self._grace_s = grace_s
        self._patience: asyncio.TimerHandle | None = None
        self.keeper: Keeper | None = None
        self.gone = asyncio.Event()
        self.end: dict[str, Any] = {}
        """What the ward said: how it ended, or the problem with starting it."""
        self.is_lost = False
        """Whether the ward has ended without a word."""
        self.is_cleared = False
        """Whether the keeper has killed what a lost ward left."""
        self.is_heard = False
        """Whether the keeper has answered that it kills the ward."""
        self.is_sure = True
        """Whether nothing can be left of it, now that it is gone."""
        self._line: asyncio.Transport | None = None
        self._heard = b""

    def terminate(self) -> None:
        """Have everything of it asked to end, and killed after the grace."""
        self._say(ward.TERMINATE)
        self._expect(self._grace_s + ANSWER_S)

    def kill(self) -> None:
        """Have everything of it killed at once."""
        self._say(ward.KILL)
        self._expect(ANSWER_S)

    def _expect(self, within_s: float) -> None:
        """Have the ward killed, too, if nothing is heard of the end until then."""
        if self.gone.is_set() or self.keeper is None:
            return
        loop = asyncio.get_running_loop()
        if self._patience is None or self._patience.when() > loop.time() + within_s:
            self._be_patient()
            self._patience = loop.call_later(within_s, self.keeper.put_down, self)

    def _be_patient(self) -> None:
        if self._patience is not None:
            self._patience.cancel()

    async def until_gone(self) -> None:
        """Wait until nothing is left, whoever is in a hurry: it still has its slot."""
        while not self.gone.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.gone.wait()

    def begin(self, spec: dict[str, Any]) -> None:
        """Tell the ward what to run."""
        self._say(json.dumps(spec).encode() + b"\n")

    def _say(self, what: bytes) -> None:
        if self._line is not None:
            self._line.write(what)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._line = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        *lines, self._heard = (self._heard + data).split(b"\n")
        for line in lines:
            said = json.loads(line)
            if "ward" in said:
                self.ward = said["ward"]
            elif self._line is not None and not self.end:
                self.end = said
                self._line.close()
                self.be_gone()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._line = None
        if not self.end:
            self.is_lost = True
            if self.keeper is not None:
                self.keeper.settle(self)

    def be_gone(self) -> None:
        self.gone.set()
        self._be_patient()
        if self.keeper is not None:
            self.keeper.commands.pop(self.name, None)

    async def leave(self) -> None:
        """Have nobody wait for it any longer, and no ward that it has stopped be left."""
        if not self.gone.is_set() and not self.is_lost and self.ward is not None:
            await asyncio.to_thread(kill_tree, self.ward)
        self.be_gone()

    def give_up(self) -> None:
        """Forget a command that was never begun."""
        self.be_gone()
        if self._line is not None:
            self._line.abort()


class Keeper:
    """One keeper that was started, and the commands that its wards keep."""

    def __init__(self, line: socket.socket, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.is_gone = False
        self.commands: dict[bytes, Command] = {}
        self._line = line
        self._tasks: set[asyncio.Task[None]] = set()
        self._waking: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(line.fileno(), self._hear)

    async def hand_over(self, command: Command, fds: list[int]) -> bool:
        """Have a ward take a command; False if the keeper is gone."""
        while not self.is_gone:
            try:
                socket.send_fds(self._line, [command.name], fds)
            except BlockingIOError:
                await self._until_writable()
            except ConnectionError:
                self.close()
            else:
                command.keeper = self
                self.commands[command.name] = command
                if self._waking is None:
                    self._waking = self._loop.call_later(WAKE_S, self.wake)
                return True
        return False

    async def _until_writable(self) -> None:
        """Wait for a keeper that is behind."""
        writable = asyncio.Event()
        fd = os.dup(self._line.fileno())  # several may wait
        self._loop.add_writer(fd, writable.set)
        try:
            await writable.wait()
        finally:
            self._loop.remove_writer(fd)
            os.close(fd)

    def wake(self) -> None:
        """Let the keeper go on if it was stopped, again and again while there are commands."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGCONT)
        self._waking = None
        if self.commands and not self.is_gone:
            self._waking = self._loop.call_later(WAKE_S, self.wake)

    def put_down(self, command: Command) -> None:
        """Have a command end whose ward does not answer."""
        if self.is_gone:
            if command.ward is not None:
                self._do(asyncio.to_thread(kill_tree, command.ward))
            return
        self.wake()
        with contextlib.suppress(OSError):
            self._line.send(ward.KILL + command.name)
        self._loop.call_later(ANSWER_S, self._put_down_myself, command)

    def _put_down_myself(self, command: Command) -> None:
        """Kill a keeper that does not answer either, with all below it.

        If it has, there is something that cannot be killed, or it is still at it.
        """
        if not command.gone.is_set() and not command.is_heard:
            self._do(self.kill())

    async def kill(self) -> None:
        """Kill the keeper with all that it keeps."""
        if self.process.returncode is None:
            await asyncio.to_thread(kill_tree, self.process.pid)
        self.close()

    def _do(self, what: Coroutine[Any, Any, Any]) -> None:
        task = self._loop.create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _hear(self) -> None:
        """Hear of a lost ward that nothing is left of; or that the keeper is gone."""
        try:
            said = self._line.recv(ward.NAME_BYTES_MAX)
        except BlockingIOError:
            return
        except ConnectionError:
            said = b""
        if not said:
            self.close()
            return
        command = self.commands.get(said.removeprefix(ward.KILL))
        if command is not None and said.startswith(ward.KILL):
            command.is_heard = True
        elif command is not None:
            command.is_cleared = True
            self.settle(command)

    def settle(self, command: Command) -> None:
        """Say that a command whose ward is lost is gone, once what that left is."""
        if not command.is_lost or command.gone.is_set():
            return
        if command.is_cleared:
            command.be_gone()
        elif self.is_gone:
            self._do(self._sweep(command))

    async def _sweep(self, command: Command) -> None:
        """Kill what is left of a command that has lost both its ward and its keeper."""
        cgroups = pids.made_by(command.marks[MARK], {self.process.pid, command.ward})
        command.is_sure = bool(cgroups)
        others = [each for each in self.commands.values() if not each.is_lost]
        kept = {each.ward for each in others if each.ward is not None}
        while await asyncio.to_thread(kill_lost, command.marks, cgroups, kept):
            pass
        command.be_gone()

    def close(self) -> None:
        """Hang up; the keeper ends after its wards."""
        if not self.is_gone:
            self.is_gone = True
            self._loop.remove_reader(self._line.fileno())
            self._line.close()
            for command in list(self.commands.values()):
                self.settle(command)


class Keepers:
    """One keeper at a time, for the commands of a server."""

    def __init__(self, marks: dict[str, str]) -> None:
        """Start keepers with `marks` in their environment, to be known by after a crash."""
        self.marks = marks
        self.keeper: Keeper | None = None
        self._opening = asyncio.Lock()
        self._names = count(1)
        self._of_tasks: dict[str, Command] = {}

    async def until_free(self, task: str) -> None:
        """Wait until nothing is left of an earlier attempt of a task that was cut off."""
        while (command := self._of_tasks.get(task)) is not None:
            await command.gone.wait()
            self._let_go(task, command)

    @contextlib.contextmanager
    def holding(self, task: str, command: Command) -> Iterator[None]:
        """Remember whose command it is while something of it may be left."""
        self._of_tasks[task] = command
        try:
            yield
        finally:
            self._let_go(task, command)

    def _let_go(self, task: str, command: Command) -> None:
        if self._of_tasks.get(task) is command:
            del self._of_tasks[task]

    async def start(
        self, spec: dict[str, Any], outputs: tuple[asyncio.Protocol, asyncio.Protocol]
    ) -> Command:
        """Start a command, whose outputs are told what it prints. Raises OSError.

        Who gives up meanwhile leaves nothing half done: it is started, and killed.
        """
        starting = asyncio.get_running_loop().create_task(self._start(spec, outputs))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            while not starting.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([starting])
            if starting.exception() is None:
                starting.result().kill()
                await starting.result().until_gone()
            raise

    async def _start(
        self, spec: dict[str, Any], outputs: tuple[asyncio.Protocol, asyncio.Protocol]
    ) -> Command:
        marks = {key: spec["env"][key] for key in (MARK, "ROTA_ATTEMPT_TOKEN")}
        command = Command(str(next(self._names)).encode(), marks, spec["graceMs"] / 1000)
        with contextlib.ExitStack() as undo, contextlib.ExitStack() as theirs:
            ours, their_line = socket.socketpair()
            theirs.callback(their_line.close)
            undo.callback(ours.close)
            await asyncio.get_running_loop().create_connection(lambda: command, sock=ours)
            undo.pop_all()
            undo.callback(command.give_up)
            ends = [await _piped(output, undo, theirs) for output in outputs]
            await self._hand_over(command, [*ends, their_line.fileno()])
            undo.pop_all()  # it runs
            command.begin(spec)
        return command

    async def _hand_over(self, command: Command, fds: list[int]) -> None:
        """Have a keeper take a command, and another if that was killed. Raises OSError."""
        for _ in range(TRIES):
            keeper = await self._opened()
            if await keeper.hand_over(command, fds):
                return
        msg = "the keeper of commands does not stay alive"
        raise OSError(msg)

    async def _opened(self) -> Keeper:
        async with self._opening:  # those who come at once get the same one
            if self.keeper is None or self.keeper.is_gone:
                self.keeper = await self._open()
            return self.keeper

    async def _open(self) -> Keeper:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with contextlib.ExitStack() as undo, theirs:
            undo.callback(ours.close)
            ours.setblocking(False)
            fd = theirs.fileno()
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", "-c", PROGRAM, str(fd), self.marks[MARK],
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
                pass_fds=(fd,), start_new_session=True,
                env={"PATH": os.environ.get("PATH", os.defpath), **self.marks},
            )  # fmt: skip
            undo.pop_all()
        return Keeper(ours, process)

    async def close(self) -> None:
        """Let go of the keeper: it ends, and the wards that there are kill what they keep.

        Whoever still waits for a command then waits no longer.
        """
        if self.keeper is not None:
            left = {*self.keeper.commands.values(), *self._of_tasks.values()}
            for command in left:
                command.kill()
            self.keeper.wake()
            self.keeper.close()
            ends = [self.keeper.process.wait(), *(command.gone.wait() for command in left)]
            try:
                await asyncio.wait_for(asyncio.gather(*ends), CLOSE_S)
            except TimeoutError:
                await self.keeper.kill()
            for command in left:
                await command.leave()
            for home in pids.homes(self.marks[MARK]):
                pids.remove(home)


async def _piped(
    output: asyncio.Protocol, undo: contextlib.ExitStack, theirs: contextlib.ExitStack
) -> int:
    """Have an output told what comes through a pipe; give the end to write to."""
    read, write = os.pipe2(os.O_CLOEXEC)
    theirs.callback(os.close, write)
    file = undo.enter_context(os.fdopen(read, "rb", buffering=0))
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: output, file)
    undo.callback(transport.close)
    return write

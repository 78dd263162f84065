"""The server's side of the keeper: starts it when it is needed, and commands in it.

A `Command` is one that runs: two streams to read and a line to its ward. `gone` is set when nothing
of it is left. The keeper is started anew if it was killed; the wards of the old one go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
from itertools import count
from pathlib import Path
from typing import Any

from rota.executors import keeper

KEEPER = Path(keeper.__file__)
LIMIT_BYTES = 1 << 16


class Command:
    """A command that runs under a ward."""

    def __init__(self, name: str, line: asyncio.StreamWriter) -> None:
        self.name = name
        self.gone = asyncio.Event()
        self.end: dict[str, Any] = {}
        """What the ward said last: how it ended, or the problem with starting it."""
        self.pid = 0
        self._line = line

    def terminate(self) -> None:
        """Have everything of it asked to end, and killed after the grace."""
        self._say(keeper.TERMINATE)

    def kill(self) -> None:
        """Have everything of it killed at once."""
        self._say(keeper.KILL)

    def _say(self, word: bytes) -> None:
        if not self.gone.is_set():
            self._line.write(word)

    async def attend(self, reader: asyncio.StreamReader, lost: asyncio.Event) -> None:
        """Hear what the ward says, until nothing of the command is left."""
        with contextlib.suppress(OSError, ValueError):
            while said := await reader.readline():
                self.end = json.loads(said)
                self.pid = self.end.get("pid", self.pid)
        if "code" not in self.end and "problem" not in self.end:
            self.end = {"problem": "", "lost": True}
            await lost.wait()
        self._line.close()
        self.gone.set()


class Keepers:
    """One keeper at a time, and the commands that it keeps."""

    def __init__(self, marks: dict[str, str]) -> None:
        """Start keepers with `marks` in their environment, to be known by after a crash."""
        self.marks = marks
        self._line: socket.socket | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._numbers = count(1)
        self._lost: dict[str, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(
        self, spec: dict[str, Any]
    ) -> tuple[Command, asyncio.StreamReader, asyncio.StreamReader]:
        """Start a command; give it, with its two outputs. Raises OSError if there is no keeper."""
        name = f"ward-{next(self._numbers)}"
        message = json.dumps({**spec, "id": name}).encode()
        if self._line is None:
            await self._open()
        ours, theirs = socket.socketpair()
        out, out_end = os.pipe2(os.O_CLOEXEC)
        err, err_end = os.pipe2(os.O_CLOEXEC)
        try:
            await self._hand_over(message, [out_end, err_end, theirs.fileno()])
        except OSError:
            for fd in (out, err):
                os.close(fd)
            ours.close()
            raise
        finally:
            for fd in (out_end, err_end):
                os.close(fd)
            theirs.close()
        ours.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=ours)
        lost = self._lost[name] = asyncio.Event()
        command = Command(name, writer)
        self._attended(command.attend(reader, lost), name)
        return command, await _reader(out), await _reader(err)

    def _attended(self, what: Any, name: str) -> None:
        task = asyncio.get_running_loop().create_task(what)
        self._tasks.add(task)

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._lost.pop(name, None)

        task.add_done_callback(done)

    async def _hand_over(self, message: bytes, fds: list[int]) -> None:
        """Send a command to the keeper; if that was killed, to another."""
        for _ in range(2):
            line = self._line
            if line is None:
                line = await self._open()
            try:
                socket.send_fds(line, [message], fds)
            except (BrokenPipeError, ConnectionResetError):
                self._close_line()
            else:
                return
        msg = "the keeper of commands does not stay alive"
        raise OSError(msg)

    async def _open(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for each in (ours, theirs):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, keeper.MESSAGE_BYTES_MAX)
        fd = theirs.fileno()
        env = {"PATH": os.environ.get("PATH", os.defpath), **self.marks}
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", str(KEEPER), str(fd),
            stdin=asyncio.subprocess.DEVNULL, pass_fds=(fd,), env=env, start_new_session=True,
        )  # fmt: skip
        theirs.close()
        self._line = ours
        asyncio.get_running_loop().add_reader(ours.fileno(), self._heard, ours)
        return ours

    def _heard(self, line: socket.socket) -> None:
        """Hear which wards were lost with nothing left of them; or that the keeper is gone."""
        said = b""
        with contextlib.suppress(OSError):
            said = line.recv(LIMIT_BYTES)
        if not said:
            if line is self._line:
                self._close_line()
            return
        lost = self._lost.get(json.loads(said)["lost"])
        if lost is not None:
            lost.set()

    def _close_line(self) -> None:
        """Let go of a keeper that is gone; nobody can tell any more what its lost wards left."""
        line, self._line = self._line, None
        if line is not None:
            asyncio.get_running_loop().remove_reader(line.fileno())
            line.close()
        for lost in self._lost.values():
            lost.set()

    async def close(self) -> None:
        """Let go of the keeper: it ends, and the wards that there are kill what they keep."""
        self._close_line()
        if self._process is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), 5)


async def _reader(fd: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=LIMIT_BYTES)
    file = os.fdopen(fd, "rb", buffering=0)
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, file)
    return reader

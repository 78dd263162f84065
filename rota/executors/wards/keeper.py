"""A program of its own: forks a ward for each command that a server runs.

The server starts one keeper and sends it the descriptors of each command: its two outputs, and the
line to its ward. If a ward is killed, its children become the keeper's, which kills them and tells
the server when none is left. A ward that is done takes another command, and one is always idle, so
that no command need wait for a fork. A ward that a command has stopped goes on; one that is stopped
again and again, or does not answer the server, is killed. The keeper ends when the server is gone.
It has no threads and imports only the standard library: it must start fast, hold little, and fork
safely.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys

from rota.executors.wards import pids, tree
from rota.executors.wards.ward import KILL, NAME_BYTES_MAX, be_deaf, empty, serve, wake_on_children

SWEEP_MS = 50
IDLE_MAX = 8
STOPS_MAX = 20
"""So often may a command stop its ward."""


class Keeper:
    """Gives commands to wards, and kills what a ward that was killed has left."""

    def __init__(self, line: socket.socket, home: str | None) -> None:
        self._line = line
        self._home = home
        self._wards: dict[int, bytes] = {}
        """The pids of those that there are, with the names of what they keep."""
        self._doors: dict[int, socket.socket] = {}
        """The ways to wards, by their pids."""
        self._idle: list[int] = []
        self._stops: dict[int, int] = {}
        """How often wards were stopped, by their pids."""
        self._lost: list[bytes] = []
        self._poll = select.poll()
        self._is_served = True

    def run(self) -> None:
        """Keep commands until the server is gone, and the wards are."""
        tree.become_subreaper()
        be_deaf()
        woken = wake_on_children()
        self._poll.register(self._line, select.POLLIN)
        self._poll.register(woken, select.POLLIN)
        self._fork()
        while self._is_served or self._wards or self._lost:
            ready = {fd for fd, _ in self._poll.poll(SWEEP_MS if self._lost else None)}
            if woken in ready:
                empty(woken)
            for pid in [pid for pid, door in self._doors.items() if door.fileno() in ready]:
                self._hear_ward(pid)
            self._reap()
            if self._is_served and self._line.fileno() in ready and not self._hear():
                self._is_served = False
                self._poll.unregister(self._line)
                for pid in self._idle[:]:
                    self._dismiss(pid)

    def _hear(self) -> bool:
        """Give a command to a ward, or kill one; False if the server is gone."""
        try:
            name, fds, _, _ = socket.recv_fds(self._line, NAME_BYTES_MAX, 3)
        except ConnectionError:
            return False
        if not name:
            return False
        if name.startswith(KILL):
            self._kill(name[1:])
            return True
        try:
            self._hand_over(name, fds)
        except OSError as error:  # there are too many processes
            problem = {"problem": f"{error.strerror}: fork", "isMissing": False}
            with contextlib.suppress(OSError):
                os.write(fds[-1], json.dumps(problem).encode() + b"\n")
            self._lost.append(name)  # in case that it does not hear us
        for fd in fds:
            os.close(fd)
        with contextlib.suppress(OSError):
            self._fork()
        return True

    def _kill(self, name: bytes) -> None:
        """Kill the ward of a command; what that leaves becomes ours."""
        for pid in [pid for pid, kept in self._wards.items() if kept == name]:
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            self._line.send(KILL + name)

    def _hand_over(self, name: bytes, fds: list[int]) -> None:
        """Pass a command on to a ward that is idle; to another if that was killed."""
        while True:
            self._fork(fds)
            pid = self._idle.pop()
            try:
                socket.send_fds(self._doors[pid], [b"."], fds)
            except ConnectionError:
                self._dismiss(pid)
            else:
                self._wards[pid] = name
                return

    def _hear_ward(self, pid: int) -> None:
        """Hear that a ward is done with its command, or is about to end."""
        said = b""
        with contextlib.suppress(ConnectionError):
            said = self._doors[pid].recv(1)
        if said:
            self._wards[pid] = b""
            self._idle.append(pid)
        if not said or not self._is_served or len(self._idle) > IDLE_MAX:
            self._dismiss(pid)

    def _dismiss(self, pid: int) -> None:
        """Let a ward go: it ends when its door closes."""
        door = self._doors.pop(pid, None)
        if door is not None:
            self._poll.unregister(door)
            door.close()
        if pid in self._idle:
            self._idle.remove(pid)

    def _fork(self, held: list[int] | None = None) -> None:
        """Have a ward that is idle.

        It must not have what is `held` for another: an output ends when all who have it end.
        """
        if self._idle:
            return
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if not pid:
            for door in (ours, *self._doors.values()):
                door.close()
            for fd in held or ():
                os.close(fd)
            self._be_ward(theirs)
        theirs.close()
        self._wards[pid] = b""
        self._doors[pid] = ours
        self._poll.register(ours, select.POLLIN)
        self._idle.append(pid)

    def _be_ward(self, door: socket.socket) -> None:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            self._line.close()
            serve(door, self._home)
            code = 0
        except BaseException:  # noqa: BLE001 - a bug, for the log of the server
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                break
            if not pid:
                break
            if os.WIFSTOPPED(status):
                self._go_on(pid)
                continue
            self._stops.pop(pid, None)
            if self._home is not None:
                pids.remove(pids.of(self._home, pid))
            self._dismiss(pid)
            name = self._wards.pop(pid, b"")
            if name and status:
                self._lost.append(name)
        if self._lost:
            self._sweep()

    def _go_on(self, pid: int) -> None:
        """Let a ward go on that was stopped: it looks at limits, and hears the server."""
        if pid in self._wards:
            times = self._stops[pid] = self._stops.get(pid, 0) + 1
            os.kill(pid, signal.SIGCONT if times <= STOPS_MAX else signal.SIGKILL)

    def _sweep(self) -> None:
        """Kill what became ours because its ward was killed; tell of it once that is gone."""
        me = os.getpid()
        there = tree.below(me)
        kept = set(self._wards)
        for pid, member in there.items():  # parents come first
            if member.parent in kept:
                kept.add(pid)
        left = [pid for pid in there if pid not in kept]
        tree.send(me, left, signal.SIGSTOP)
        tree.send(me, left, signal.SIGKILL)
        if not left:
            for name in self._lost:
                with contextlib.suppress(OSError):
                    self._line.send(name)
            self._lost = []


def main() -> None:
    """Keep commands for the server at the other end of a descriptor, under its mark."""
    fd, mark = sys.argv[1:]
    gc.disable()
    gc.freeze()
    os.chdir("/")
    home = pids.make_home(mark)
    if home is not None:
        pids.join(pids.of(home, os.getpid()), pids.ALL_MAX)
    Keeper(socket.socket(fileno=int(fd)), home).run()

"""A program of its own: forks a ward for each command that a server runs.

The server starts one keeper and sends it the descriptors of each command: its two outputs, and the
line to its ward. If a ward is killed, its children become the keeper's, which kills them and tells
the server when none is left. One ward is always forked ahead, so that a command need not wait for
that. The keeper ends when the server is gone. It has no threads and imports only the standard
library: it must start fast, hold little, and fork safely.
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
from rota.executors.wards.ward import Ward, be_deaf, empty, wake_on_children

NAME_BYTES_MAX = 100
SWEEP_MS = 50


class Keeper:
    """Forks wards, and kills what a ward that was killed has left."""

    def __init__(self, line: socket.socket, home: str | None) -> None:
        self._line = line
        self._home = home
        self._wards: dict[int, bytes] = {}
        self._lost: list[bytes] = []
        self._ahead: tuple[int, socket.socket] | None = None

    def run(self) -> None:
        """Fork wards until the server is gone, and the wards are."""
        tree.become_subreaper()
        be_deaf()
        woken = wake_on_children()
        poll = select.poll()
        poll.register(self._line, select.POLLIN)
        poll.register(woken, select.POLLIN)
        self._fork()
        is_served = True
        while is_served or self._wards or self._lost:
            ready = [fd for fd, _ in poll.poll(SWEEP_MS if self._lost else None)]
            if woken in ready:
                empty(woken)
            self._reap()
            if self._line.fileno() in ready and not self._hear():
                is_served = False
                poll.unregister(self._line)
                if self._ahead is not None:  # it sees its door close
                    self._wards[self._ahead[0]] = b""
                    self._ahead = None

    def _hear(self) -> bool:
        """Give a command to a ward; False if the server is gone."""
        try:
            name, fds, _, _ = socket.recv_fds(self._line, NAME_BYTES_MAX, 3)
        except ConnectionError:
            return False
        if not name:
            return False
        try:
            self._hand_over(name, fds)
        except OSError as error:  # there are too many processes
            problem = {"problem": f"{error.strerror}: fork", "isMissing": False}
            with contextlib.suppress(OSError):
                os.write(fds[-1], json.dumps(problem).encode() + b"\n")
        for fd in fds:
            os.close(fd)
        with contextlib.suppress(OSError):
            self._fork()
        return True

    def _hand_over(self, name: bytes, fds: list[int]) -> None:
        """Pass a command on to the ward that is ahead; to a new one if that was killed."""
        while True:
            pid, door = self._ahead or self._fork(fds)
            self._ahead = None
            with door, contextlib.suppress(ConnectionError):
                socket.send_fds(door, [b"."], fds)
                self._wards[pid] = name
                return

    def _fork(self, held: list[int] | None = None) -> tuple[int, socket.socket]:
        """Fork the ward that is ahead; give its pid, and the door through which it is reached.

        It must not have what is `held` for another: an output ends when all who have it end.
        """
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if not pid:
            ours.close()
            for fd in held or ():
                os.close(fd)
            self._be_ward(theirs)
        theirs.close()
        self._ahead = pid, ours
        return self._ahead

    def _be_ward(self, door: socket.socket) -> None:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            self._line.close()
            Ward(door, self._home).run()
            code = 0
        except BaseException:  # noqa: BLE001 - a bug, for the log of the server
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            if self._home is not None:
                pids.remove(pids.of(self._home, pid))
            name = self._wards.pop(pid, None)
            if name is not None and status:
                self._lost.append(name)
        if self._lost:
            self._sweep()

    def _sweep(self) -> None:
        """Kill what became ours because its ward was killed; tell of it once that is gone."""
        me = os.getpid()
        there = tree.below(me)
        kept = {*self._wards, *(self._ahead or ())[:1]}
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
    os.chdir("/")
    home = pids.make_home(mark)
    if home is not None:
        pids.join(pids.of(home, os.getpid()), pids.ALL_MAX)
    Keeper(socket.socket(fileno=int(fd)), home).run()

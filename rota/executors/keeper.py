"""A program of its own: keeps the commands that a server runs, and whatever they start.

The server starts one keeper and talks to it over a socket; the keeper forks a *ward* for each
command. A ward is a subreaper: whoever escapes from the command by forking twice becomes its child,
so it finds and kills all of them, and ends only when nobody is left. If the server dies, the wards
see its end of their sockets close, and kill at once. If a ward is killed, its children become the
keeper's, which kills them. Nothing of rota is imported here: this must start fast and hold little.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from typing import Any

PR_SET_CHILD_SUBREAPER = 36
MESSAGE_BYTES_MAX = 1 << 20
WATCH_S_MIN, WATCH_S_MAX = 0.02, 0.25
SWEEP_S_MIN, SWEEP_S_MAX = 0.002, 1.0
TERMINATE, KILL = b"T", b"K"
MEMORY, PROCESSES = "memory_limit", "process_limit"
_PAGE = os.sysconf("SC_PAGE_SIZE")


def become_subreaper() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def parents() -> dict[int, int]:
    """Give the parent of every process, but for those that have ended and wait to be reaped."""
    found: dict[int, int] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - names are wanted, fast
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 - read as it is
                    fields = file.read().rpartition(b")")[2].split()
                if fields[0] not in (b"Z", b"X"):
                    found[int(name)] = int(fields[1])
    return found


def descendants(root: int) -> list[int]:
    """Give everybody below a process."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    found, level = [], [root]
    while level:
        level = [child for pid in level for child in children.get(pid, ())]
        found += level
    return found


def send(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def resident_bytes(pids: list[int]) -> int:
    total = 0
    for pid in pids:
        with (
            contextlib.suppress(OSError, ValueError, IndexError),
            open(f"/proc/{pid}/statm", "rb") as file,  # noqa: PTH123 - read as it is
        ):
            total += int(file.read().split()[1]) * _PAGE
    return total


def wake_on_children() -> int:
    """Give a descriptor that can be read when a child has ended."""
    ours, theirs = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(theirs, warn_on_full_buffer=False)
    return ours


def empty(fd: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while os.read(fd, 4096):
            pass


class Ward:
    """Keeps one command."""

    def __init__(self, spec: dict[str, Any], out: int, err: int, line: socket.socket) -> None:
        self._spec = spec
        self._out, self._err = out, err
        self._line = line
        self._status: int | None = None
        self._why = ""
        self._cpu_s = 0.0
        self._kill_at: float | None = None
        self._is_over = False

    def run(self) -> None:
        """Keep the command until nobody of it is left, then tell how it ended."""
        os.setsid()
        become_subreaper()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        self._woken = wake_on_children()
        problem = self._start()
        os.close(self._out)
        os.close(self._err)
        if problem is not None:
            self._tell({"problem": problem})
            return
        self._tell({"pid": self._pid})
        self._wait()
        self._clear()
        code = os.waitstatus_to_exitcode(self._status) if self._status is not None else None
        self._tell({"code": code, "why": self._why, "cpuSeconds": round(self._cpu_s, 3)})

    def _tell(self, what: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            self._line.sendall(json.dumps(what).encode() + b"\n")

    def _start(self) -> str | None:
        """Start the command; give what is wrong if it cannot be."""
        broken, tell = os.pipe2(os.O_CLOEXEC)
        self._pid = os.fork()
        if not self._pid:
            os.close(broken)
            self._become(tell)
        os.close(tell)
        with os.fdopen(broken, "rb") as file:
            said = file.read(1000).decode(errors="replace")
        if said:
            os.waitpid(self._pid, 0)
        return said or None

    def _become(self, tell: int) -> None:
        """Be the command: in a session of its own, with nothing but three descriptors."""
        spec = self._spec
        try:
            os.setsid()
            for number in range(1, signal.NSIG):
                with contextlib.suppress(OSError, ValueError):
                    signal.signal(number, signal.SIG_DFL)
            signal.set_wakeup_fd(-1)
            nothing = os.open("/dev/null", os.O_RDONLY)
            for at, fd in enumerate((nothing, self._out, self._err)):
                os.dup2(fd, at, inheritable=True)
            os.dup2(tell, 3, inheritable=False)
            os.closerange(4, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
            for name, value in spec["rlimits"].items():
                kind = getattr(resource, name)
                hard = value + 1 if name == "RLIMIT_CPU" else value
                most = resource.getrlimit(kind)[1]
                hard = hard if most == resource.RLIM_INFINITY else min(hard, most)
                resource.setrlimit(kind, (min(value, hard), hard))
            os.umask(0o077)
            os.chdir(spec["cwd"])
            os.execvpe(spec["argv"][0], spec["argv"], spec["env"])  # noqa: S606 - what it is for
        except BaseException as error:  # noqa: BLE001 - told to the one who asked
            text = f"{type(error).__name__}: {error}"
            if isinstance(error, FileNotFoundError | PermissionError):
                text = f"{os.strerror(error.errno or 0)}: {error.filename or spec['argv'][0]}"
            os.write(3, text.encode(errors="replace")[:900])
        finally:
            os._exit(127)

    def _wait(self) -> None:
        """Wait for the command to end, for word to end it, or for a limit."""
        poll = select.poll()
        poll.register(self._line, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        pause = WATCH_S_MIN
        is_watched = self._spec["memory"] or self._spec["processes"]
        while not self._is_over:
            waits = []
            if is_watched:
                waits.append(pause)
            if self._kill_at is not None:
                waits.append(max(0.0, self._kill_at - time.monotonic()))
            ready = [fd for fd, _ in poll.poll(min(waits) * 1000 if waits else None)]
            if self._woken in ready:
                empty(self._woken)
                self._reap()
            if self._line.fileno() in ready:
                self._hear()
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                return
            if is_watched and not ready:
                pause = min(pause * 1.5, WATCH_S_MAX)
                self._watch()

    def _hear(self) -> None:
        said = b""
        with contextlib.suppress(OSError):
            said = self._line.recv(16)
        if not said or KILL in said:  # the server is gone, or in a hurry
            self._is_over = True
        elif self._kill_at is None:
            self._kill_at = time.monotonic() + self._spec["graceMs"] / 1000
            below = descendants(os.getpid())
            send(below, signal.SIGTERM)
            send(below, signal.SIGCONT)

    def _watch(self) -> None:
        below = descendants(os.getpid())
        if self._spec["processes"] and len(below) > self._spec["processes"]:
            self._why = PROCESSES
        elif self._spec["memory"] and resident_bytes(below) > self._spec["memory"]:
            self._why = MEMORY
        self._is_over = self._is_over or bool(self._why)

    def _reap(self) -> bool:
        """Reap whoever has ended; False if there is nobody left to end."""
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                self._is_over = True
                return False
            if not pid:
                return True
            if pid == self._pid:
                self._status = status
                self._cpu_s = used.ru_utime + used.ru_stime
                self._is_over = self._kill_at is None or self._is_over

    def _clear(self) -> None:
        """Kill whoever is left, until nobody is: those who fork are stopped before."""
        pause = SWEEP_S_MIN
        while self._reap():
            below = descendants(os.getpid())
            send(below, signal.SIGSTOP)
            send(descendants(os.getpid()), signal.SIGKILL)
            time.sleep(pause)
            pause = min(pause * 1.5, SWEEP_S_MAX)


class Keeper:
    """Forks wards, and kills what a ward that was killed has left."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._wards: dict[int, str] = {}
        self._lost: list[str] = []

    def run(self) -> None:
        become_subreaper()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        woken = wake_on_children()
        poll = select.poll()
        poll.register(self._line, select.POLLIN)
        poll.register(woken, select.POLLIN)
        while True:
            ready = [fd for fd, _ in poll.poll(50 if self._lost else None)]
            if woken in ready:
                empty(woken)
            self._reap()
            if self._line.fileno() in ready and not self._hear():
                return

    def _hear(self) -> bool:
        """Fork a ward for what is asked; False if the server is gone."""
        try:
            data, fds, _, _ = socket.recv_fds(self._line, MESSAGE_BYTES_MAX, 3)
        except OSError:
            return False
        if not data:
            return False
        spec = json.loads(data)
        out, err, line = fds
        pid = os.fork()
        if not pid:
            code = 1
            try:
                signal.set_wakeup_fd(-1)
                self._line.close()
                Ward(spec, out, err, socket.socket(fileno=line)).run()
                code = 0
            finally:
                os._exit(code)
        self._wards[pid] = spec["id"]
        for fd in fds:
            os.close(fd)
        return True

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            name = self._wards.pop(pid, None)
            if name is not None and status:
                self._lost.append(name)
        if self._lost:
            self._sweep()

    def _sweep(self) -> None:
        """Kill what became ours because its ward was killed; tell of it once that is gone."""
        mine = os.getpid()
        tree = parents()
        orphans = [pid for pid, parent in tree.items() if parent == mine and pid not in self._wards]
        below = [pid for orphan in orphans for pid in (orphan, *descendants(orphan))]
        send(below, signal.SIGSTOP)
        send(below, signal.SIGKILL)
        if not orphans:
            lost, self._lost = self._lost, []
            for name in lost:
                with contextlib.suppress(OSError):
                    self._line.send(json.dumps({"lost": name}).encode())


def main() -> None:
    line = socket.socket(fileno=int(sys.argv[1]))
    with contextlib.suppress(OSError):
        os.setsid()
    os.chdir("/")
    try:
        Keeper(line).run()
    except OSError as error:
        if error.errno != errno.EPIPE:
            raise


if __name__ == "__main__":
    main()

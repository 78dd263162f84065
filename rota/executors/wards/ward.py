"""Keeps commands, one after the other, and whatever one starts to the end of the last of them.

A ward is a subreaper: whoever escapes from the command by forking twice becomes its child, so it
finds and kills all of them. It is told over a socket what to run, then to end it; if the server at
the other end is gone, it kills at once. It says how the command ended when nobody is left, and is
ready for another. Only the standard library is imported.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import select
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Any

from rota.executors.wards import pids, tree

if TYPE_CHECKING:
    from collections.abc import Iterator

TERMINATE, KILL = b"T", b"K"
"""What the server says; KILL and a name, to the keeper, which kills the ward and says the same."""
NAME_BYTES_MAX = 100
CHUNK_BYTES = 1 << 16
LOOK_S_MIN, LOOK_S_MAX = 0.01, 0.25
LOOK_SHARE = 0.05
"""So much of a processor may looking take."""
BYTES_PER_S, FORKS_PER_S = 4 << 30, 5000
"""How fast a command may come near its limits; the next look is before that."""
SWEEP_S_MIN, SWEEP_S_MAX = 0.002, 1.0
OOM_SCORE = b"500"
"""If memory runs out, the kernel shall choose a command, not the server."""
MEMORY, PROCESSES, CPU = "memory_limit", "process_limit", "cpu_limit"
DEAF = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE)


def be_deaf() -> None:
    """Hear no signals; a handler of ours, unlike SIG_IGN, is not passed on to a command."""
    for number in DEAF:
        signal.signal(number, lambda *_: None)


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


def serve(door: socket.socket, home: str | None) -> None:
    """Keep the commands that come through a door, with cgroups of their own in `home`."""
    gc.enable()
    os.setsid()
    tree.become_subreaper()
    woken = wake_on_children()
    while True:
        try:
            said, fds, _, _ = socket.recv_fds(door, 1, 3)
        except ConnectionError:
            return
        if not said:
            return
        ward = Ward(fds, home, woken)
        ward.run()
        if ward.cgroup is not None:
            return  # to leave that would take as long as to end
        with contextlib.suppress(ConnectionError):
            door.sendall(b".")


class Ward:
    """Keeps one command."""

    def __init__(self, fds: list[int], home: str | None, woken: int) -> None:
        """Keep a command with these outputs and this line; `woken` says when a child has ended."""
        self.cgroup: str | None = None
        self._out, self._err, line = fds
        self._line = socket.socket(fileno=line)
        self._home = home
        self._woken = woken
        self._early = b""
        """What was said on the line together with what to run."""
        self._me = os.getpid()
        self._why = ""
        self._cpu_s = 0.0
        self._kill_at: float | None = None
        self._is_over = False

    def run(self) -> None:
        """Keep the command until nobody of it is left, then tell how it ended."""
        with self._line:
            with contextlib.suppress(OSError):
                self._line.sendall(json.dumps({"ward": self._me}).encode() + b"\n")
            try:
                spec = self._read_spec()
                problem = self._start(spec) if spec is not None else None
            finally:
                os.close(self._out)
                os.close(self._err)
            if spec is None:
                return
            if problem is None:
                self._wait()
                self._clear()
            self._tell(problem or self._end(spec["rlimits"].get("RLIMIT_CPU")))

    def _read_spec(self) -> dict[str, Any] | None:
        """Read what to run, a line of JSON; None if the server is gone before that."""
        said = b""
        while b"\n" not in said:
            chunk = self._line.recv(CHUNK_BYTES)
            if not chunk:
                return None
            said += chunk
        message, _, self._early = said.partition(b"\n")
        spec: dict[str, Any] = json.loads(message)
        self._grace_s = spec["graceMs"] / 1000
        self._memory: int = spec["memory"]
        self._processes: int = spec["processes"]
        if self._home is not None and spec["isStrict"]:
            folder = pids.of(self._home, self._me)
            self.cgroup = folder if pids.join(folder, self._processes + 1) else None
        return spec

    def _tell(self, what: dict[str, Any]) -> None:
        """Tell the server, and wait until it hangs up.

        If we did, and it had something to say just then, it would not hear how it ended.
        """
        with contextlib.suppress(OSError):
            self._line.sendall(json.dumps(what).encode() + b"\n")
            while self._line.recv(CHUNK_BYTES):
                pass

    def _start(self, spec: dict[str, Any]) -> dict[str, Any] | None:
        """Start the command; give what is wrong if it cannot be."""
        argv = spec["argv"]
        try:
            with _limited(self._rlimits(spec["rlimits"])) as limit:
                process = subprocess.Popen(  # noqa: S603 - what it is for
                    argv,
                    cwd=spec["cwd"],
                    env=spec["env"],
                    stdin=subprocess.DEVNULL,
                    stdout=self._out,
                    stderr=self._err,
                    start_new_session=True,
                    umask=0o077,
                )
                limit(process.pid)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            name = getattr(error, "filename", None)
            text = f"{getattr(error, 'strerror', None) or error}: {name or argv[0]}"
            kinds = (FileNotFoundError, PermissionError, NotADirectoryError)
            return {"problem": text, "isMissing": isinstance(error, kinds) and name == argv[0]}
        self._process = process
        with (
            contextlib.suppress(OSError),
            open(f"/proc/{process.pid}/oom_score_adj", "wb", 0) as file,  # noqa: PTH123
        ):
            file.write(OOM_SCORE)
        return None

    def _rlimits(self, asked: dict[str, int]) -> dict[int, tuple[int, int]]:
        """Give soft and hard limits by their numbers; time for a signal between those of CPU."""
        if self._processes and os.geteuid() != 0:
            asked = {**asked, "RLIMIT_NPROC": pids.rlimit_nproc(self._processes)}
        found = {}
        for name, value in asked.items():
            kind = getattr(resource, name)
            soft, hard = value, value + (name == "RLIMIT_CPU")
            most = resource.getrlimit(kind)[1]
            if most != resource.RLIM_INFINITY:
                soft, hard = min(soft, most), min(hard, most)
            found[kind] = (soft, hard)
        return found

    def _wait(self) -> None:
        """Wait for the command to end, for word to end it, or for a limit."""
        poll = select.poll()
        poll.register(self._line, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        look_at = time.monotonic() + LOOK_S_MIN if self._memory or self._processes else None
        if self._early:
            self._hear()
        while not self._is_over:
            moments = [at for at in (look_at, self._kill_at) if at is not None]
            wait_s = max(0.0, min(moments) - time.monotonic()) if moments else None
            ready = [fd for fd, _ in poll.poll(None if wait_s is None else wait_s * 1000 + 1)]
            if self._woken in ready:
                empty(self._woken)
                self._reap()
            if self._line.fileno() in ready:
                self._hear()
            now = time.monotonic()
            if self._kill_at is not None and now >= self._kill_at:
                return
            if look_at is not None and now >= look_at and not self._is_over:
                pause = self._look()
                took = time.monotonic() - now
                look_at = now + max(pause, took / LOOK_SHARE)

    def _hear(self) -> None:
        said, self._early = self._early, b""
        if not said:
            with contextlib.suppress(OSError):
                said = self._line.recv(CHUNK_BYTES)
        if not said or KILL in said:  # the server is gone, or in a hurry
            self._is_over = True
        elif self._kill_at is None:
            self._kill_at = time.monotonic() + self._grace_s
            there = tree.below(self._me)
            tree.send(self._me, there, signal.SIGTERM)
            tree.send(self._me, there, signal.SIGCONT)

    def _look(self) -> float:
        """Look whether a limit is passed; give how long none can be from now."""
        pauses = [LOOK_S_MAX]
        there = tree.below(self._me) if self._memory or self.cgroup is None else {}
        if self._memory:
            left = self._memory - tree.resident_bytes(there, self._memory)
            pauses.append(left / BYTES_PER_S)
            if left < 0:
                self._why = MEMORY
        if self.cgroup is None and self._processes:
            threads = sum(member.threads for member in there.values())
            pauses.append((self._processes - threads) / FORKS_PER_S)
            if threads > self._processes:
                self._why = PROCESSES
        elif self.cgroup is not None and pids.was_hit(self.cgroup):
            self._why = PROCESSES
        self._is_over = bool(self._why)
        return max(LOOK_S_MIN, min(pauses))

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
            if pid == self._process.pid:
                self._process.returncode = os.waitstatus_to_exitcode(status)
                self._cpu_s = used.ru_utime + used.ru_stime
                self._is_over = self._kill_at is None or self._is_over

    def _clear(self) -> None:
        """Kill whoever is left, until nobody is: those who fork are stopped before."""
        pause = SWEEP_S_MIN
        while self._reap():
            tree.send(self._me, tree.below(self._me), signal.SIGSTOP)
            tree.send(self._me, tree.below(self._me), signal.SIGKILL)
            select.select([self._woken], [], [], pause)
            empty(self._woken)
            pause = min(pause * 1.5, SWEEP_S_MAX)

    def _end(self, cpu_s_max: int | None) -> dict[str, Any]:
        code, why = self._process.returncode, self._why
        if not why and self.cgroup is not None and pids.was_hit(self.cgroup):
            why = PROCESSES
        if not why and code == -signal.SIGKILL and cpu_s_max and self._cpu_s >= cpu_s_max:
            why = CPU  # it did not care for SIGXCPU
        return {"code": code, "why": why, "cpuSeconds": round(self._cpu_s, 3)}


@contextlib.contextmanager
def _limited(limits: dict[int, tuple[int, int]]) -> Iterator[Any]:
    """Have soft limits while a command is started, so that it is born with them.

    Gives a function that makes them the command's own, hard ones and all.
    """
    before = {kind: resource.getrlimit(kind) for kind in limits}

    def limit(pid: int) -> None:
        for kind, both in limits.items():
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, kind, both)

    try:
        for kind, (soft, _) in limits.items():
            resource.setrlimit(kind, (soft, before[kind][1]))
        yield limit
    finally:
        for kind, both in before.items():
            resource.setrlimit(kind, both)

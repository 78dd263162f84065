"""Executes an attempt as a command of the configuration, kept by a ward (`keeper`).

The configuration names the program and its arguments; placeholders in them are filled in from the
task's params, each inside its one argument, and no shell reads them. What it prints becomes the
task's log as it comes, in groups; a line `::progress VALUE` is progress; the result is the last
line of its standard output that is a JSON object or array, or a file that it wrote. Cancelling the
attempt is TERM for everything that it started, then KILL, and takes until nothing is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from rota.config import ERROR_CHARS_MAX, RESULT_BYTES_MAX
from rota.domain.commands import Outcome
from rota.domain.notes import LINE_CHARS_MAX, LINES_MAX, REPORT_BYTES_MAX
from rota.domain.values import is_too_deep
from rota.errors import ConfigError
from rota.executors.http import too_deep, too_large
from rota.executors.port import Note

if TYPE_CHECKING:
    from rota.config import ExecutorSettings
    from rota.executors.port import Attempt, Tell
    from rota.executors.wards import Command, Keepers

ARGV_BYTES_MAX = 128 * 1024
TAIL_CHARS = 500
GROUP_S = 0.2
GROUP_LINES = 100
CHUNK_BYTES = 1 << 16
DRAIN_S = 1.0
BWRAP = "bwrap"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PROGRESS = b"::progress "
SIGNALS = {24: "cpu_limit", 25: "file_size_limit"}
_NAME = re.compile(r"\{\{\s*([^{}\s]+)\s*\}\}")
_MB = 1 << 20


class CommandExecutor:
    """Runs one command of the configuration."""

    def __init__(self, settings: ExecutorSettings, keepers: Keepers, folder: Path) -> None:
        """Run it under `keepers`, in `folder` where it has no folder of its own."""
        if settings.sandbox == "bubblewrap" and shutil.which(BWRAP) is None:
            raise ConfigError(
                "an executor asks for sandbox = 'bubblewrap', and there is no program 'bwrap'",
                hint="install bubblewrap, or say sandbox = 'none'",
            )
        self._settings = settings
        self._keepers = keepers
        self._folder = folder

    async def run(self, attempt: Attempt, tell: Tell) -> Outcome:
        try:
            argv = filled_in(self._settings.argv, attempt.params)
        except ValueError as error:
            return Outcome(ok=False, code="bad_params", error=str(error)[:ERROR_CHARS_MAX])
        with contextlib.ExitStack() as undo:
            try:
                cwd = self._its_folder(undo, attempt)
                started = await self._keepers.start(self._spec(argv, cwd, attempt))
            except OSError as error:
                text = f"the command cannot be started: {error}"
                return Outcome(ok=False, code="executor_fault", error=text[:ERROR_CHARS_MAX])
            command, out, err = started
            said = Said(command, tell, self._settings.output_bytes_max)
            reading = asyncio.gather(said.read(out, "info"), said.read(err, "warning"))
            try:
                why = await self._ended(command)
            except asyncio.CancelledError:
                command.terminate()
                await until_gone(command)
                raise
            finally:
                await drained(reading)
                said.flush()
            return await self._outcome(command, said, why, cwd)

    def _its_folder(self, undo: contextlib.ExitStack, attempt: Attempt) -> str:
        """Give the folder that it works in: the configured one, or a new one that goes after it."""
        if self._settings.cwd is not None:
            return self._settings.cwd
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = tempfile.mkdtemp(prefix=f"{attempt.token}-", dir=self._folder)
        undo.callback(shutil.rmtree, made, ignore_errors=True)
        return made

    def _spec(self, argv: list[str], cwd: str, attempt: Attempt) -> dict[str, Any]:
        s = self._settings
        rlimits = {"RLIMIT_CORE": 0}
        if s.cpu_seconds_max is not None:
            rlimits["RLIMIT_CPU"] = s.cpu_seconds_max
        if s.file_mb_max is not None:
            rlimits["RLIMIT_FSIZE"] = s.file_mb_max * _MB
        env = {
            "PATH": PATH,
            "LANG": "C.UTF-8",
            "HOME": cwd,
            "TMPDIR": cwd,
            **s.env,
            "ROTA_TASK_ID": attempt.task,
            "ROTA_AGENT_ID": attempt.agent,
            "ROTA_ATTEMPT": str(attempt.number),
            "ROTA_TOKEN": str(attempt.token),
            **self._keepers.marks,
        }
        return {
            "argv": [*sandbox(cwd), *argv] if s.sandbox == "bubblewrap" else argv,
            "cwd": cwd,
            "env": env,
            "rlimits": rlimits,
            "memory": (s.memory_mb_max or 0) * _MB,
            "processes": s.processes_max or 0,
            "graceMs": s.grace_ms,
        }

    async def _ended(self, command: Command) -> str:
        """Wait until nothing of the command is left; give the limit that it was ended for."""
        limit_ms = self._settings.time_limit_ms
        try:
            async with asyncio.timeout(limit_ms / 1000 if limit_ms is not None else None):
                await command.gone.wait()
        except TimeoutError:
            command.terminate()
            await until_gone(command)
            return "time_limit"
        return ""

    async def _outcome(self, command: Command, said: Said, why: str, cwd: str) -> Outcome:
        end = command.end
        if end.get("lost"):
            text = "whoever kept the command was killed; what it left was killed, too"
            return Outcome(ok=False, code="command_lost", error=text)
        if "problem" in end:
            text = f"the command cannot be started: {end['problem']}"
            return Outcome(ok=False, code="command_not_found", error=text[:ERROR_CHARS_MAX])
        why = why or said.why or end.get("why", "")
        code = end["code"]
        if why or code != 0:
            return failed(code, why, said.tail, end.get("cpuSeconds"))
        name = self._settings.result_file
        if name is None:
            return Outcome(ok=True, result=said.result)
        return await asyncio.to_thread(from_file, Path(cwd) / name)

    async def close(self) -> None:
        """Let go of the keeper."""
        await self._keepers.close()


class Said:
    """What a command prints: bounded, told in groups, with progress and a result among it."""

    def __init__(self, command: Command, tell: Tell, bytes_max: int) -> None:
        self.result: Any = None
        self.why = ""
        self.tail = ""
        self._command = command
        self._tell = tell
        self._bytes_left = bytes_max
        self._lines_left = LINES_MAX
        self._lines: dict[str, list[str]] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def read(self, stream: asyncio.StreamReader, level: str) -> None:
        """Read one of the outputs to its end; what is too much is read and dropped."""
        rest = b""
        while chunk := await stream.read(CHUNK_BYTES):
            self._bytes_left -= len(chunk)
            if self._bytes_left < 0:
                if not self.why:
                    self.why = "output_limit"
                    self._command.terminate()
                continue
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._take(line, level)
            if len(rest) > RESULT_BYTES_MAX:
                self._take(rest, level)
                rest = b""
        if rest:
            self._take(rest, level)

    def _take(self, raw: bytes, level: str) -> None:
        if level == "info":
            if raw.startswith(PROGRESS) and len(raw) <= REPORT_BYTES_MAX:
                self._tell(Note(progress=_value(raw[len(PROGRESS) :])))
                return
            if raw[:1] in (b"{", b"["):
                with contextlib.suppress(ValueError):
                    self.result = orjson.loads(raw)
        line = raw[: 4 * LINE_CHARS_MAX].decode(errors="replace").rstrip("\r")[:LINE_CHARS_MAX]
        self.tail = (self.tail + line + "\n")[-TAIL_CHARS:]
        if self._lines_left <= 0:
            return
        self._lines_left -= 1
        lines = self._lines.setdefault(level, [])
        lines.append(line)
        if len(lines) >= GROUP_LINES:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GROUP_S, self.flush)

    def flush(self) -> None:
        """Tell what has gathered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        gathered, self._lines = self._lines, {}
        for level, lines in gathered.items():
            self._tell(Note(level=level, lines=tuple(lines)))


async def until_gone(command: Command) -> None:
    """Wait until nothing of a command is left, whoever is in a hurry: it still has its slot."""
    while not command.gone.is_set():
        with contextlib.suppress(asyncio.CancelledError):
            await command.gone.wait()


async def drained(reading: asyncio.Future[Any]) -> None:
    """Let the outputs be read to their ends: nobody is left to write."""
    with contextlib.suppress(TimeoutError, asyncio.CancelledError):
        await asyncio.wait_for(reading, DRAIN_S)


def filled_in(argv: tuple[str, ...], params: dict[str, Any]) -> list[str]:
    """Put params into the arguments, each inside its own. Raises ValueError."""

    def put(found: re.Match[str]) -> str:
        value: Any = params
        for part in found[1].split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value is None:
            msg = f"params.{found[1]} is missing: the command needs it"
            raise ValueError(msg)
        return value if isinstance(value, str) else orjson.dumps(value).decode()

    filled = [argv[0], *(_NAME.sub(put, each) for each in argv[1:])]
    if any("\0" in each for each in filled):
        msg = "an argument of a command cannot have a NUL in it"
        raise ValueError(msg)
    if sum(len(os.fsencode(each)) + 1 for each in filled) > ARGV_BYTES_MAX:
        msg = f"the arguments are longer than {ARGV_BYTES_MAX} bytes in all"
        raise ValueError(msg)
    return filled


def sandbox(cwd: str) -> list[str]:
    """Give what goes before a command in a sandbox: no network, nothing writable but its folder."""
    return [
        BWRAP, "--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/", "/",
        "--dev", "/dev", "--proc", "/proc", "--bind", cwd, cwd,
        "--chdir", cwd, "--",
    ]  # fmt: skip


def failed(code: int | None, why: str, tail: str, cpu_s: float | None) -> Outcome:
    """Say how a command ended that did not end well."""
    details: dict[str, Any] = {"output": tail} if tail else {}
    if cpu_s is not None:
        details["cpuSeconds"] = cpu_s
    number = -code if code is not None and code < 0 else None
    if code is not None:
        details["signal" if number else "exitCode"] = number or code
    why = why or SIGNALS.get(number or 0, "")
    texts = {
        "time_limit": "the command took longer than its timeLimitMs",
        "memory_limit": "the command used more than its memoryMbMax",
        "process_limit": "the command had more processes than its processesMax",
        "output_limit": "the command printed more than its outputBytesMax",
        "cpu_limit": "the command used more than its cpuSecondsMax",
        "file_size_limit": "the command wrote a file larger than its fileMbMax",
    }
    if why:
        return Outcome(ok=False, code=why, error=texts[why], details=details)
    if number:
        text = f"the command was killed by signal {number}"
        return Outcome(ok=False, code="command_killed", error=text, details=details)
    last = tail.strip().rpartition("\n")[2]
    text = f"the command ended with exit code {code}" + (f": {last}" if last else "")
    return Outcome(ok=False, code="command_failed", error=text[:ERROR_CHARS_MAX], details=details)


def from_file(path: Path) -> Outcome:
    """Read the result from a file that the command wrote; it must be a plain one."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return Outcome(ok=False, code="bad_result", error="the result is no plain file")
            raw = file.read(RESULT_BYTES_MAX + 1)
        value = orjson.loads(raw) if len(raw) <= RESULT_BYTES_MAX else None
    except OSError as error:
        text = f"the result cannot be read: {error.strerror}"
        return Outcome(ok=False, code="bad_result", error=text)
    except ValueError as error:
        text = f"the result is not JSON: {error}"
        return Outcome(ok=False, code="bad_result", error=text[:ERROR_CHARS_MAX])
    if len(raw) > RESULT_BYTES_MAX:
        return too_large("the command's result")
    return (
        too_deep("the command's result")
        if is_too_deep(raw, value)
        else Outcome(ok=True, result=value)
    )


def _value(raw: bytes) -> Any:
    try:
        return orjson.loads(raw)
    except ValueError:
        return raw.decode(errors="replace").strip()

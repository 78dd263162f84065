"""Executes an attempt as a command of the configuration, kept by a ward (`wards`).

The configuration names the program and its arguments; placeholders in them are filled in from the
task's params, each inside its one argument, and no shell reads them. What it prints is the task's
log (`said`), its last line of JSON or a file that it wrote the result. Cancelling the attempt is
TERM for everything that it started, then KILL, and takes until nothing is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from rota.config import ERROR_CHARS_MAX, RESULT_BYTES_MAX
from rota.domain.commands import Outcome
from rota.domain.values import is_too_deep, says_too_deep
from rota.errors import ConfigError
from rota.executors.http import too_deep, too_large
from rota.executors.said import Said
from rota.executors.sandbox import PATH, SHM_BYTES, sandbox, sandbox_problem
from rota.executors.wards.leftovers import FOLDER, REMOVE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rota.config import ExecutorSettings
    from rota.executors.port import Attempt, Tell
    from rota.executors.wards.keepers import Command, Keepers

ARGV_BYTES_MAX = 128 * 1024
SIGNALS = {24: "cpu_limit", 25: "file_size_limit"}
LIMITS = {
    "time_limit": "the command took longer than its timeLimitMs",
    "memory_limit": "the command used more than its memoryMbMax",
    "process_limit": "the command wanted more processes and threads than its processesMax",
    "output_limit": "the command printed more than its outputBytesMax",
    "cpu_limit": "the command used more than its cpuSecondsMax",
    "file_size_limit": "the command wrote a file larger than its fileMbMax",
}
LOST = {
    True: "whoever kept the command was killed; what it left was killed, too",
    False: "whoever kept the command was killed; of what it left, only those who still had"
    " ROTA_ATTEMPT_TOKEN in their environment were found and killed",
}
RESULT = "the command's result"
_NAME = re.compile(r"\{\{\s*([^{}\s]+)\s*\}\}")
_MB = 1 << 20


class CommandExecutor:
    """Runs one command of the configuration."""

    leaves_nothing = True

    def __init__(
        self,
        settings: ExecutorSettings,
        keepers: Keepers,
        data_dir: Path,
        hidden: Iterable[Path] = (),
    ) -> None:
        """Run it under `keepers`, in a folder of `data_dir` where it has none of its own.

        A sandbox sees nothing of `data_dir`, nor of the folders and files that are `hidden`.
        """
        check_machine(settings.sandbox)
        self._settings = settings
        asked = {24: settings.cpu_seconds_max, 25: settings.file_mb_max}
        self._of_child = {128 + n: SIGNALS[n] for n, most in asked.items() if most is not None}
        """What an exit code says of one that it started, as a shell passes it on."""
        self._keepers = keepers
        self._hidden = {each.absolute() for each in (data_dir, *hidden)}
        self._folder = data_dir.resolve() / FOLDER

    async def run(self, attempt: Attempt, tell: Tell) -> Outcome:
        try:
            argv = filled_in(self._settings.argv, attempt.params)
        except ValueError as error:
            return Outcome(ok=False, code="bad_params", error=str(error)[:ERROR_CHARS_MAX])
        await self._keepers.until_free(attempt.task)
        said = Said(tell, self._settings.output_bytes_max)
        async with contextlib.AsyncExitStack() as undo:
            try:
                made = self._its_folder(undo, attempt)
                command = await self._keepers.start(self._spec(argv, made, attempt), said.outputs)
            except OSError as error:
                return not_started(str(error))
            except asyncio.CancelledError:
                await said.finish()
                raise
            said.on_too_much = command.kill
            with self._keepers.holding(attempt.task, command):
                try:
                    is_late = await self._is_late(command)
                except asyncio.CancelledError:
                    command.terminate()
                    await command.until_gone()
                    raise
                finally:
                    await said.finish()
            outcome = ended(command, said, self._of_child, is_late=is_late)
            if outcome is not None:
                return outcome
            if self._settings.result_file is not None:
                return await asyncio.to_thread(from_file, Path(made, self._settings.result_file))
            return from_output(said)

    async def cut_off(self, attempt: Attempt) -> bool:
        """Say that nothing is left: `run` has waited for that."""
        del attempt
        return True

    def _its_folder(self, undo: contextlib.AsyncExitStack, attempt: Attempt) -> str:
        """Give the folder that it works in: the configured one, or a new one that goes after it.

        It has a new one for its result in any case: attempts share the one that is configured.
        """
        s = self._settings
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if s.cwd is not None and s.result_file is None:
            return s.cwd
        made = tempfile.mkdtemp(prefix=f"{attempt.token}-", dir=self._folder)
        undo.push_async_callback(removed, made)
        return made

    def _spec(self, argv: list[str], made: str, attempt: Attempt) -> dict[str, Any]:
        s = self._settings
        cwd = s.cwd or made
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
            "ROTA_ATTEMPT_TOKEN": str(attempt.token),
            **({"ROTA_RESULT_FILE": f"{made}/{s.result_file}"} if s.result_file else {}),
            **self._keepers.marks,
        }
        if s.sandbox == "bubblewrap":
            hidden = filter(Path.exists, self._hidden)
            shm_bytes = (s.memory_mb_max or 0) * _MB or SHM_BYTES
            argv = [*sandbox(cwd, hidden, {made} - {cwd}, shm_bytes), *argv]
        return {
            "argv": argv,
            "cwd": cwd,
            "env": env,
            "rlimits": rlimits,
            "memory": (s.memory_mb_max or 0) * _MB,
            "processes": s.processes_max or 0,
            "isStrict": s.processes_max is not None and "processes_max" in s.model_fields_set,
            "graceMs": s.grace_ms,
        }

    async def _is_late(self, command: Command) -> bool:
        """Wait until nothing of the command is left; tell whether it took too long."""
        limit_ms = self._settings.time_limit_ms
        try:
            async with asyncio.timeout(limit_ms / 1000 if limit_ms is not None else None):
                await command.gone.wait()
        except TimeoutError:
            command.terminate()
            await command.gone.wait()
            return True
        return False

    async def close(self) -> None:
        """Let go of the keeper."""
        await self._keepers.close()


async def removed(folder: str) -> None:
    """Remove the folder that a command worked in, whatever it has made of it."""
    with contextlib.suppress(OSError):
        os.rmdir(folder)  # noqa: PTH106 - most are empty
        return
    with contextlib.suppress(OSError):
        process = await asyncio.create_subprocess_exec(
            *REMOVE, folder, stderr=asyncio.subprocess.DEVNULL
        )
        await process.wait()


def check_machine(sandbox_: str) -> None:
    """Refuse commands where they cannot be kept. Raises ConfigError."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError) as error:
        raise ConfigError(
            "an executor is of kind 'command', which needs Linux 5.3 or newer",
            hint="run the command in a worker of your own",
        ) from error
    if sandbox_ != "bubblewrap":
        return
    problem = sandbox_problem()
    if problem:
        raise ConfigError(
            f"an executor asks for sandbox = 'bubblewrap', and that does not work here: {problem}",
            hint="install bubblewrap and allow user namespaces, or say sandbox = 'none'",
        )


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


def not_started(why: str) -> Outcome:
    text = f"the command cannot be started: {why}"
    return Outcome(ok=False, code="command_not_started", error=text[:ERROR_CHARS_MAX])


def ended(
    command: Command, said: Said, of_child: dict[int, str], *, is_late: bool
) -> Outcome | None:
    """Say how a command ended that did not end well; None if it did."""
    end = command.end
    early = "time_limit" if is_late else "output_limit" if said.is_too_much else ""
    if not end:
        left = LOST[command.is_sure]
        text = f"{LIMITS[early]}, and {left}" if early else left
        return Outcome(ok=False, code=early or "command_lost", error=text)
    if "problem" in end:
        outcome = not_started(end["problem"])
        return outcome._replace(code="command_not_found") if end["isMissing"] else outcome
    code: int = end["code"]
    number = max(0, -code)
    why = early or end["why"] or SIGNALS.get(number) or of_child.get(code, "")
    if not why and code == 0:
        return None
    tail = said.tail
    details: dict[str, Any] = {"signal": number} if number else {"exitCode": code}
    details["cpuSeconds"] = end["cpuSeconds"]
    if tail:
        details["output"] = tail
    if why:
        text, kind = LIMITS[why], why
    elif number:
        text, kind = f"the command was killed by signal {number}", "command_killed"
    else:
        last = tail.rpartition("\n")[2]
        text = f"the command ended with exit code {code}" + (f": {last}" if last else "")
        kind = "command_failed"
    return Outcome(ok=False, code=kind, error=text[:ERROR_CHARS_MAX], details=details)


def from_output(said: Said) -> Outcome:
    """Take the result from what was printed."""
    if said.is_result_cut:
        return too_large(RESULT)
    return as_result(said.result) if said.result is not None else Outcome(ok=True)


def from_file(path: Path) -> Outcome:
    """Read the result from a file that the command wrote; it must be a plain one."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return Outcome(ok=False, code="bad_result", error="the result is no plain file")
            return as_result(file.read(RESULT_BYTES_MAX + 1))
    except OSError as error:
        text = f"the result cannot be read: {error.strerror}"
        return Outcome(ok=False, code="bad_result", error=text)


def as_result(raw: bytes) -> Outcome:
    if len(raw) > RESULT_BYTES_MAX:
        return too_large(RESULT)
    try:
        value = orjson.loads(raw)
    except ValueError as error:
        if says_too_deep(error):
            return too_deep(RESULT)
        text = f"the result is not JSON: {error}"
        return Outcome(ok=False, code="bad_result", error=text[:ERROR_CHARS_MAX])
    return too_deep(RESULT) if is_too_deep(raw, value) else Outcome(ok=True, result=value)

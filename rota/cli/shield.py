"""Reading a data folder in a child process: a damaged page may kill whoever reads it.

LMDB maps its file, so a page that is not what it should be can end the process that touches it by
a signal. `shielded` runs one of the jobs in offline.py in a fresh interpreter (never a fork), hears
of its progress line by line, and makes of a death by such a signal what it is: a damaged log, with
the last record that could still be read.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rota
from rota.cli.verification import REINDEX, RESTORE
from rota.errors import LogCorrupt, LogLocked, LogTooNew, LogUnusable, RotaError

if TYPE_CHECKING:
    from collections.abc import Callable

    Report = Callable[[int, int], None]

DAMAGE = (signal.SIGBUS, signal.SIGSEGV, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)
RECORDS = "records"
LOCATE = "locate"
REINDEXING = "reindex"
LOCATE_EVERY = 1000
_ERRORS = {kind.__name__: kind for kind in (LogLocked, LogTooNew, LogUnusable, RotaError)}
_CHILD = "from rota.cli.shield import main; main()"


def shielded(job: str, folder: Path, reports: dict[str, Report], **given: Any) -> Any:
    """Do a job of offline.py in a child; give what it gives. Raises a RotaError."""
    good = 0

    def record(done: int, total: int) -> None:
        nonlocal good
        good = done
        if RECORDS in reports:
            reports[RECORDS](done, total)

    def locate() -> bool:
        """Read on as far as that goes, roughly and then exactly; give whether that is the end."""
        for every in (LOCATE_EVERY, 1):
            with contextlib.suppress(RotaError):
                shielded(LOCATE, folder, {RECORDS: record}, after=good, every=every)
                return True
        record(good, good)
        return False

    code, answer = _run(job, folder, {**reports, RECORDS: record}, given)
    if answer is not None:
        try:
            return _open_up(answer)
        except LogCorrupt as error:
            if error.seq or job in (LOCATE, REINDEXING):
                raise
            what = error.message
    elif -code in DAMAGE:
        what = f"the log in {folder} is damaged: whatever reads it is killed by {_name(code)}"
    else:
        msg = f"the process that read the log ended with {_name(code)}"
        raise RotaError(msg, hint="the log itself may be whole; try again")
    is_whole = job not in (LOCATE, REINDEXING) and locate()
    raise _located(what, good, is_whole=is_whole)


def _located(what: str, good: int, *, is_whole: bool) -> LogCorrupt:
    """Add how far the records can be read to what is wrong with their file."""
    if is_whole:
        return LogCorrupt(good, f"{what}; all {good} records are good", hint=REINDEX)
    how_far = f"record {good} is the last good one" if good else "no record could be read"
    return LogCorrupt(good + 1, f"{what}; {how_far}", hint=RESTORE)


def _name(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"code {code}"


def _run(
    job: str, folder: Path, reports: dict[str, Report], given: dict[str, Any]
) -> tuple[int, Any]:
    """Run the child to its end; give its exit code and its answer, if it came to one."""
    request = json.dumps({"job": job, "folder": str(folder), "given": given})
    path = [str(Path(rota.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}
    answer = None
    with (
        tempfile.TemporaryFile() as noise,
        subprocess.Popen(  # noqa: S603 - this very interpreter, with words of our own
            [sys.executable, "-c", _CHILD, request],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=noise,
            env=environment,
        ) as child,
    ):
        assert child.stdout is not None
        try:
            for line in child.stdout:
                with contextlib.suppress(ValueError):  # the last one may be torn
                    what, *values = json.loads(line)
                    if what == "answer":
                        answer = values[0]
                    elif what in reports:
                        reports[what](*values)
        except BaseException:
            child.kill()
            raise
    return child.returncode, answer


def _open_up(answer: dict[str, Any]) -> Any:
    """Give what the job gave, or raise what it raised."""
    if "error" not in answer:
        return answer["value"]
    error = answer["error"]
    if error["kind"] == LogCorrupt.__name__:
        raise LogCorrupt(error["seq"], error["message"], hint=error["hint"])
    raise _ERRORS.get(error["kind"], RotaError)(error["message"], hint=error["hint"])


# -- in the child --------------------------------------------------------------------------------


def main() -> None:
    """Do what the command line asks for, and say so line by line."""
    from rota.cli.offline import JOBS  # noqa: PLC0415 - it imports what the parent need not

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    request = json.loads(sys.argv[1])

    def report(what: str) -> Report:
        return lambda done, total: say([what, done, total])

    try:
        value = JOBS[request["job"]](Path(request["folder"]), report, **request["given"])
    except RotaError as error:
        kind = LogCorrupt if isinstance(error, LogCorrupt) else type(error)
        told = {"kind": kind.__name__, "message": error.message, "hint": error.hint}
        say(["answer", {"error": {**told, "seq": error.details.get("seq", 0)}}])
    except Exception as error:  # noqa: BLE001 - what the storage chokes on is a broken log as well
        message = f"the log cannot be read: {type(error).__name__}: {error}"
        told = {"kind": LogCorrupt.__name__, "message": message, "hint": RESTORE}
        say(["answer", {"error": {**told, "seq": 0}}])
    else:
        say(["answer", {"value": value}])


def say(line: list[Any]) -> None:
    print(json.dumps(line), flush=True)  # noqa: T201 - a pipe, not a terminal

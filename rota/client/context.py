"""What a worker's function is given besides its params, and what it may raise.

A `Context` is one attempt: its task, its token, and ways to tell of it while it runs. Its methods
may be called from the function's own thread or on the loop; what is told goes out in the
background, in order, and before the outcome. What waits to be told is bounded: the oldest lines go
first.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from rota.client.models import Task, read_task

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.client.fields import Level
    from rota.client.steps import Json

LINES_MAX = 1000
LINE_CHARS_MAX = 2000


class Retry(Exception):  # noqa: N818 - it asks for something
    """This attempt failed and another is wanted, `after` so many seconds if that is said.

    Whether there is one is for the task's policy to say: an attempt is spent. A task without one
    gets the usual policy for it, with four attempts.
    """

    def __init__(
        self, message: str = "", *, after: float | None = None, code: str | None = None
    ) -> None:
        super().__init__(message or "the worker asks for another attempt")
        self.after = after
        self.code = code


class Fail(Exception):  # noqa: N818 - it says what becomes of the task
    """This task cannot be done: no further attempt, whatever its policy says."""

    def __init__(
        self, message: str, *, code: str | None = None, details: Json | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.details = details


class Context:
    """One attempt at one task."""

    def __init__(
        self,
        lease: Json,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        on_note: Callable[[], None] | None = None,
    ) -> None:
        self.task: Task = read_task(lease["task"])
        """The task, as `get` gives it."""
        self.task_id: str = lease["taskId"]
        self.lease_id: str = lease["leaseId"]
        self.token: int = lease["token"]
        """Grows with every attempt of every task: pass it on to whatever you write to."""
        self.attempt: int = lease["attempt"]
        self.params: Json = lease.get("params") or {}
        self.worker_id: str = lease.get("workerId", "")
        self.agent: str = self.task.agent
        self.action: str = self.task.action
        self._loop = loop
        self._on_note = on_note
        self._stop = threading.Event()
        self._stopped = asyncio.Event()
        self._lock = threading.Lock()
        self._lines: deque[tuple[str, str]] = deque(maxlen=LINES_MAX)
        self._progress: Any = None

    @property
    def cancelled(self) -> bool:
        """Whether the work is not wanted any more; a plain function should look at it."""
        return self._stop.is_set()

    async def wait_cancelled(self) -> None:
        """Wait until the work is not wanted any more."""
        await self._stopped.wait()

    def sleep(self, seconds: float) -> bool:
        """Block a plain function for so long, or until it is cancelled; say whether it is."""
        return self._stop.wait(seconds)

    def log(self, *lines: object, level: Level = "info") -> None:
        """Add lines to the task's log."""
        with self._lock:
            for line in lines:
                for text in str(line).splitlines() or [""]:
                    self._lines.append((level, text[:LINE_CHARS_MAX]))
        self._note()

    def progress(self, progress: Json | float | str) -> None:
        """Say how far the work has come; of several in a row the last one counts."""
        with self._lock:
            self._progress = progress
        self._note()

    # -- for whoever runs it -----------------------------------------------------------------

    def cancel(self) -> None:
        """Say that the work is not wanted any more; on the loop."""
        self._stop.set()
        self._stopped.set()

    def has_notes(self) -> bool:
        return bool(self._lines) or self._progress is not None

    def take_notes(self) -> Json:
        """Give what is to be told next, as a heartbeat carries it: lines of one level."""
        told: Json = {}
        with self._lock:
            if self._progress is not None:
                told["progress"], self._progress = self._progress, None
            if self._lines:
                level = self._lines[0][0]
                lines: list[str] = []
                while self._lines and self._lines[0][0] == level:
                    lines.append(self._lines.popleft()[1])
                told |= {"level": level, "lines": lines}
        return told

    def put_back(self, told: Json) -> None:
        """Keep what could not be told; newer progress stands."""
        with self._lock:
            if self._progress is None:
                self._progress = told.get("progress")
            lines = [(told["level"], line) for line in told.get("lines", ())]
            room = LINES_MAX - len(self._lines)
            self._lines.extendleft(reversed(lines[-room:] if room else []))

    def _note(self) -> None:
        if self._on_note is None:
            return
        if self._loop is None or self._stop.is_set():
            return
        self._loop.call_soon_threadsafe(self._on_note)

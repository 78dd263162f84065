"""Every error rota raises on purpose.

    RotaError                   code, a sentence, what to do next
    ├── RequestError            the caller's fault: a 4xx
    │   ├── InvalidRequest          400 bad_request (or a more exact code)
    │   ├── NotFound                404 not_found
    │   ├── Conflict                409 conflict
    │   ├── Unprocessable           422 unprocessable (or a more exact code)
    │   ├── QueueFull               429 queue_full
    │   └── CallbackRefused         400 callback_refused
    ├── StorageUnavailable      503 storage_unavailable: the log does not accept writes
    ├── ShuttingDown            503 shutting_down
    ├── InternalFault           500 internal: a bug, recorded and survived
    ├── NotWritable             a fact that cannot be written as JSON; nothing was recorded
    ├── IllegalMove             a fact that the state of its task does not allow; carries its seq
    ├── ServerUnreachable       a client got no answer
    ├── WaitTimeout             a client's wait is over before the end that it waits for
    ├── NoResult                a task has ended without a result; carries the task
    │   ├── TaskFailed              with the code and the message of its error
    │   ├── TaskCancelled
    │   └── TaskRejected
    ├── ConfigError             a configuration that cannot be used
    └── LogError                the data folder
        ├── LogLocked               another server has it
        ├── LogCorrupt              a record is broken; carries its seq
        ├── LogTooNew               written by a newer rota
        ├── LogUnusable             cannot be opened or written
        └── Unfolded                rota cannot fold what it was about to record: a bug

The `code` of a class is part of the interface: clients branch on it, so it never changes.
"""

from __future__ import annotations

from typing import Any


class RotaError(Exception):
    """The root of the tree."""

    code = "error"
    status = 500
    retryable = False

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        details: dict[str, Any] | None = None,
        hint: str = "",
    ) -> None:
        """Say what happened, and in `hint` what to do next."""
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.details = details or {}
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class RequestError(RotaError):
    """The request cannot be served as it is."""

    code = "bad_request"
    status = 400


class InvalidRequest(RequestError):
    """A field is missing, of the wrong type or out of range."""


class PayloadTooLarge(RequestError):
    """The body is over the limit."""

    code = "body_too_large"
    status = 413


class NotFound(RequestError):
    """Nothing has that id."""

    code = "not_found"
    status = 404


class Conflict(RequestError):
    """The state of the thing does not allow it."""

    code = "conflict"
    status = 409


class Unprocessable(RequestError):
    """The request is well formed, and contradicts another or what there is."""

    code = "unprocessable"
    status = 422


class QueueFull(RequestError):
    """Admission refused the task: a queue is full."""

    code = "queue_full"
    status = 429
    retryable = True


class CallbackRefused(RequestError):
    """The callback URL may not be called."""

    code = "callback_refused"


class StorageUnavailable(RotaError):
    """The log does not accept writes at the moment; nothing was stored."""

    code = "storage_unavailable"
    status = 503
    retryable = True


class ShuttingDown(RotaError):
    """The server is stopping and takes no new work."""

    code = "shutting_down"
    status = 503
    retryable = True


class InternalFault(RotaError):
    """A bug in rota; it was recorded, and the part that failed was restarted."""

    code = "internal"
    status = 500
    retryable = True


class NotWritable(RotaError):
    """An event holds something that cannot be written as JSON; nothing of it was recorded."""

    code = "not_writable"


class IllegalMove(RotaError):
    """A fact does not fit the state that its task is in."""

    code = "illegal_move"

    def __init__(self, seq: int, message: str) -> None:
        """Name the record by the `seq` that it has, or would have had."""
        super().__init__(message)
        self.seq = seq


class ServerUnreachable(RotaError):
    """No server answered; whether it did what was asked is not known."""

    code = "unreachable"
    status = 503
    retryable = True


class WaitTimeout(RotaError, TimeoutError):
    """The time of a client's wait is over; `last` is what it waited for, as it is now."""

    code = "wait_timeout"
    retryable = True

    def __init__(self, message: str, last: Any) -> None:
        super().__init__(message, hint="it goes on; wait again, for longer")
        self.last = last


class NoResult(RotaError):
    """A task has ended, but not well; `task` is the task."""

    code = "no_result"

    def __init__(self, message: str, task: Any, *, code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.task = task


class TaskFailed(NoResult):
    """It failed; `code` and `details` are those of its error."""

    code = "failed"


class TaskCancelled(NoResult):
    """It was cancelled, or a task that it depends on did not succeed."""

    code = "cancelled"


class TaskRejected(NoResult):
    """It was never taken."""

    code = "rejected"


class ConfigError(RotaError):
    """The configuration cannot be used."""

    code = "bad_config"


class LogError(RotaError):
    """The data folder cannot be used as it is."""

    code = "log_error"


class LogLocked(LogError):
    """Another process holds the data folder."""

    code = "log_locked"


class LogCorrupt(LogError):
    """A record does not match its digest."""

    code = "log_corrupt"

    def __init__(self, seq: int, message: str, *, hint: str = "") -> None:
        super().__init__(message, details={"seq": seq}, hint=hint)
        self.seq = seq


class LogTooNew(LogError):
    """The log was written by a newer rota."""

    code = "log_too_new"


class LogUnusable(LogError):
    """The log cannot be opened, read or written."""

    code = "log_unusable"


class Unfolded(LogError):
    """A fact could not be folded into the state; it was not written, and the log is whole."""

    code = "unfolded"

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="the log is whole; this is a bug of rota: please report it")

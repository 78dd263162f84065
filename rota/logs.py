"""The log lines of a server and of a worker, as text or as JSON, on stderr.

A record is one line, whatever is in it: control characters are escaped, and the lines of a
traceback are indented, so that no input can pass for a line of its own.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from typing import TYPE_CHECKING, Any

from rota.clock import US_PER_S, rfc3339

if TYPE_CHECKING:
    from types import TracebackType

ERROR_CHARS_MAX = 500
"""So much of the error of a failed attempt is logged."""
LEVELS = ("debug", "info", "warning", "error")
QUIET = ("asyncio", "aiohttp", "watchfiles")
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def clean(value: Any) -> str:
    """Give the text with control characters escaped."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), str(value))


class TextFormatter(logging.Formatter):
    """`2026-03-08T12:00:00.5Z warning rota.system: the message`."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record as one line, with its traceback indented under it."""
        at = rfc3339(int(record.created * US_PER_S))
        level = record.levelname.lower()
        lines = [f"{at} {level} {record.name}: {clean(record.getMessage())}"]
        lines += [f"    {clean(line)}" for line in _trace(self, record).split("\n") if line]
        return "\n".join(lines)


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        body = {
            "at": rfc3339(int(record.created * US_PER_S)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        trace = _trace(self, record)
        return json.dumps({**body, "trace": trace} if trace else body)


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = []
    if record.exc_info:
        parts.append(formatter.formatException(record.exc_info))
    if record.stack_info:
        parts.append(formatter.formatStack(record.stack_info))
    return "\n".join(parts)


def set_up(level: str, *, as_json: bool) -> None:
    """Send what is logged at `level` and above to stderr; with it, what is raised and warned."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.root.level))
    if as_json:
        logging.captureWarnings(capture=True)
        sys.excepthook = _log_uncaught


def say(message: str, level: int = logging.INFO) -> None:
    """Write a line as a log line, whatever the level of the log is."""
    record = logging.LogRecord("rota.serve", level, "", 0, message, None, None)
    for handler in logging.root.handlers:
        handler.handle(record)


def line_of(message: str) -> bytes:
    """Give a line of JSON to be written where no logger can be used: in a signal's handler."""
    record = logging.LogRecord("rota.serve", logging.WARNING, "", 0, message, None, None)
    return JsonFormatter().format(record).encode() + b"\n"


def _log_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    logging.getLogger("rota").critical("it ended", exc_info=(kind, error, trace))

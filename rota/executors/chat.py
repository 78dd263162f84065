"""Executes an attempt as one chat, as the BrowserOS document tells.

POST {url} with `params.instruction` as the message, and `params.llmConfig` merged over the
defaults. The answer is a stream of server-sent events, read as it comes; the last `data:` that is
JSON is the result, those before it are told as progress. Of the stream no more is held than the
event that is coming in and the last one that came. It has no time limit of its own: the attempt's
ends it by cancelling, which closes the connection.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import aiohttp
import orjson

from rota.config import RESULT_BYTES_MAX
from rota.domain.commands import Outcome
from rota.domain.notes import REPORT_BYTES_MAX
from rota.domain.values import is_too_deep, says_too_deep
from rota.executors.http import HttpExecutor, failure, too_deep, too_large
from rota.executors.port import Note

if TYPE_CHECKING:
    from rota.executors.port import Attempt, Tell

READ_BYTES = 1 << 14
STREAM_BYTES_MAX = 64 << 20
PROGRESS_EVERY_S = 0.2
PROGRESS_MAX = 1000
SAMPLE_BYTES_MAX = 200
TOO_DEEP = object()
"""Stands for an event's value that is nested too deep to be read."""

DEFAULTS: dict[str, Any] = {
    "isScheduledTask": True,
    "mode": "agent",
    "supportsImages": False,
    "provider": "browseros",
}
"""What a chat is asked with, unless `llmConfig` says otherwise."""

_BOM = b"\xef\xbb\xbf"
_NO_NEWS = (b"", b"[DONE]")
_FIELDS = (b"id", b"retry", b"")  # a comment is a field without a name
_LINE_BYTES_MAX = RESULT_BYTES_MAX + len(_BOM + b"data: ")
_LINE_END = re.compile(rb"\r\n|\n|\r")


class ChatExecutor(HttpExecutor):
    """POSTs attempts to a chat endpoint."""

    def refusal(self, attempt: Attempt) -> Outcome | None:
        if not _text(attempt.params.get("instruction")).strip():
            error = "params.instruction must be a text, and not blank"
            return Outcome(ok=False, code="bad_params", error=error)
        if not isinstance(attempt.params.get("llmConfig"), dict | None):
            error = "params.llmConfig must be an object"
            return Outcome(ok=False, code="bad_params", error=error)
        return None

    def body(self, attempt: Attempt) -> dict[str, Any]:
        """Merge llmConfig over the defaults; the conversation and the message stay."""
        own = {"conversationId": str(uuid4()), "message": _text(attempt.params["instruction"])}
        return own | DEFAULTS | (attempt.params.get("llmConfig") or {}) | own

    def complaint(self, status: int, text: str, reason: str) -> str:
        """Say what a bad answer was, in the document's words."""
        text = text or reason
        return f"Chat API returned {status}: {text}" if text else f"Chat API returned {status}"

    def _headers_for(self, attempt: Attempt) -> dict[str, str]:
        return {"Accept": "text/event-stream", **super()._headers_for(attempt)}

    async def read(self, response: aiohttp.ClientResponse, tell: Tell) -> Outcome:
        """Read the stream to its end; its last event is the result."""
        stream, chat, size = EventStream(), _Chat(tell), 0
        try:
            async for chunk in response.content.iter_chunked(READ_BYTES):
                size += len(chunk)
                if size > STREAM_BYTES_MAX:
                    error = f"the chat stream is larger than {STREAM_BYTES_MAX} bytes"
                    return Outcome(ok=False, code="stream_too_large", error=error)
                chat.take(stream.feed(chunk))
                if stream.is_too_large:
                    break
                await asyncio.sleep(0)  # a flood of events lets the others run, too
            else:
                chat.take(stream.finish())
        except (aiohttp.ClientError, OSError):
            error = f"the chat stream broke off after {chat.events} events"
            return Outcome(ok=False, code="connection", error=error)
        finally:
            chat.progress.stop()
        if stream.is_too_large:
            return too_large("an event of the chat stream")
        return chat.outcome(stream.stray, stream.error)


class EventStream:
    """Takes server-sent events out of a stream, in whatever pieces it comes.

    Each `data:` line is an event of its own, as in the document, if it is JSON by itself; lines
    that are JSON only when joined are one event, as in the standard. Of its name only `error` is
    of interest: `error` is the data of the last event if that was so named. An end of the stream
    also ends the event that is coming in, as in the document (and not in the standard).
    """

    def __init__(self) -> None:
        self.is_too_large = False
        self.stray = b""
        self.error: bytes | None = None
        self._name = b""
        self._is_first = True
        self._is_after_cr = False
        self._line = bytearray()
        self._data = bytearray()
        self._lines = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take some bytes; give the events that end in them."""
        if self._is_after_cr:
            chunk = chunk.removeprefix(b"\n")  # the other half of a line's end
        self._is_after_cr = chunk.endswith(b"\r")
        *lines, rest = _LINE_END.split(chunk)
        events = []
        for line in lines:
            self._line += line
            events += self._end_line()
        self._line += rest
        self.is_too_large = self.is_too_large or len(self._line) > _LINE_BYTES_MAX
        return events

    def finish(self) -> list[bytes]:
        """Take the end of the stream; give the event that it ends, if any."""
        return [*self._end_line(), *self._end_event()]

    def _end_line(self) -> list[bytes]:
        line = bytes(self._line)
        self._line.clear()
        if self._is_first:
            line = line.removeprefix(_BOM)
            self._is_first = False
        if not line:
            return self._end_event()
        name, _, value = line.partition(b":")
        if name == b"data":
            before = self._end_data() if self._lines == 1 and _is_json(self._data) else []
            self._data += value.removeprefix(b" ") + b"\n"
            self._lines += 1
            self.is_too_large = self.is_too_large or len(self._data) > RESULT_BYTES_MAX + 1
            return before
        if name == b"event":
            self._name = value.strip()[:SAMPLE_BYTES_MAX]
        elif name not in _FIELDS:
            self.stray = line[:SAMPLE_BYTES_MAX]
        return []

    def _end_event(self) -> list[bytes]:
        events = self._end_data()
        self._name = b""
        return events

    def _end_data(self) -> list[bytes]:
        """Give what the lines so far are: one event, or, if they are none together, one each."""
        data, lines = bytes(self._data[:-1]), self._lines
        self._data.clear()
        self._lines = 0
        events = [data] if lines < 2 or _is_json(data) else data.split(b"\n")
        for each in events:
            if each.strip() not in _NO_NEWS:
                self.error = each if self._name == b"error" else None
        return [each for each in events if each]


def _is_json(data: bytes | bytearray) -> bool:
    try:
        orjson.loads(data)
    except ValueError:
        return False
    return True


class Progress:
    """Tells the newest of many values: the first at once, then one in each interval."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._told = 0
        self._newest: Any = None
        self._pause: asyncio.TimerHandle | None = None

    def take(self, value: Any) -> None:
        """Tell a value, now or, if no newer one comes, when the interval has passed."""
        self._newest = value
        if self._pause is None:
            self._say()

    def _say(self) -> None:
        self._pause = None
        if self._newest is None or self._told >= PROGRESS_MAX:
            return
        value, self._newest = self._newest, None
        self._told += 1
        self._pause = asyncio.get_running_loop().call_later(PROGRESS_EVERY_S, self._say)
        self._tell(Note(progress=value))

    def stop(self) -> None:
        if self._pause is not None:
            self._pause.cancel()


class _Chat:
    """What has been heard of one chat."""

    def __init__(self, tell: Tell) -> None:
        self.progress = Progress(tell)
        self.events = 0
        self._last: tuple[bytes, Any] | None = None
        self._malformed = b""

    def take(self, events: list[bytes]) -> None:
        """Hear events; what is larger or deeper than progress may be is not told."""
        for data in events:
            if data.strip() in _NO_NEWS:
                continue
            self.events += 1
            try:
                value = orjson.loads(data)
            except ValueError as error:
                if says_too_deep(error):
                    self._last = data, TOO_DEEP
                else:
                    self._malformed = data[:SAMPLE_BYTES_MAX]
                continue
            self._last = data, value
            if len(data) <= REPORT_BYTES_MAX and not is_too_deep(data, value):
                self.progress.take(value)

    def outcome(self, stray: bytes, error: bytes | None = None) -> Outcome:
        """Make an outcome of the last event; `stray` is a line that belonged to none.

        `error` is the last event's data if that was one of the kind.
        """
        if error is not None and (self._last is None or self._last[0] != error):
            text = error[:SAMPLE_BYTES_MAX].decode(errors="replace")
            return failure("chat_error", text, error, text)
        if self._last is None:
            return _no_result(self._malformed or stray)
        data, value = self._last
        if value is TOO_DEEP:
            return too_deep("the chat's result")
        said = value if isinstance(value, dict) else {"message": str(value)}
        if error is not None or said.get("type") == "error":
            return failure("chat_error", _message(said), data, value)
        if is_too_deep(data, value):
            return too_deep("the chat's result")
        return Outcome(ok=True, result=value)


def _text(instruction: Any) -> str:
    """Give an instruction as it is said; a parent's result that is no text is said as JSON."""
    if instruction is None or isinstance(instruction, str):
        return instruction or ""
    return orjson.dumps(instruction).decode()


def _no_result(sample: bytes) -> Outcome:
    if not sample:
        error = "the chat stream ended without an event"
        return Outcome(ok=False, code="empty_stream", error=error)
    error = f"no data: of the chat stream held JSON; it held {sample.decode(errors='replace')}"
    return Outcome(ok=False, code="bad_stream", error=error)


def _message(event: dict[str, Any]) -> str:
    """Find the text of an error event, where chat servers put it."""
    inner = event.get("error")
    places = (event.get("message"), event.get("errorText"), inner)
    texts = (*places, inner.get("message") if isinstance(inner, dict) else None)
    found = (text for text in texts if isinstance(text, str) and text.strip())
    return next(found, "the chat ended in an error")

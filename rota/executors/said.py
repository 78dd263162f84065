"""What a command prints: bounded, told in groups, with progress and a result among it.

Each output is read as it comes and never kept: lines become the task's log until that is full, the
last line of standard output that is a JSON object or array is the result, the last few hundred
characters are for the error. What a chunk costs does not depend on how many lines are in it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import orjson

from rota.config import RESULT_BYTES_MAX
from rota.domain.notes import LINE_CHARS_MAX, LINES_MAX, REPORT_BYTES_MAX
from rota.domain.values import says_too_deep
from rota.executors.port import Note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rota.executors.port import Tell

TAIL_BYTES = 500
GROUP_S = 0.2
GROUP_LINES = 100
TRIES_MAX = 100
"""So many lines of a chunk that look like JSON are tried, from the last one on."""
DRAIN_S = 1.0
PROGRESS = b"::progress "


class Said:
    """What a command prints on both of its outputs."""

    def __init__(self, tell: Tell, bytes_max: int) -> None:
        self.result: bytes | None = None
        """The last line that is a JSON object or array, None if there is none."""
        self.is_result_cut = False
        """Whether a line that looks like a later result was too long to be one."""
        self.is_too_much = False
        self.on_too_much: Callable[[], None] | None = None
        self.outputs = (Output(self, "info"), Output(self, "warning"))
        self._tell = tell
        self._bytes_left = bytes_max
        self._lines_left = LINES_MAX
        self._lines: dict[str, list[str]] = {}
        self._progress: Any = None
        self._tail = b""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def tail(self) -> str:
        """The last of what was printed."""
        return self._tail.decode(errors="replace").strip()

    def count(self, size: int) -> bool:
        """Count what was printed; False once it is too much."""
        self._bytes_left -= size
        if self._bytes_left < 0 and not self.is_too_much:
            self.is_too_much = True
            if self.on_too_much is not None:
                self.on_too_much()
        return not self.is_too_much

    def take(self, raw: bytes, level: str) -> None:
        """Take whole lines, without the last one's end."""
        if level == "info":
            if PROGRESS in raw:
                self._take_progress(raw)
            self._take_result(raw)
        self._take_text(raw, level)

    def take_part(self, raw: bytes, level: str) -> None:
        """Take the beginning of a line that is too long to be anything but text."""
        if level == "info" and raw[:1] in (b"{", b"["):
            self.is_result_cut = True
        self._take_text(raw[: 4 * LINE_CHARS_MAX], level)

    def _take_text(self, raw: bytes, level: str) -> None:
        self._tail = (self._tail + raw[-TAIL_BYTES:] + b"\n")[-TAIL_BYTES:]
        if self._lines_left > 0:
            self._take_lines(raw, level)

    def _take_progress(self, raw: bytes) -> None:
        """Keep the last word on how far it has come."""
        _, found, after = (b"\n" + raw).rpartition(b"\n" + PROGRESS)
        value = after.partition(b"\n")[0]
        if found and len(value) <= REPORT_BYTES_MAX:
            self._progress = _value(value)
            self._arm()

    def _take_result(self, raw: bytes) -> None:
        """Keep the last line that is JSON, also if it is too deep to be read: that is refused."""
        for line in last_lines(raw, b"{", b"[", TRIES_MAX):
            try:
                orjson.loads(line)
            except ValueError as error:
                if not says_too_deep(error):
                    continue
            self.result, self.is_result_cut = line, False
            return

    def _take_lines(self, raw: bytes, level: str) -> None:
        lines = self._lines.setdefault(level, [])
        for line in raw.split(b"\n", self._lines_left)[: self._lines_left]:
            if level == "info" and line.startswith(PROGRESS) and len(line) <= REPORT_BYTES_MAX:
                continue
            self._lines_left -= 1
            text = line[: 4 * LINE_CHARS_MAX].decode(errors="replace").rstrip("\r")
            lines.append(text[:LINE_CHARS_MAX])
        if len(lines) >= GROUP_LINES:
            self.flush()
        else:
            self._arm()

    def _arm(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GROUP_S, self.flush)

    def flush(self) -> None:
        """Tell what has gathered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        gathered, self._lines = self._lines, {}
        for level, lines in gathered.items():
            if lines:
                self._tell(Note(level=level, lines=tuple(lines)))
        if self._progress is not None:
            self._tell(Note(progress=self._progress))
            self._progress = None

    async def finish(self) -> None:
        """Let the outputs be read to their ends, but not for those who have passed them on."""
        try:
            async with asyncio.timeout(DRAIN_S):
                for output in self.outputs:
                    await output.ended.wait()
        except TimeoutError:
            pass
        finally:
            for output in self.outputs:
                output.close()
            self.flush()


class Output(asyncio.Protocol):
    """One of the outputs, cut into lines."""

    def __init__(self, said: Said, level: str) -> None:
        self.ended = asyncio.Event()
        self._said = said
        self._level = level
        self._pipe: asyncio.ReadTransport | None = None
        self._rest: list[bytes] = []
        self._rest_bytes = 0
        self._is_long = False
        """Whether the line that is being printed is too long, and its beginning was taken."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._pipe = cast("asyncio.ReadTransport", transport)

    def data_received(self, data: bytes) -> None:
        if not self._said.count(len(data)):
            self.close()
            return
        before, newline, after = data.rpartition(b"\n")
        if newline:
            self._end_line(before)
        self._rest.append(after)
        self._rest_bytes += len(after)
        if self._rest_bytes > RESULT_BYTES_MAX:
            self._cut()

    def _end_line(self, data: bytes) -> None:
        """Take what was printed up to the end of a line."""
        raw = b"".join((*self._rest, data))
        self._rest, self._rest_bytes = [], 0
        if self._is_long:
            self._is_long = False
            _, newline, raw = raw.partition(b"\n")
            if not newline:
                return
        self._said.take(raw, self._level)

    def _cut(self) -> None:
        """Take the beginning of a line that is too long; the rest of it is dropped."""
        if not self._is_long:
            self._said.take_part(b"".join(self._rest), self._level)
            self._is_long = True
        self._rest, self._rest_bytes = [], 0

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._pipe = None
        if self._rest_bytes:
            self._end_line(b"")
        self.ended.set()

    def close(self) -> None:
        if self._pipe is not None:
            self._pipe.close()


def last_lines(raw: bytes, one: bytes, other: bytes, count: int) -> Iterator[bytes]:
    """Give up to `count` lines that begin with one or the other, from the last one on."""
    raw = b"\n" + raw
    begins = [b"\n" + one, b"\n" + other]
    found = [raw.rfind(begin) for begin in begins]
    for _ in range(count):
        at = max(found)
        if at < 0:
            return
        yield raw[at + 1 :].partition(b"\n")[0]
        which = found.index(at)
        found[which] = raw.rfind(begins[which], 0, at)


def _value(raw: bytes) -> Any:
    try:
        return orjson.loads(raw)
    except ValueError:
        return raw.decode(errors="replace").strip()

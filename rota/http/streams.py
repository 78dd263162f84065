"""The open streams of events: who wants what, and bringing it to them.

A stream that has everything is idle. A commit looks up by task, agent and kind which idle streams
want it, so that those which want nothing of it cost nothing. What they get is made once for all
that want the same, and written to their connections at once; a stream whose reader has not taken
the last of it, or that is to get much, wakes up and gets it at the reader's own pace. Bringing it
to many rests in between, so that many streams take a share of the server and not all of it.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from rota.actors.tail import Entry, Tail
    from rota.http.presence import AttendedConnection
    from rota.sight.history import Wanted

PUSH_BYTES_MAX = 256 << 10
TURN_STREAMS = 50
REST_S_MIN = 1e-3
REST_S = 100e-6
"""For each stream that was written to; writing to one takes about half of it."""
SHARED_MAX = 64
STILL_HERE = b": still here\n\n"


class Source(Protocol):
    """Where the records come from: the newest, and those that are further back."""

    @property
    def tail(self) -> Tail: ...

    async def entries(self, after: int, task_id: str | None = None) -> tuple[list[Entry], int]:
        """Give the next, of one task if it is named; and how far that leads. Raises LogError."""
        ...


class LacksError(Exception):
    """A record cannot be shown before something is looked up: await `look_up`, and try again."""

    def __init__(self, look_up: Callable[[], Awaitable[None]]) -> None:
        super().__init__("to be looked up")
        self.look_up = look_up


class Stream:
    """One reader. While it is idle, its place is kept by `Streams`."""

    __slots__ = (
        "at",
        "changed",
        "connection",
        "is_chunked",
        "is_due",
        "is_idle",
        "offset",
        "render",
        "since",
        "wanted",
    )

    def __init__(
        self,
        connection: AttendedConnection,
        wanted: Wanted,
        render: Callable[[Entry], bytes],
        after: int,
        *,
        is_chunked: bool,
    ) -> None:
        """Give what comes after `after`: up to `at`, and `offset` bytes of what is next."""
        self.connection = connection
        self.wanted = wanted
        self.render = render
        self.since = self.at = after
        self.offset = 0
        self.is_chunked = is_chunked
        self.is_idle = self.is_due = False
        self.changed = asyncio.Event()

    @property
    def has_room(self) -> bool:
        """Whether the reader has taken all that was written."""
        transport = self.connection.transport
        return (
            transport is not None
            and not transport.is_closing()
            and not transport.get_write_buffer_size()
        )

    def framed(self, data: bytes) -> bytes:
        """Put data into the form that this connection's body has."""
        return b"%x\r\n%b\r\n" % (len(data), data) if self.is_chunked else data

    def write(self, data: bytes) -> None:
        """Write what is framed. Raises ConnectionError."""
        transport = self.connection.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the reader has left")
        transport.write(data)

    def wake(self) -> None:
        """Have its own task look after it."""
        self.is_idle = self.is_due = False
        self.changed.set()


class Streams:
    """All of them."""

    def __init__(self, source: Source) -> None:
        """Bring what the tail of `source` gets; those behind read it themselves (catch_up.py)."""
        self.source = source
        self.tail = tail = source.tail
        self._seen = tail.last
        self._open: dict[Stream, None] = {}
        self._for_all: dict[Stream, None] = {}
        self._by_task: dict[str, dict[Stream, None]] = {}
        self._by_agent: dict[str, dict[Stream, None]] = {}
        self._by_project: dict[str, dict[Stream, None]] = {}
        self._by_kind: dict[str, dict[Stream, None]] = {}
        self._due: list[Stream] = []
        self._shared: dict[tuple[object, ...], tuple[bytes, int] | None] = {}
        self._is_bringing = False
        self._brought = tail.last
        self._rest_until = 0.0
        self.held_pages = 0
        self.reading: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Held by the stream of each caller that reads a page."""
        self.renderers: dict[str, Callable[[Entry], bytes]] = {}

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def open(self, stream: Stream) -> Iterator[None]:
        """Look after a stream while in this block."""
        places = list(self._places(stream))
        with self.tail.reading(), stream.connection.attended(stream.changed.set):
            self._open[stream] = None
            for index, name in places:
                index.setdefault(name, {})[stream] = None
            if not places:
                self._for_all[stream] = None
            try:
                yield
            finally:
                del self._open[stream]
                self._for_all.pop(stream, None)
                for index, name in places:
                    del index[name][stream]
                    if not index[name]:
                        del index[name]

    def _places(self, stream: Stream) -> Iterator[tuple[dict[str, dict[Stream, None]], str]]:
        """Say where to look a stream up: by that which the fewest records have."""
        kinds, task, agent, _, project = stream.wanted
        if task is not None:
            yield self._by_task, task
        elif agent is not None:
            yield self._by_agent, agent
        elif project is not None:
            yield self._by_project, project
        elif kinds is not None:
            for kind in kinds:
                yield self._by_kind, kind

    def close(self) -> None:
        """Wake them all: the server is stopping."""
        for stream in self._open:
            stream.wake()

    def news(self, seq: int) -> None:
        """Find out who wants what has become durable."""
        del seq
        since, self._seen = self._seen, self.tail.last
        if not self._open:
            return
        self._shared.clear()
        if not self.tail.holds(since):  # more than memory takes, or found in the log
            self._send_to_the_log(since)
        elif len(self._for_all) < len(self._open):
            for entry in self.tail.recent(since):
                self._match(entry)
        if not self._is_bringing:
            self._bring_soon()

    def _send_to_the_log(self, since: int) -> None:
        for stream in self._open:
            if stream.is_idle:
                if not stream.is_due and stream not in self._for_all:
                    stream.at = max(since, stream.since)
                stream.wake()

    def _match(self, entry: Entry) -> None:
        kind, task, agent, project = about = entry.about
        for index, name in (
            (self._by_task, task),
            (self._by_agent, agent),
            (self._by_project, project),
            (self._by_kind, kind),
        ):
            for stream in index.get(name, ()) if name is not None else ():
                if (
                    stream.is_idle
                    and not stream.is_due
                    and entry.seq > stream.since
                    and stream.wanted.matches(about)
                ):
                    stream.at = entry.seq - 1  # it had wanted nothing in between
                    stream.is_due = True
                    self._due.append(stream)

    def _bring_soon(self) -> None:
        """Bring what there is to whoever wants it, once enough rest was had."""
        self._is_bringing = bool(self._due or (self._for_all and self._brought < self._seen))
        if not self._is_bringing:
            return
        loop = asyncio.get_running_loop()
        rest = self._rest_until - loop.time()
        if rest > REST_S_MIN:
            loop.call_later(rest, self._bring)
        else:
            loop.call_soon(self._bring)

    def _bring(self) -> None:
        """Write to everybody who has something to get, a few at a turn of the loop."""
        self._brought = self._seen
        waiting = [*self._for_all, *self._due]
        self._due.clear()
        self._bring_some(waiting, 0)

    def _bring_some(self, waiting: list[Stream], start: int) -> None:
        end = start + TURN_STREAMS
        for stream in waiting[start:end]:
            if stream.is_idle and stream in self._open:
                self._push(stream)
        loop = asyncio.get_running_loop()
        if end < len(waiting):
            loop.call_soon(self._bring_some, waiting, end)
            return
        self._rest_until = loop.time() + len(waiting) * REST_S
        self._bring_soon()

    def _push(self, stream: Stream) -> None:
        last = self.tail.last
        if stream.at >= last:
            return
        stream.is_due = False
        try:
            made = self._made_for(stream) if stream.has_room else None
        except LacksError:  # its own task looks it up
            made = None
        if made is None:
            stream.wake()
            return
        data, stream.at = made
        if data:
            stream.write(data)
        if stream.at >= last:
            return
        if stream in self._for_all:  # the rest comes with the next round
            self._brought = min(self._brought, stream.at)
        else:
            stream.is_due = True
            self._due.append(stream)

    def _made_for(self, stream: Stream) -> tuple[bytes, int] | None:
        """Give what a stream is to get now, made once, and up to where; None if it is too large."""
        key = (stream.wanted, stream.render, stream.at, stream.is_chunked)
        if key in self._shared:
            return self._shared[key]
        made = self._make(stream)
        if len(self._shared) < SHARED_MAX:
            self._shared[key] = made
        return made

    def _make(self, stream: Stream) -> tuple[bytes, int] | None:
        if not self.tail.holds(stream.at):
            return None
        parts: list[bytes] = []
        size, end = 0, self.tail.last
        for entry in self.tail.recent(stream.at):
            if stream.wanted.matches(entry.about):
                frame = stream.render(entry)
                size += len(frame)
                if size > PUSH_BYTES_MAX:
                    if not parts:
                        return None
                    end = entry.seq - 1
                    break
                parts.append(frame)
        data = b"".join(parts)
        return stream.framed(data) if data else b"", end

"""Whatever happens in whatever order, a stream gets what it wants, in order, and once.

The production streams run over a log in memory, with connections whose readers stop and go on at
will. What happens is drawn: commits, small and large; records that only the log knows of after a
failure; a log that cannot be read for a while; readers that come, stop reading, and leave.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.actors import tail as tails
from rota.actors.tail import Entry, Tail
from rota.domain import events as e
from rota.domain.events import Record
from rota.errors import LogUnusable
from rota.eventlog.chain import extend
from rota.eventlog.codec import encode, subject_of
from rota.eventlog.heading import heading_of
from rota.eventlog.memory_store import MemoryLog
from rota.eventlog.port import Stored
from rota.http import catch_up, streams
from rota.http.streams import Stream, Streams
from rota.http.v1.events import _frame
from rota.sight.history import Wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HIGH, LOW = 500, 100
SETTINGS = (
    (tails, "PAGE_RECORDS", 7),
    (tails, "PAGE_BYTES", 900),
    (streams, "PUSH_BYTES_MAX", 600),
    (streams, "TURN_STREAMS", 2),
    (streams, "REST_S", 1e-6),
    (streams, "SHARED_MAX", 3),
    (catch_up, "PIECE_BYTES", 300),
    (catch_up, "TAKES_ITS_TIME_S", 0.0005),
    (catch_up, "UNREADABLE_S", 0.0002),
    (catch_up, "HEARTBEAT_S", 0.001),
    (catch_up, "HELD_PAGES_MAX", 1),
)


@pytest.fixture(autouse=True, scope="module")
def _small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in SETTINGS:
            patch.setattr(module, name, value)
        yield


class FlakyLog(MemoryLog):
    """A log that cannot be read now and then."""

    is_open = True

    def read(self, *args: Any) -> list[Stored]:
        if not self.is_open:
            raise LogUnusable("the log is being reopened")
        return super().read(*args)

    def read_task(self, *args: Any) -> list[Stored]:
        if not self.is_open:
            raise LogUnusable("the log is being reopened")
        return super().read_task(*args)


class Reader:
    """Both ends of a connection: what the stream writes, and who takes it."""

    def __init__(self) -> None:
        self.taken = b""
        self.untaken = bytearray()
        self.reads = True
        self.is_gone = self.at_eof = self.writing_paused = False
        self.most = 0
        self._tell: Callable[[], None] = lambda: None

    transport = property(lambda self: self)

    def get_extra_info(self, name: str) -> Reader:
        del name
        return self

    def setsockopt(self, *args: int) -> None:
        del args

    def is_closing(self) -> bool:
        return self.is_gone

    def get_write_buffer_size(self) -> int:
        return len(self.untaken)

    @contextmanager
    def attended(self, on_change: Callable[[], None]) -> Iterator[None]:
        self._tell = on_change
        yield

    def write(self, data: bytes) -> None:
        assert not self.is_gone
        self.untaken += data
        self.most = max(self.most, len(self.untaken))
        if self.reads:
            self.take(len(self.untaken))
        elif len(self.untaken) > HIGH:
            self.writing_paused = True

    def take(self, count: int) -> None:
        self.taken += self.untaken[:count]
        del self.untaken[:count]
        if self.writing_paused and len(self.untaken) <= LOW:
            self.writing_paused = False
            self._tell()

    def leave(self) -> None:
        self.is_gone = True
        self._tell()

    def frames(self) -> list[tuple[int, bytes]]:
        found = re.findall(rb"id: (\d+)\nevent: event\ndata: (.*)\n\n", self.taken)
        return [(int(seq), body) for seq, body in found]


class Stage:
    """A log, its tail, the streams on it."""

    def __init__(self) -> None:
        self.log = FlakyLog()
        self.epoch = self.log.claim()
        self.tail = Tail(records_max=6, bytes_max=1500)
        self.tail.last = 0
        self.streams = Streams(self)
        self.readers: list[tuple[Reader, Stream, int]] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.unreported: list[Stored] = []
        self.is_over = False

    async def entries(self, after: int, task_id: str | None = None) -> tuple[list[Entry], int]:
        tail = self.tail
        if after >= tail.last:
            return [], after
        if tail.holds(after):
            page = tail.page(after)
            return page, page[-1].seq if page else after
        await asyncio.sleep(0)
        return tail.read(self.log, after, task_id)

    def append(self, sizes: list[int]) -> list[Stored]:
        made: list[Stored] = []
        seq, digest = self.log.head()
        for seq, size in enumerate(sizes, start=seq + 1):  # noqa: B020 - goes on from there
            event: e.Event = e.TaskLogged(f"t{seq % 3}", f"a{seq % 2}", ["x" * size])
            if seq % 5 == 0:
                event = e.ServerStopped("asked")
            elif seq % 7 == 0:
                event = e.AgentPaused(f"a{seq % 2}", "x" * size)
            body = encode(Record(seq, 1, event))
            digest = extend(digest, body)
            made.append(Stored(seq, digest, body, subject_of(event)))
        self.log.append(made, made[0].seq - 1, self.epoch)
        return made

    def commit(self, sizes: list[int]) -> None:
        self.tail.add(self.unreported + self.append(sizes))
        self.unreported = []
        self.streams.news(self.tail.last)

    def come(self, wanted: Wanted, after: int) -> None:
        after = min(after, self.log.head().seq)
        reader = Reader()
        stream = Stream(reader, wanted, _frame, after, is_chunked=False)  # type: ignore[arg-type]
        self.readers.append((reader, stream, after))
        self.tasks.append(asyncio.create_task(self._serve(stream)))

    async def _serve(self, stream: Stream) -> None:
        with self.streams.open(stream), suppress(ConnectionError):
            await catch_up.serve(stream, self.streams, lambda: self.is_over)

    async def act(self, what: str, which: int, sizes: list[int], wanted: Wanted) -> None:
        reader = self.readers[which % len(self.readers)][0] if self.readers else None
        if what == "commit":
            self.commit(sizes)
        elif what == "commit, report later":
            self.unreported += self.append(sizes)
        elif what == "lose report":
            self.unreported = []
        elif what == "come":
            self.come(wanted, which)
        elif what == "log":
            self.log.is_open = not self.log.is_open
        elif what == "turn":
            await asyncio.sleep(0)
        elif what == "wait":
            await asyncio.sleep(0.001)
        elif reader is not None and what == "stop":
            reader.reads = False
        elif reader is not None and what == "take":
            reader.take(1 + 37 * which)
        elif reader is not None and what == "go on":
            reader.reads = True
            reader.take(1 << 30)
        elif reader is not None and what == "leave":
            reader.leave()

    async def end(self) -> None:
        """Let everybody have everything."""
        self.log.is_open = True
        for reader, *_ in self.readers:
            reader.reads = True
            reader.take(1 << 30)
        self.commit([1])
        for _ in range(2000):
            if all(stream.is_idle or r.is_gone for r, stream, _ in self.readers) and not (
                self.streams._is_bringing
            ):
                break
            await asyncio.sleep(0.0005)
        self.is_over = True
        self.streams.close()
        await asyncio.wait_for(asyncio.gather(*self.tasks), 10)
        assert len(self.streams) == 0

    def judge(self) -> None:
        stored = [(item.seq, item.body) for item in self.log.read(0, 1 << 30)]
        for reader, stream, after in self.readers:
            wanted = [
                (seq, body)
                for seq, body in stored
                if seq > after and stream.wanted.matches(heading_of(body))
            ]
            if reader.is_gone:
                wanted = wanted[: len(reader.frames())]
            assert reader.frames() == wanted
            assert reader.most <= HIGH + 600 + 100


ACTIONS = (
    *["commit"] * 6,
    "commit, report later",
    "lose report",
    "come",
    "come",
    "log",
    *["turn"] * 4,
    "wait",
    "stop",
)
WANTED = st.builds(
    Wanted,
    st.sampled_from([None, None, frozenset({"task_logged"}), frozenset({"agent_paused"})]),
    st.sampled_from([None, None, "t1", "nobody"]),
    st.sampled_from([None, None, "a1"]),
)
ALWAYS = (Wanted(), Wanted(task="t1"), Wanted(agent="a1"), Wanted(frozenset({"task_logged"})))
STEPS = st.lists(
    st.tuples(
        st.sampled_from((*ACTIONS, "take", "take", "go on", "leave")),
        st.integers(0, 30),
        st.lists(st.sampled_from([1, 20, 200, 900]), min_size=1, max_size=9),
        WANTED,
    ),
    max_size=60,
)


@settings(deadline=None, max_examples=200)
@given(STEPS)
def test_every_stream_gets_what_it_wants_in_order_and_once(
    steps: list[tuple[str, int, list[int], Wanted]],
) -> None:
    async def main() -> None:
        stage = Stage()
        stage.commit([1])
        for wanted in ALWAYS:
            stage.come(wanted, 0)
        await asyncio.sleep(0)
        for step in steps:
            await stage.act(*step)
        await stage.end()
        stage.judge()

    asyncio.run(main())


def test_what_is_made_for_one_is_not_given_to_another_after_the_next_commit() -> None:
    async def main() -> None:
        stage = Stage()
        stage.commit([1])
        for _ in range(6):
            stage.come(Wanted(), 0)
        await asyncio.sleep(0.005)
        stage.commit([1])
        while not any(r.frames()[-1:][0][0] == 2 for r, *_ in stage.readers):
            await asyncio.sleep(0)
        assert not all(r.frames()[-1:][0][0] == 2 for r, *_ in stage.readers)
        stage.commit([1])
        await stage.end()
        stage.judge()

    asyncio.run(main())


def test_who_comes_from_ahead_of_the_tail_gets_nothing_that_it_has() -> None:
    async def main() -> None:
        stage = Stage()
        stage.commit([1])
        await stage.act("commit, report later", 0, [1] * 5, Wanted())
        stage.come(Wanted(agent="a1"), 1 << 30)
        stage.come(Wanted(), 1 << 30)
        await asyncio.sleep(0.005)
        stage.commit([1] * 3)
        await stage.end()
        stage.judge()
        assert all(reader.frames() for reader, *_ in stage.readers)

    asyncio.run(main())

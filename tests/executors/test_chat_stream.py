"""Chats on their way: events in pieces of any size, how few of them are told, and streams that
never end.
"""

from __future__ import annotations

import asyncio
import tracemalloc
from contextlib import suppress
from itertools import product
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from support.receivers import receiving

from rota.config import RESULT_BYTES_MAX
from rota.domain.notes import REPORT_BYTES_MAX
from rota.executors import chat
from rota.executors.chat import ChatExecutor, EventStream, Progress
from rota.executors.port import Attempt, Note

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rota.domain.commands import Outcome
    from rota.executors.port import Tell

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
ASKED = Attempt("tsk_1", "ann", 1, 7, "chat", "ask", {"instruction": "buy milk"})
WITHIN_S = 30
NEVER_S = 3600.0
WRITES_MAX = 100_000


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(value: Any) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"


async def ask(url: str, tell: Tell) -> Outcome:
    """Run one attempt with an executor of its own."""
    executor = ChatExecutor(url)
    try:
        return await asyncio.wait_for(executor.run(ASKED, tell), WITHIN_S)
    finally:
        await executor.close()


# -- events --------------------------------------------------------------------------------------


def events_of(*pieces: bytes) -> list[bytes]:
    stream = EventStream()
    found = [data for piece in pieces for data in stream.feed(piece)]
    found += stream.finish()
    assert not stream.is_too_large
    return found


LINES = (
    b"\xef\xbb\xbf: a comment",
    b"",
    b"event: step",
    b"id: 7",
    b"data: one",
    b"data:two",
    b"data:  three: \xc3\xa9",
    b"",
    b"",
    b"data",
    b"data:",
    b"unknown: x",
    b"datax: y",
    b"",
    b": data: no",
    b"data: \xef\xbb\xbffour",
)
EVENTS = [b"one", b"two", b" three: \xc3\xa9", b"\xef\xbb\xbffour"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("last", [0, 1, 2])
def test_events_are_the_same_however_the_stream_is_split(end: bytes, last: int) -> None:
    data = end.join(LINES) + end * last
    assert events_of(data) == EVENTS
    assert events_of(*(bytes([byte]) for byte in data)) == EVENTS
    for at in range(len(data) + 1):
        assert events_of(data[:at], data[at:]) == EVENTS


def test_line_ends_may_be_mixed() -> None:
    for first, second, third in product((b"\n", b"\r\n", b"\r"), repeat=3):
        data = b"data: 1" + first + b"data: 2" + second + third + b"data: 3"
        for at in range(len(data) + 1):
            assert events_of(data[:at], data[at:]) == [b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("lines", "events"),
    [
        ([b'{"a": 1}', b'{"b": 2}'], [b'{"a": 1}', b'{"b": 2}']),
        ([b"{", b'"a": 1', b"}"], [b'{\n"a": 1\n}']),
        ([b'{"a": 1}', b"[", b"2]"], [b'{"a": 1}', b"[\n2]"]),
        ([b"not json", b'{"b": 2}'], [b"not json", b'{"b": 2}']),
        ([b'{"a": 1}', b"[DONE]"], [b'{"a": 1}', b"[DONE]"]),
        ([b"", b'{"a": 1}'], [b'\n{"a": 1}']),
    ],
)
def test_lines_without_a_blank_one_between_are_events_unless_only_together_they_are_json(
    lines: list[bytes], events: list[bytes]
) -> None:
    data = b"".join(b"data: " + line + b"\n" for line in lines)
    for end in (b"", b"\n"):
        for at in range(len(data) + 1):
            assert events_of(data[:at], data[at:] + end) == events


def test_a_stream_without_blank_lines_is_bounded_by_the_event_not_by_the_sum() -> None:
    stream = EventStream()
    line = b'data: {"text": "' + b"x" * 10_000 + b'"}\n'
    found = sum(len(stream.feed(line)) for _ in range(300))
    assert not stream.is_too_large
    assert found + len(stream.finish()) == 300


def test_an_error_is_known_by_its_name_on_every_line_of_it() -> None:
    stream = EventStream()
    stream.feed(b'event: error\ndata: {"a": 1}\ndata: {"b": 2}\n\n')
    assert stream.error == b'{"b": 2}'
    stream.feed(b"data: 3\n\n")
    assert stream.error is None


def test_comments_and_events_that_have_passed_take_no_memory() -> None:
    stream = EventStream()
    stream.feed(b": warm\n")
    tracemalloc.start()
    try:
        for _ in range(300):
            stream.feed(b": keep-alive\n\n" * 100 + b"data: " + b"x" * 3000 + b"\n\n")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 200_000  # 1.3 MB went through


# -- progress ------------------------------------------------------------------------------------


class Listener:
    """Keeps what is told, and lets a server wait for it."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self._arrived = asyncio.Event()

    def __call__(self, note: Note) -> None:
        assert note == Note(progress=note.progress)
        self.told.append(note.progress)
        self._arrived.set()

    async def wait_for(self, count: int) -> None:
        """Wait until so much has been told."""
        while len(self.told) < count:
            self._arrived.clear()
            await self._arrived.wait()


def told(script: Callable[[Callable[..., None], Listener], Awaitable[None]]) -> list[Any]:
    """What is told of a chat; the script says events, and can wait for what is told."""

    async def go() -> list[Any]:
        listener = Listener()

        async def play(writer: asyncio.StreamWriter) -> None:
            def say(*values: Any) -> None:
                writer.write(chunk(b"".join(map(event, values))))

            writer.write(HEAD)
            await script(say, listener)
            say("the end")
            writer.write(b"0\r\n\r\n")
            await writer.drain()

        async with receiving(play) as receiver:
            outcome = await ask(receiver.url(), listener)
        assert outcome.result == "the end"
        return listener.told

    return asyncio.run(go())


def test_the_first_event_is_told_at_once_and_the_others_not_before_their_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chat, "PROGRESS_EVERY_S", NEVER_S)

    async def script(say: Callable[..., None], listener: Listener) -> None:
        say({"step": 1})
        await listener.wait_for(1)
        say(*range(5000))

    assert told(script) == [{"step": 1}]


def test_the_newest_is_told_when_the_interval_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "PROGRESS_EVERY_S", 0.01)

    async def script(say: Callable[..., None], listener: Listener) -> None:
        say(1, 2, 3)  # and no more, until two of them are told
        await listener.wait_for(2)

    assert told(script)[:2] == [1, 3]


def test_no_more_than_so_much_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "PROGRESS_EVERY_S", 0)
    monkeypatch.setattr(chat, "PROGRESS_MAX", 3)

    async def script(say: Callable[..., None], listener: Listener) -> None:
        for count in range(1, 7):
            say(count)
            await listener.wait_for(min(count, 3))

    assert told(script) == [1, 2, 3]


def test_what_is_too_large_or_too_deep_or_says_nothing_is_not_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chat, "PROGRESS_EVERY_S", 0)
    deep: list[Any] = []
    for _ in range(64):
        deep = [deep]

    async def script(say: Callable[..., None], listener: Listener) -> None:
        for count, unfit in enumerate(("x" * (REPORT_BYTES_MAX - 1), deep, None), 1):
            say(unfit)
            say(count)
            await listener.wait_for(count)
        say("x" * (REPORT_BYTES_MAX - 2))
        await listener.wait_for(4)

    assert told(script)[:4] == [1, 2, 3, "x" * (REPORT_BYTES_MAX - 2)]


def test_progress_that_is_stopped_tells_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "PROGRESS_EVERY_S", 0)

    async def go() -> list[Any]:
        listener = Listener()
        progress = Progress(listener)
        progress.take(1)
        progress.take(2)
        progress.stop()
        for _ in range(3):
            await asyncio.sleep(0)
        return listener.told

    assert asyncio.run(go()) == [1]


def test_an_attempt_that_has_ended_tells_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "PROGRESS_EVERY_S", 0.02)

    async def go() -> None:
        listener = Listener()
        async with receiving(HEAD + chunk(event(1) + event(2)) + b"0\r\n\r\n") as receiver:
            assert (await ask(receiver.url(), listener)).ok
            already = list(listener.told)
            await asyncio.sleep(0.03)  # its next note would have come by now
            assert listener.told == already

    asyncio.run(go())


def test_the_bounds_are_as_documented() -> None:
    bounds = (chat.STREAM_BYTES_MAX, chat.PROGRESS_EVERY_S, chat.PROGRESS_MAX)
    assert bounds == (64 << 20, 0.2, 1000)
    assert REPORT_BYTES_MAX == 4096


# -- streams that never end ----------------------------------------------------------------------


async def flooded(head: bytes, piece: bytes) -> Outcome:
    """Ask a server that sends for ever, and see that it is left."""
    left = asyncio.Event()

    async def flood(writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        with suppress(ConnectionError):
            for _ in range(WRITES_MAX):
                writer.write(chunk(piece))
                await writer.drain()
            return
        left.set()

    async with receiving(flood) as receiver:
        outcome = await ask(receiver.url(), [].append)
        await asyncio.wait_for(left.wait(), WITHIN_S)
        return outcome


@pytest.mark.parametrize(
    ("piece", "code"),
    [
        (event("x" * 1000), "stream_too_large"),
        (b": ping\n\n" * 100, "stream_too_large"),
        (b"x" * 1000 + b"\n", "stream_too_large"),
        (b"data: " + b"x" * 1000 + b"\n", "result_too_large"),
        (b"data: x\n" * 1000, "result_too_large"),
        (b":" + b"x" * 1000, "result_too_large"),
        (b"x" * 1000, "result_too_large"),
    ],
)
def test_a_server_that_sends_for_ever_is_left(
    monkeypatch: pytest.MonkeyPatch, piece: bytes, code: str
) -> None:
    if code == "stream_too_large":
        monkeypatch.setattr(chat, "STREAM_BYTES_MAX", RESULT_BYTES_MAX)
    outcome = asyncio.run(flooded(HEAD, piece))
    assert (outcome.ok, outcome.code, outcome.result) == (False, code, None)
    assert "larger than" in outcome.error


def test_a_refusal_without_end_is_left() -> None:
    head = HEAD.replace(b"200 OK", b"503 Busy")
    assert asyncio.run(flooded(head, b"x" * 1000)).code == "status_503"


# -- cancelling ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent", [b"", HEAD, HEAD + chunk(event(1)), HEAD + chunk(event(1) + b"dat")]
)
def test_cancelling_closes_the_connection(sent: bytes) -> None:
    async def go() -> None:
        asked, told, left = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(sent)
            asked.set()
            with suppress(ConnectionError):
                await reader.read()  # to the end: the caller has left
            left.set()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        executor = ChatExecutor(f"http://127.0.0.1:{port}")
        task = asyncio.create_task(executor.run(ASKED, lambda _: told.set()))
        async with asyncio.timeout(WITHIN_S):
            await asked.wait()
            if b"data" in sent:
                await told.wait()
            assert not left.is_set()
            task.cancel("timeout")
            with pytest.raises(asyncio.CancelledError):
                await task
            await left.wait()
        await executor.close()
        server.close()
        await server.wait_closed()

    asyncio.run(go())

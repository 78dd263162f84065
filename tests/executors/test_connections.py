"""Connections that are kept, and peers that send more than they were asked for."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp
import pytest
from support.receivers import OK, answer, receiving

from rota.clock import SystemClock
from rota.executors import pinned
from rota.executors.callback import CallbackSender
from rota.executors.chat import ChatExecutor
from rota.executors.connections import INFORMATIONAL_MAX, BoundedConnector
from rota.executors.guard import CallbackGuard
from rota.executors.http import HttpExecutor
from rota.executors.port import Attempt
from rota.executors.tab import TabExecutor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

    from support.receivers import Receiver

    from rota.domain.delivery import DeliveryReport

EARLY = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
ATTEMPT = Attempt("tsk_1", "ann", 1, 7, "x", "click", {"instruction": "hi"}, tab="t")


@asynccontextmanager
async def sending(
    *script: Sequence[str],
) -> AsyncIterator[Callable[[str], Coroutine[None, None, DeliveryReport]]]:
    """Give a way to send to URLs whose names resolve by a script, the loopback being open."""
    answers = list(script)

    def resolve(_host: str, _port: int) -> Sequence[str]:
        return answers.pop(0) if len(answers) > 1 else answers[0]

    guard = CallbackGuard(["127.0.0.0/8"], resolver=resolve if script else None)
    sender = CallbackSender(guard, clock=SystemClock())

    async def send(url: str) -> DeliveryReport:
        return await sender.send(url, delivery_id="d", headers={}, body=b"{}")

    try:
        yield send
    finally:
        await sender.close()
        guard.close()


# --- kept connections -----------------------------------------------------------------------


def test_attempts_at_one_receiver_share_a_connection() -> None:
    async def run() -> None:
        async with receiving(keeps=True) as receiver, sending() as send:
            for _ in range(5):
                assert (await send(receiver.url())).ok
            assert (len(receiver.requests), receiver.connections) == (5, 1)

    asyncio.run(run())


def test_a_kept_connection_is_not_used_for_an_attempt_that_resolves_elsewhere() -> None:
    async def run() -> None:
        async with (
            receiving(keeps=True) as one,
            receiving(host="127.0.0.2", port=one.port, keeps=True) as two,
            sending(["127.0.0.1"], ["127.0.0.2"], ["127.0.0.2", "127.0.0.1"]) as send,
        ):
            for _ in range(3):
                assert (await send(one.url("hooks.example"))).ok
            assert (one.connections, len(one.requests)) == (1, 1)
            assert (two.connections, len(two.requests)) == (1, 2)

    asyncio.run(run())


def test_a_name_that_rebinds_to_a_refused_address_gets_no_kept_connection() -> None:
    async def run() -> None:
        async with (
            receiving(keeps=True) as receiver,
            sending(["127.0.0.1"], ["127.0.0.1", "10.0.0.1"]) as send,
        ):
            assert (await send(receiver.url("hooks.example"))).ok
            assert (await send(receiver.url("hooks.example"))).final
            assert len(receiver.requests) == 1

    asyncio.run(run())


def test_two_names_of_one_address_do_not_share_a_connection() -> None:
    async def run() -> None:
        async with receiving(keeps=True) as receiver, sending(["127.0.0.1"]) as send:
            assert (await send(receiver.url("a.example"))).ok
            assert (await send(receiver.url("b.example"))).ok
            assert receiver.connections == 2

    asyncio.run(run())


def test_a_connection_that_the_receiver_has_closed_meanwhile_is_replaced() -> None:
    """The receiver promises to keep it, and hangs up when the next request comes."""

    async def run() -> None:
        hang_up = False

        async def fickle(writer: asyncio.StreamWriter) -> None:
            nonlocal hang_up
            hang_up = not hang_up
            if hang_up:
                writer.write(OK)
                await writer.drain()
            else:
                raise ConnectionError

        async with receiving(fickle, keeps=True) as receiver, sending() as send:
            outcomes = [await send(receiver.url()) for _ in range(3)]
            assert [outcome.ok for outcome in outcomes] == [True] * 3
            assert (len(receiver.requests), receiver.connections) == (5, 3)

    asyncio.run(run())


def test_a_new_connection_that_is_closed_without_an_answer_is_a_failure_at_once() -> None:
    async def run() -> None:
        async with receiving(b"") as receiver, sending() as send:
            assert not (await send(receiver.url())).ok
            assert receiver.connections == 1

    asyncio.run(run())


def test_only_so_many_connections_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned, "KEPT_MAX", 3)

    async def run() -> None:
        async with receiving(keeps=True) as receiver, sending(["127.0.0.1"]) as send:
            for n in range(8):
                assert (await send(receiver.url(f"h{n}.example"))).ok
            while receiver.open_now > 3:
                await asyncio.sleep(0.001)
            assert (await send(receiver.url("h7.example"))).ok
            assert receiver.connections == 8

    asyncio.run(run())


def test_closing_the_sender_hangs_up() -> None:
    async def run() -> None:
        async with receiving(keeps=True) as receiver:
            async with sending() as send:
                await send(receiver.url())
                assert receiver.open_now == 1
            async with asyncio.timeout(5):
                while receiver.open_now:
                    await asyncio.sleep(0.001)

    asyncio.run(run())


def test_an_answer_that_was_not_read_to_its_end_is_the_last_on_its_connection() -> None:
    async def run() -> None:
        long = answer(200, body=b"x" * 100_000)
        async with receiving(long, keeps=True) as receiver, sending() as send:
            assert (await send(receiver.url())).ok
            assert (await send(receiver.url())).ok
            assert receiver.connections == 2

    asyncio.run(run())


# --- answers that nobody asked for ----------------------------------------------------------


async def post(receiver: Receiver) -> tuple[int, bytes]:
    async with (
        aiohttp.ClientSession(connector=BoundedConnector(limit=0)) as session,
        session.post(receiver.url()) as response,
    ):
        return response.status, await response.read()


def flood(piece: bytes) -> Callable[[asyncio.StreamWriter], Coroutine[None, None, None]]:
    """Answer with a piece again and again, until the other side hangs up."""

    async def answer_(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(piece * 5000)
            await writer.drain()

    return answer_


def test_a_few_informational_answers_are_fine() -> None:
    async def run() -> None:
        async with receiving(EARLY * INFORMATIONAL_MAX + OK) as receiver:
            assert await post(receiver) == (200, b"ok")

    asyncio.run(run())


@pytest.mark.parametrize("status", [100, 102, 103, 199])
def test_a_flood_of_informational_answers_is_hung_up_on(status: int) -> None:
    async def run() -> None:
        piece = f"HTTP/1.1 {status} Go on\r\n\r\n".encode()
        async with receiving(flood(piece)) as receiver:
            with pytest.raises(aiohttp.ClientConnectionError, match="informational answers"):
                await post(receiver)
            async with asyncio.timeout(5):
                while receiver.open_now:
                    await asyncio.sleep(0.001)

    asyncio.run(run())


def test_an_answer_is_whole_whatever_follows_it() -> None:
    async def run() -> None:
        async with receiving(OK + OK * 50_000) as receiver:
            assert await post(receiver) == (200, b"ok")

    asyncio.run(run())


def test_a_large_answer_is_read_whole() -> None:
    async def run() -> None:
        body = bytes(range(256)) * 20_000
        async with receiving(EARLY + answer(200, body=body)) as receiver:
            assert await post(receiver) == (200, body)

    asyncio.run(run())


@pytest.mark.parametrize("kind", [HttpExecutor, TabExecutor, ChatExecutor])
def test_an_executor_that_floods_fails_the_attempt(kind: type[HttpExecutor]) -> None:
    async def run() -> None:
        async with receiving(flood(EARLY)) as receiver:
            executor = kind(receiver.url())
            outcome = await executor.run(ATTEMPT, lambda _: None)
            await executor.close()
            assert (outcome.ok, outcome.code) == (False, "connection")
            assert "informational" in str(outcome.error)

    asyncio.run(run())


def test_a_receiver_that_floods_fails_the_try() -> None:
    async def run() -> None:
        async with receiving(flood(EARLY)) as receiver, sending() as send:
            outcome = await send(receiver.url())
            assert (outcome.ok, outcome.status) == (False, 0)
            assert "informational" in outcome.error

    asyncio.run(run())


def test_a_connection_on_which_more_came_than_was_asked_for_is_not_used_again() -> None:
    async def run() -> None:
        async with receiving(OK + OK, keeps=True) as receiver, sending() as send:
            assert (await send(receiver.url())).ok
            assert (await send(receiver.url())).ok
            assert receiver.connections == 2

    asyncio.run(run())

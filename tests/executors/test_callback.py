"""One delivery attempt against real receivers, polite and hostile, on the loopback."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import hmac
import socket
from functools import partial
from typing import TYPE_CHECKING

import aiohttp
import pytest
from support.receivers import OK, Receiver, answer, receiving

from rota import __version__
from rota.clock import US_PER_S, ManualClock
from rota.errors import CallbackRefused, ConfigError
from rota.executors.callback import (
    CallbackSender,
    read_retry_after,
    sign,
    signers_of,
)
from rota.executors.guard import CallbackGuard
from rota.executors.pinned import PinnedConnector, pinned_to

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from rota.domain.delivery import DeliveryReport

NOW_S = 1_700_000_000
PUBLIC = "93.184.215.14"
KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class FakeDns:
    """Answer from a script; the last answers stay."""

    def __init__(self, *script: Sequence[str]) -> None:
        self._script = list(script)
        self.asked: list[str] = []

    def __call__(self, host: str, _port: int) -> Sequence[str]:
        self.asked.append(host)
        answers = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        if not answers:
            raise OSError("no such host")
        return answers


def strict(*answers: Sequence[str]) -> CallbackGuard:
    """Give a guard that opens nothing local."""
    return CallbackGuard(resolver=FakeDns(*answers) if answers else None)


def lenient(*answers: Sequence[str]) -> CallbackGuard:
    """Give a guard that opens the loopback, where the receivers are."""
    dns = FakeDns(*answers) if answers else None
    return CallbackGuard(["127.0.0.0/8", "::1"], resolver=dns)


def sender_for(guard: CallbackGuard, **options: object) -> CallbackSender:
    return CallbackSender(guard, clock=ManualClock(NOW_S * US_PER_S), **options)  # type: ignore[arg-type]


async def deliver(
    url: str,
    guard: CallbackGuard | None = None,
    body: bytes = b'{"id":1}',
    headers: dict[str, str] | None = None,
    **options: object,
) -> DeliveryReport:
    """Make one attempt with a sender of its own."""
    guard = guard or lenient()
    sender = sender_for(guard, **options)
    try:
        headers = headers or {"X-Task": "t1"}
        return await sender.send(url, delivery_id="dlv_1", headers=headers, body=body)
    finally:
        await sender.close()
        guard.close()


def attempt(reply: bytes, **options: object) -> tuple[DeliveryReport, Receiver]:
    """Deliver once to a receiver that answers with `reply`."""

    async def run() -> tuple[DeliveryReport, Receiver]:
        async with receiving(reply) as receiver:
            return await deliver(receiver.url(), **options), receiver  # type: ignore[arg-type]

    return asyncio.run(run())


def expected_signature(key: bytes, delivery_id: str, timestamp: str, body: bytes) -> str:
    message = delivery_id.encode() + b"." + timestamp.encode() + b"." + body
    return "v1," + base64.b64encode(hmac.new(key, message, hashlib.sha256).digest()).decode()


# --- what is sent ---------------------------------------------------------------------------


def test_delivery_carries_the_callers_headers_and_ours() -> None:
    outcome, receiver = attempt(OK)
    assert outcome.ok
    assert (outcome.status, outcome.error, outcome.final) == (200, "", False)
    (request,) = receiver.requests
    assert request.line == "POST /hook HTTP/1.1"
    assert request.body == b'{"id":1}'
    assert request.headers["x-task"] == "t1"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["user-agent"] == f"rota/{__version__}"
    assert request.headers["accept-encoding"] == "identity"
    assert request.headers["webhook-id"] == "dlv_1"
    assert request.headers["webhook-timestamp"] == str(NOW_S)
    assert request.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert "webhook-signature" not in request.headers
    assert "content-disposition" not in request.headers


def test_signature_matches_the_published_example() -> None:
    signature = sign(
        signers_of([KEY]), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
    )
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_received_signature_verifies_for_every_secret_in_rotation() -> None:
    _, receiver = attempt(OK, secrets=[KEY, "plain secret"])
    (request,) = receiver.requests
    stamp = request.headers["webhook-timestamp"]
    keys = [base64.b64decode(KEY.removeprefix("whsec_")), b"plain secret"]
    assert request.headers["webhook-signature"].split(" ") == [
        expected_signature(key, "dlv_1", stamp, request.body) for key in keys
    ]


@pytest.mark.parametrize("secret", ["whsec_***", "", "whsec_"])
def test_unusable_secret_is_a_config_error(secret: str) -> None:
    guard = strict()
    with pytest.raises(ConfigError, match=r"webhooks\.secret"):
        sender_for(guard, secrets=[secret])
    guard.close()


def test_caller_cannot_replace_the_headers_that_frame_or_sign() -> None:
    async def run() -> Receiver:
        async with receiving() as receiver:
            headers = {
                "host": "elsewhere", "content-length": "1", "Transfer-Encoding": "chunked",
                "WEBHOOK-ID": "forged", "content-type": "text/plain",
            }  # fmt: skip
            assert (await deliver(receiver.url(), body=b"{}", headers=headers)).ok
            return receiver

    (request,) = asyncio.run(run()).requests
    assert request.headers["host"].startswith("127.0.0.1:")
    assert request.headers["content-length"] == "2"
    assert request.headers["webhook-id"] == "dlv_1"
    assert request.headers["content-type"] == "application/json"


def test_header_with_a_line_break_is_an_outcome_not_an_exception() -> None:
    async def run() -> None:
        async with receiving() as receiver:
            outcome = await deliver(receiver.url(), headers={"X-A": "1\r\nX-B: 2"})
            assert not outcome.ok
            assert outcome.error.isprintable()
            assert receiver.requests == []

    asyncio.run(run())


def test_large_body_arrives_whole() -> None:
    body = b"x" * 3_000_000
    outcome, receiver = attempt(OK, body=body)
    assert outcome.ok
    assert receiver.requests[0].body == body


# --- where it may go ------------------------------------------------------------------------

LOOPBACK_HOSTS = [
    "127.0.0.1", "127.1", "0x7f000001", "2130706433", "0177.0.0.1", "017700000001", "0.0.0.0", "0",
    "\uff11\uff12\uff17.\uff10.\uff10.\uff11", "127.0.0.1.", "localhost", "LOCALHOST",
    "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]",
]  # fmt: skip
LOOPBACK_ANSWERS = ["127.0.0.1", "127.0.0.2", "0.0.0.0", "::ffff:127.0.0.1", "::1", "::"]


def refused_without_connection(url_host: str, guard: CallbackGuard) -> DeliveryReport:
    """Deliver to a listening port and see that nobody comes."""

    async def run() -> DeliveryReport:
        async with receiving() as receiver:
            outcome = await deliver(receiver.url(url_host), guard)
            assert receiver.connections == 0
            return outcome

    outcome = asyncio.run(run())
    assert not outcome.ok
    assert outcome.status == 0
    assert outcome.error
    return outcome


@pytest.mark.parametrize("host", LOOPBACK_HOSTS)
def test_url_form_of_the_loopback_gets_no_connection(host: str) -> None:
    assert refused_without_connection(host, strict()).final


@pytest.mark.parametrize("credentials", ["user@", "user:pass@", "@", "hooks.example\\@"])
def test_url_with_credentials_gets_no_connection(credentials: str) -> None:
    assert refused_without_connection(f"{credentials}127.0.0.1", lenient()).final


@pytest.mark.parametrize("answer_", LOOPBACK_ANSWERS)
def test_name_that_answers_with_the_loopback_gets_no_connection(answer_: str) -> None:
    assert refused_without_connection("hooks.example", strict([answer_])).final


@pytest.mark.parametrize("answer_", LOOPBACK_ANSWERS)
def test_name_with_mixed_answers_gets_no_connection(answer_: str) -> None:
    assert refused_without_connection("hooks.example", strict([PUBLIC, answer_])).final


def test_name_that_rebinds_after_submission_gets_no_connection() -> None:
    dns = FakeDns([PUBLIC], ["127.0.0.1"])

    async def run() -> None:
        async with receiving() as receiver:
            guard = CallbackGuard(resolver=dns)
            url = receiver.url("hooks.example")
            await guard.check_at_submission(url)
            outcome = await deliver(url, guard)
            assert outcome.final
            assert receiver.connections == 0

    asyncio.run(run())
    assert len(dns.asked) == 2


def test_name_that_rebinds_after_the_check_is_still_called_where_it_was_checked() -> None:
    dns = FakeDns(["127.0.0.1"], ["127.0.0.99"])

    async def run() -> None:
        async with receiving() as receiver:
            guard = CallbackGuard(["127.0.0.1"], resolver=dns)
            outcome = await deliver(receiver.url("hooks.example"), guard)
            assert outcome.ok
            assert receiver.requests[0].headers["host"] == f"hooks.example:{receiver.port}"

    asyncio.run(run())
    assert dns.asked == ["hooks.example"]


def test_every_attempt_resolves_anew() -> None:
    async def run() -> None:
        async with receiving() as receiver:
            guard = CallbackGuard(["127.0.0.1"], resolver=FakeDns(["127.0.0.1"], ["127.0.0.2"]))
            sender = sender_for(guard)
            url = receiver.url("hooks.example")
            first = await sender.send(url, delivery_id="d", headers={}, body=b"")
            second = await sender.send(url, delivery_id="d", headers={}, body=b"")
            await sender.close()
            guard.close()
            assert first.ok
            assert second.final
            assert receiver.connections == 1

    asyncio.run(run())


def test_peer_that_was_not_checked_is_sent_nothing() -> None:
    async def run() -> None:
        async with receiving() as receiver:
            # An address in the URL needs no resolver, so only the look at the peer can stop it.
            async with aiohttp.ClientSession(connector=PinnedConnector()) as session:
                with pinned_to([PUBLIC]), pytest.raises(CallbackRefused, match="not checked"):
                    await session.post(receiver.url())
            assert receiver.requests == []

    asyncio.run(run())


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirect_is_a_failure_and_is_not_followed(status: int) -> None:
    async def run() -> None:
        async with (
            receiving() as inner,
            receiving(answer(status, f"Location: {inner.url()}")) as outer,
        ):
            outcome = await deliver(outer.url())
            assert (outcome.ok, outcome.status, outcome.final) == (False, status, False)
            assert "redirects are not followed" in outcome.error
            assert outer.connections == 1
            assert inner.connections == 0

    asyncio.run(run())


def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with receiving() as proxy, receiving() as receiver:
            for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
                monkeypatch.setenv(name, proxy.url(path=""))
            monkeypatch.delenv("no_proxy", raising=False)
            monkeypatch.delenv("NO_PROXY", raising=False)
            assert (await deliver(receiver.url())).ok
            assert proxy.connections == 0

    asyncio.run(run())


def test_tls_names_the_host_of_the_url_not_the_address() -> None:
    async def run() -> None:
        async with receiving() as receiver:
            url = f"https://hooks.example:{receiver.port}/"
            outcome = await deliver(url, lenient(["127.0.0.1"]))
            assert not outcome.ok
            assert b"hooks.example" in receiver.raw

    asyncio.run(run())


def test_second_address_is_tried_when_the_first_does_not_listen() -> None:
    async def run() -> None:
        async with receiving() as receiver:
            guard = lenient(["127.0.0.3", "127.0.0.1"])
            assert (await deliver(receiver.url("hooks.example"), guard)).ok

    asyncio.run(run())


def test_unresolved_name_is_a_failure_worth_a_retry() -> None:
    assert not refused_without_connection("hooks.example", strict([])).final


# --- what comes back ------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_2xx_is_success(status: int) -> None:
    assert attempt(answer(status))[0].ok


@pytest.mark.parametrize("status", [400, 404, 410, 429, 500, 503, 599])
def test_any_other_status_is_a_failure_and_410_is_gone(status: int) -> None:
    outcome, _ = attempt(answer(status, body=b"secret detail"))
    assert (outcome.ok, outcome.status, outcome.final) == (False, status, status == 410)
    assert outcome.error == f"the receiver answered {status}"


def test_retry_after_is_passed_on() -> None:
    assert attempt(answer(429, "Retry-After: 7"))[0].retry_after_s == 7
    assert attempt(answer(503))[0].retry_after_s is None
    assert attempt(answer(200, "Retry-After: 7"))[0].retry_after_s is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0), (" 120 ", 120), ("3601", 3600), ("9" * 5000, 3600),
        ("Tue, 14 Nov 2023 22:14:20 GMT", 60), ("Tue, 14 Nov 2023 22:14:20 -0000", 60),
        ("Tue, 14 Nov 2033 22:14:20 GMT", 3600), ("Tue, 14 Nov 2013 22:14:20 GMT", 0),
        ("", None), ("-5", None), ("soon", None), ("1.5", None), ("\u0667", None),
        ("Tue, 99 Nov 2023 22:14:20 GMT", None),
    ],
)  # fmt: skip
def test_retry_after_is_read_as_seconds_or_date_and_bounded(
    text: str, seconds: float | None
) -> None:
    assert read_retry_after(text, NOW_S * US_PER_S) == seconds


def test_silent_receiver_times_out() -> None:
    async def silence(_writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async def run() -> None:
        async with receiving(silence) as receiver:
            outcome = await deliver(receiver.url(), timeout_s=0.05)
            assert (outcome.ok, outcome.status, outcome.final) == (False, 0, False)
            assert outcome.error == "no answer within 0.05 s"
            assert 40 <= outcome.duration_ms < 5000

    asyncio.run(run())


def test_receiver_that_trickles_its_headers_times_out() -> None:
    async def trickle(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"X-A: b\r\n")
            await writer.drain()
            await asyncio.sleep(0.005)

    async def run() -> None:
        async with receiving(trickle) as receiver:
            assert not (await deliver(receiver.url(), timeout_s=0.05)).ok

    asyncio.run(run())


def test_slow_name_server_counts_towards_the_time_limit() -> None:
    async def run() -> None:
        release = asyncio.Event()
        loop = asyncio.get_running_loop()

        def slow(_host: str, _port: int) -> list[str]:
            asyncio.run_coroutine_threadsafe(release.wait(), loop).result(5)
            return ["127.0.0.1"]

        guard = CallbackGuard(["127.0.0.1"], resolver=slow)
        outcome = await deliver("http://hooks.example:9/", guard, timeout_s=0.02)
        release.set()
        await asyncio.sleep(0.01)
        assert outcome.error == "no answer within 0.02 s"

    asyncio.run(run())


def test_status_decides_although_the_body_never_ends() -> None:
    sent = 0

    async def endless(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000000\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()
            sent += 65536

    async def run() -> None:
        async with receiving(endless) as receiver:
            outcome = await deliver(receiver.url(), timeout_s=5)
            assert outcome.ok
            assert outcome.duration_ms < 4000

    asyncio.run(run())
    assert sent < 32 * 1024 * 1024  # socket buffers, not the body


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Collect what is read of an answer's body."""
    chunks: list[bytes] = []
    read = aiohttp.StreamReader.read

    async def noting(self: aiohttp.StreamReader, n: int = -1) -> bytes:
        chunks.append(await read(self, n))
        return chunks[-1]

    monkeypatch.setattr(aiohttp.StreamReader, "read", noting)
    return chunks


def test_at_most_4_kib_of_the_answer_are_read(taken: list[bytes]) -> None:
    assert attempt(answer(200, body=b"x" * 1_000_000))[0].ok
    assert len(b"".join(taken)) == 4096


def test_body_that_stalls_does_not_undo_the_status() -> None:
    async def run(reply: bytes) -> DeliveryReport:
        async def stalled(writer: asyncio.StreamWriter) -> None:
            writer.write(reply)
            await writer.drain()
            await asyncio.Event().wait()

        async with receiving(stalled) as receiver:
            return await deliver(receiver.url(), timeout_s=0.05)

    assert asyncio.run(run(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")).ok
    assert asyncio.run(run(b"HTTP/1.1 500 No\r\nContent-Length: 10\r\n\r\nabc")).status == 500


def test_compressed_answer_is_not_unpacked(taken: list[bytes]) -> None:
    bomb = gzip.compress(b"\0" * 20_000_000)
    outcome, _ = attempt(answer(200, "Content-Encoding: gzip", body=bomb))
    assert outcome.ok
    assert b"".join(taken) == bomb[:4096]


@pytest.mark.parametrize(
    "reply",
    [
        b"", b"\0" * 100, b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 OK\r\n\r\n", b"HTTP/1.1 999999 x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 \x1b[31mforged\r\nlog line\r\n\r\n", b"HTTP/1.1 100 Go on\r\n\r\n" * 50,
    ],
)  # fmt: skip
def test_answer_that_is_not_http_is_a_failure_with_a_safe_text(reply: bytes) -> None:
    outcome, _ = attempt(reply, timeout_s=2)
    assert not outcome.ok
    assert 0 < len(outcome.error) <= 300
    assert outcome.error.isprintable()


def test_broken_chunk_after_a_good_status_is_still_success() -> None:
    async def broken(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.02)
        writer.write(b"zz\r\nnonsense")
        await writer.drain()

    async def run() -> None:
        async with receiving(broken) as receiver:
            assert (await deliver(receiver.url(), timeout_s=0.2)).ok

    asyncio.run(run())


def test_closed_port_is_a_failure() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        outcome = asyncio.run(deliver(f"http://127.0.0.1:{taken.getsockname()[1]}/"))
    assert (outcome.ok, outcome.status, outcome.final) == (False, 0, False)
    assert outcome.error


# --- when it is cut short -------------------------------------------------------------------


def run_and_cancel(send: Coroutine[None, None, DeliveryReport]) -> Coroutine[None, None, None]:
    async def run() -> None:
        task = asyncio.ensure_future(send)
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    return run()


async def answer_after(gate: asyncio.Event, writer: asyncio.StreamWriter) -> None:
    await gate.wait()
    writer.write(OK)
    await writer.drain()


def test_cancelled_attempt_raises_and_leaves_the_sender_usable() -> None:
    async def run() -> None:
        gate = asyncio.Event()
        async with receiving(partial(answer_after, gate)) as receiver:
            guard = lenient()
            sender = sender_for(guard)
            for _ in range(3):
                send = sender.send(receiver.url(), delivery_id="d", headers={}, body=b"")
                await run_and_cancel(send)
            gate.set()
            assert (await sender.send(receiver.url(), delivery_id="d", headers={}, body=b"")).ok
            await sender.close()
            guard.close()

    asyncio.run(run())


def test_closed_sender_finishes_what_is_under_way_and_starts_nothing() -> None:
    async def run() -> None:
        gate = asyncio.Event()
        async with receiving(partial(answer_after, gate)) as receiver:
            guard = lenient()
            sender = sender_for(guard)

            def send() -> asyncio.Task[DeliveryReport]:
                return asyncio.create_task(
                    sender.send(receiver.url(), delivery_id="d", headers={}, body=b"")
                )

            under_way = send()
            await receiver.wait_for_requests(1)
            closing = asyncio.create_task(sender.close())
            await asyncio.sleep(0)
            assert not closing.done()
            late = await send()
            assert (late.ok, late.error) == (False, "the server is shutting down")
            gate.set()
            await closing
            assert (await under_way).ok
            assert receiver.connections == 1
            guard.close()

    asyncio.run(run())

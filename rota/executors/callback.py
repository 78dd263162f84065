"""Make one delivery attempt of a callback.

A URL, headers and a body go in; a `CallbackOutcome` comes out, whatever the receiver does. The
attempt resolves through the guard and goes out on a connection to an address that passed
(`pinned.py`). The status line decides: of the answer's body at most 4 KiB are read, and nothing of
it is kept. How many at once, when to try again, and recording what happened, are left to others.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import io
from contextlib import suppress
from datetime import UTC
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from rota import __version__
from rota.clock import US_PER_S, Clock, perf_s
from rota.errors import CallbackRefused, ConfigError
from rota.executors.guard import CallbackTarget, CallbackUnresolved
from rota.executors.pinned import PinnedConnector, pinned_to

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rota.executors.guard import CallbackGuard

ANSWER_BYTES_MAX = 4096
ANSWER_READ_MAX_S = 1.0
ERROR_CHARS_MAX = 300
RETRY_AFTER_MAX_S = 3600.0
_DIGITS_MAX = 9

_SECRET_PREFIX = "whsec_"  # noqa: S105 - the prefix that marks one, not a secret
_NOT_THE_CALLERS = (
    "Host",
    "Content-Length",
    "Transfer-Encoding",
    "Connection",
    "Expect",
    "Upgrade",
)


class CallbackOutcome(NamedTuple):
    """What became of one attempt.

    `refused` means that the guard said no, so that trying again is pointless; a name that did
    not resolve is an ordinary failure. `status` is 0 when there was no answer.
    """

    ok: bool
    status: int = 0
    error: str = ""
    retry_after_s: float | None = None
    gone: bool = False
    refused: bool = False
    duration_ms: int = 0


def sign(secret: str | Sequence[str], delivery_id: str, timestamp_s: int, body: bytes) -> str:
    """Sign a delivery as Standard Webhooks do, once for every secret. Raises ValueError."""
    secrets = (secret,) if isinstance(secret, str) else secret
    signed = f"{delivery_id}.{timestamp_s}.".encode() + body
    digests = (hmac.digest(_key(each), signed, hashlib.sha256) for each in secrets)
    return " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)


def check_secrets(secrets: Sequence[str]) -> None:
    """Refuse secrets that cannot sign. Raises ConfigError."""
    try:
        empty = not all(_key(secret) for secret in secrets)
    except binascii.Error as exc:
        msg = "webhooks.secret begins with whsec_ but the rest is not base64"
        raise ConfigError(msg) from exc
    if empty:
        msg = "webhooks.secret is empty"
        raise ConfigError(msg, hint="leave it out to send callbacks unsigned")


def _key(secret: str) -> bytes:
    """Give the bytes of a secret; one that begins with whsec_ is base64."""
    if not secret.startswith(_SECRET_PREFIX):
        return secret.encode()
    text = secret.removeprefix(_SECRET_PREFIX).rstrip("=")
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)


class CallbackSender:
    """Make attempts, on connections that are kept for a while and used again."""

    def __init__(
        self,
        guard: CallbackGuard,
        *,
        secrets: Sequence[str] = (),
        timeout_s: float = 10.0,
        clock: Clock,
    ) -> None:
        """Sign with every one of `secrets`: two while one replaces the other."""
        self._guard = guard
        self._secrets = tuple(secrets)
        check_secrets(self._secrets)
        self._timeout_s = timeout_s
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False

    async def send(
        self, url: str, *, delivery_id: str, headers: Mapping[str, str], body: bytes
    ) -> CallbackOutcome:
        """Make one attempt; only a cancellation is raised."""
        self._under_way += 1
        self._idle.clear()
        started_s = perf_s()
        try:
            target = self._guard.parse(url)
            outcome = await self._attempt(target, delivery_id, headers, body)
        except CallbackRefused as refusal:
            unresolved = isinstance(refusal, CallbackUnresolved)
            outcome = CallbackOutcome(ok=False, error=_safe(str(refusal)), refused=not unresolved)
        except TimeoutError:
            outcome = CallbackOutcome(ok=False, error=f"no answer within {self._timeout_s:g} s")
        except Exception as exc:  # noqa: BLE001 - whatever a receiver causes is an outcome
            outcome = CallbackOutcome(ok=False, error=_safe(f"{type(exc).__name__}: {exc}"))
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()
        return outcome._replace(duration_ms=round((perf_s() - started_s) * 1000))

    async def close(self) -> None:
        """Start no more attempts, wait for those under way (each has its time limit), hang up."""
        self._closed = True
        await self._idle.wait()
        if self._session is not None:
            await self._session.close()

    async def _attempt(
        self, target: CallbackTarget, delivery_id: str, headers: Mapping[str, str], body: bytes
    ) -> CallbackOutcome:
        """Resolve, connect, post and read, all within one time limit."""
        if self._closed:
            return CallbackOutcome(ok=False, error="the server is shutting down")
        sent = self._headers(delivery_id, headers, body)
        heard: list[CallbackOutcome] = []
        try:
            async with asyncio.timeout(self._timeout_s):
                with pinned_to(await self._guard.resolve(target)) as pin:
                    try:
                        await self._post(target, sent, body, heard)
                    except aiohttp.ClientConnectionError:
                        if heard or not pin.is_kept:
                            raise
                        # It was kept too long: the receiver hung up as it was used again.
                        pin.wants_fresh = True
                        await self._post(target, sent, body, heard)
        except (TimeoutError, aiohttp.ClientError):
            if not heard:
                raise
        return heard[0]

    async def _post(
        self,
        target: CallbackTarget,
        headers: CIMultiDict[str],
        body: bytes,
        heard: list[CallbackOutcome],
    ) -> None:
        """Send it, and put into `heard` what the head of the answer says."""
        if self._session is None:
            self._session = _session()
        async with self._session.post(
            URL(target.url, encoded=True),
            data=io.BytesIO(body),
            headers=headers,
            allow_redirects=False,
        ) as response:
            heard.append(self._judge(response))
            await _drain(response)

    def _headers(
        self, delivery_id: str, headers: Mapping[str, str], body: bytes
    ) -> CIMultiDict[str]:
        """Give the caller's headers, and ours over them."""
        timestamp_s = self._clock.now_us() // US_PER_S
        sent = CIMultiDict(headers)
        for name in _NOT_THE_CALLERS:
            sent.popall(name, None)
        sent["Content-Type"] = "application/json"
        sent["User-Agent"] = f"rota/{__version__}"
        sent["Accept-Encoding"] = "identity"
        sent["webhook-id"] = delivery_id
        sent["webhook-timestamp"] = str(timestamp_s)
        if self._secrets:
            sent["webhook-signature"] = sign(self._secrets, delivery_id, timestamp_s, body)
        return sent

    def _judge(self, response: aiohttp.ClientResponse) -> CallbackOutcome:
        """Read the outcome off the status line and the headers."""
        status = response.status
        if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            return CallbackOutcome(ok=True, status=status)
        redirected = HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST
        suffix = "; redirects are not followed" if redirected else ""
        return CallbackOutcome(
            ok=False,
            status=status,
            error=f"the receiver answered {status}{suffix}",
            retry_after_s=read_retry_after(
                response.headers.get("Retry-After", ""), self._clock.now_us()
            ),
            gone=status == HTTPStatus.GONE,
        )


def read_retry_after(text: str, now_us: int) -> float | None:
    """Read a Retry-After header, seconds or a date, as seconds from now; at most an hour."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return RETRY_AFTER_MAX_S if len(text) > _DIGITS_MAX else min(int(text), RETRY_AFTER_MAX_S)
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return min(max(moment.timestamp() - now_us / US_PER_S, 0.0), RETRY_AFTER_MAX_S)


def _session() -> aiohttp.ClientSession:
    """Open a session: no cookies, no proxies, no decompression."""
    return aiohttp.ClientSession(
        connector=PinnedConnector(),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
        trust_env=False,
        auto_decompress=False,
        read_bufsize=ANSWER_BYTES_MAX,
    )


async def _drain(response: aiohttp.ClientResponse) -> None:
    """Read a little of the answer, so that a polite receiver is not cut off while it writes."""
    left = ANSWER_BYTES_MAX
    with suppress(TimeoutError):
        async with asyncio.timeout(ANSWER_READ_MAX_S):
            while left > 0 and (chunk := await response.content.read(left)):
                left -= len(chunk)


def _safe(text: str) -> str:
    """Make a text fit for a log line: printable and short."""
    shown = "".join(char if char.isprintable() else " " for char in text[:ERROR_CHARS_MAX])
    return shown.strip() or "unknown error"

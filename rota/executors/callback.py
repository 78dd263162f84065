"""Make one delivery attempt of a callback.

A URL, headers and a body go in; a `DeliveryReport` comes out, whatever the receiver does. It is
final if the guard said no or the receiver is gone for good; a name that did not resolve is an
ordinary failure. The attempt resolves through the guard and goes out on a connection to an address
that passed (`pinned.py`). The status line decides: of the answer's body at most 4 KiB are read, and
nothing of it is kept. How many at once, when to try again, and recording what happened, are left
to others.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import io
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING

import aiohttp
from multidict import CIMultiDict
from standardwebhooks import Webhook
from standardwebhooks.webhooks import EmptyWebhookSecretError
from yarl import URL

from rota import __version__
from rota.clock import US_PER_S, Clock, perf_s
from rota.domain.delivery import DeliveryReport
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


def sign(signers: Sequence[Webhook], delivery_id: str, timestamp_s: int, body: bytes) -> str:
    """Sign a delivery as Standard Webhooks do, once for every secret."""
    moment, text = datetime.fromtimestamp(timestamp_s, UTC), body.decode()
    return " ".join(signer.sign(delivery_id, moment, text) for signer in signers)


def signers_of(secrets: Sequence[str]) -> tuple[Webhook, ...]:
    """Give what signs with each secret. Raises ConfigError."""
    try:
        return tuple(Webhook(_key(secret)) for secret in secrets)
    except binascii.Error as exc:
        msg = "webhooks.secret begins with whsec_ but the rest is not base64"
        raise ConfigError(msg) from exc
    except EmptyWebhookSecretError as exc:
        msg = "webhooks.secret is empty"
        raise ConfigError(msg, hint="leave it out to send callbacks unsigned") from exc


def _key(secret: str) -> bytes:
    """Give the bytes of a secret; one that begins with whsec_ is base64, strictly so."""
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
        namespace: str = "",
    ) -> None:
        """Sign with every one of `secrets`: two while one replaces the other.

        The ids that are sent begin with `namespace`: two may have callbacks of the same id.
        """
        self._before_id = f"{namespace}." if namespace else ""
        self._guard = guard
        self._signers = signers_of(secrets)
        self._timeout_s = timeout_s
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False

    async def send(
        self, url: str, *, delivery_id: str, headers: Mapping[str, str], body: bytes
    ) -> DeliveryReport:
        """Make one attempt; only a cancellation is raised."""
        self._under_way += 1
        self._idle.clear()
        started_s = perf_s()
        try:
            target = self._guard.parse(url)
            report = await self._attempt(target, delivery_id, headers, body)
        except CallbackRefused as refusal:
            unresolved = isinstance(refusal, CallbackUnresolved)
            report = DeliveryReport(ok=False, error=_safe(str(refusal)), final=not unresolved)
        except TimeoutError:
            report = DeliveryReport(ok=False, error=f"no answer within {self._timeout_s:g} s")
        except Exception as exc:  # noqa: BLE001 - whatever a receiver causes is a report
            report = DeliveryReport(ok=False, error=_safe(f"{type(exc).__name__}: {exc}"))
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()
        return report._replace(duration_ms=round((perf_s() - started_s) * 1000))

    async def close(self) -> None:
        """Start no more attempts, wait for those under way (each has its time limit), hang up."""
        self._closed = True
        await self._idle.wait()
        if self._session is not None:
            await self._session.close()

    async def _attempt(
        self, target: CallbackTarget, delivery_id: str, headers: Mapping[str, str], body: bytes
    ) -> DeliveryReport:
        """Resolve, connect, post and read, all within one time limit."""
        if self._closed:
            return DeliveryReport(ok=False, error="the server is shutting down")
        sent = self._headers(delivery_id, headers, body)
        heard: list[DeliveryReport] = []
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
        heard: list[DeliveryReport],
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
        delivery_id = self._before_id + delivery_id
        timestamp_s = self._clock.now_us() // US_PER_S
        sent = CIMultiDict(headers)
        for name in _NOT_THE_CALLERS:
            sent.popall(name, None)
        sent["Content-Type"] = "application/json"
        sent["User-Agent"] = f"rota/{__version__}"
        sent["Accept-Encoding"] = "identity"
        sent["webhook-id"] = delivery_id
        sent["webhook-timestamp"] = str(timestamp_s)
        if self._signers:
            sent["webhook-signature"] = sign(self._signers, delivery_id, timestamp_s, body)
        return sent

    def _judge(self, response: aiohttp.ClientResponse) -> DeliveryReport:
        status = response.status
        if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            return DeliveryReport(ok=True, status=status)
        redirected = HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST
        suffix = "; redirects are not followed" if redirected else ""
        return DeliveryReport(
            ok=False,
            status=status,
            error=f"the receiver answered {status}{suffix}",
            retry_after_s=read_retry_after(
                response.headers.get("Retry-After", ""), self._clock.now_us()
            ),
            final=status == HTTPStatus.GONE,
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

"""Executes an attempt by one HTTP request to an address from the configuration.

The body is the task, the headers carry task, agent and attempt; the answer, JSON or text, is the
result; what says that it is JSON must be. An answer of 300 or more fails the task, with status and
body in the error, and with what it says of trying again: its `Retry-After`, and `retryable` and
`code` in a body of JSON.
Cancelling the attempt closes the connection, and then tells its `cancelUrl`, if there is one; an
answer of 2xx says that nothing works on it any more. Redirects are not followed and proxies not
asked: the operator named this address and no other.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson

from rota.clock import SystemClock
from rota.config import ERROR_CHARS_MAX, RESULT_BYTES_MAX
from rota.domain.commands import Outcome
from rota.domain.values import DEPTH_MAX, is_too_deep, says_too_deep
from rota.executors.callback import read_retry_after
from rota.executors.connections import BoundedConnector

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rota.executors.port import Attempt, Tell

CODE_CHARS_MAX = 99
CANCEL_S = 5.0
"""How long the answer to a cancel may take."""
logger = logging.getLogger("rota.executors")


class HttpExecutor:
    """POSTs attempts to one URL."""

    leaves_nothing = False

    def __init__(
        self, url: str, headers: Mapping[str, str] | None = None, cancel_url: str | None = None
    ) -> None:
        self._url = url.rstrip("/")
        self._cancel_url = cancel_url
        self._headers = dict(headers or {})
        self._session: aiohttp.ClientSession | None = None

    def address(self, attempt: Attempt) -> str:
        del attempt
        return self._url

    def body(self, attempt: Attempt) -> dict[str, Any]:
        body: dict[str, Any] = {
            "taskId": attempt.task,
            "agentId": attempt.agent,
            "attempt": attempt.number,
            "action": attempt.action,
            "params": attempt.params,
        }
        if attempt.tab is not None:
            body["tabId"] = attempt.tab
        if attempt.ref is not None:
            body["ref"] = attempt.ref
        if attempt.key is not None:
            body["key"] = attempt.key
        return body

    def refusal(self, attempt: Attempt) -> Outcome | None:
        """Say why the attempt cannot be sent at all, if so."""
        del attempt
        return None

    async def run(self, attempt: Attempt, tell: Tell) -> Outcome:
        refusal = self.refusal(attempt)
        if refusal is not None:
            return refusal
        try:
            async with self._open().post(
                self.address(attempt),
                data=orjson.dumps(self.body(attempt)),
                headers=self._headers_for(attempt),
                allow_redirects=False,
            ) as response:
                if 200 <= response.status < 300:
                    return await self.read(response, tell)
                return await self._failure(response)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            text = f"executor cannot be reached: {str(error) or type(error).__name__}"
            return Outcome(ok=False, code="connection", error=text[:ERROR_CHARS_MAX])

    async def cut_off(self, attempt: Attempt) -> bool:
        """Tell the address for that, if there is one, to stop; say whether it has."""
        if self._cancel_url is None:
            return False
        body = {"taskId": attempt.task, "agentId": attempt.agent, "attempt": attempt.number}
        if attempt.run is not None:
            body["runId"] = attempt.run
        try:
            async with (
                asyncio.timeout(CANCEL_S),
                self._open().post(
                    self._cancel_url,
                    data=orjson.dumps(body),
                    headers=self._headers_for(attempt),
                    allow_redirects=False,
                ) as response,
            ):
                if 200 <= response.status < 300:
                    return True
                problem = f"status {response.status}"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            problem = str(error) or type(error).__name__
        logger.warning(
            "attempt %d of %s was not stopped: %s", attempt.number, attempt.task, problem
        )
        return False

    async def read(self, response: aiohttp.ClientResponse, tell: Tell) -> Outcome:
        del tell
        raw = await _read(response)
        if len(raw) > RESULT_BYTES_MAX:
            return too_large("executor's answer")
        kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        try:
            value = orjson.loads(raw) if raw else None
        except orjson.JSONDecodeError as error:
            return _no_json(kind, raw, error)
        if is_too_deep(raw, value):
            return too_deep("executor's answer")
        return Outcome(ok=True, result=value)

    def complaint(self, status: int, text: str, reason: str) -> str:
        """Say what a bad answer was; `text` is its body's, `reason` its status line's."""
        del reason
        return f"executor returned {status}: {text}" if text else f"executor returned {status}"

    async def _failure(self, response: aiohttp.ClientResponse) -> Outcome:
        raw = (await _read(response))[:RESULT_BYTES_MAX]
        status = response.status
        reason = (response.reason or "").encode(errors="replace").decode()
        code, error = f"status_{status}", self.complaint(status, _text(raw), reason)
        header = response.headers.get("Retry-After", "")
        return failure(code, error, raw, _value(raw), status=status)._replace(
            retry_after_s=read_retry_after(header, SystemClock().now_us())
        )

    def _headers_for(self, attempt: Attempt) -> dict[str, str]:
        return {
            "Content-Type": "application/json",
            "X-Rota-Task-Id": attempt.task,
            "X-Rota-Agent-Id": attempt.agent.encode("ascii", "backslashreplace").decode(),
            "X-Rota-Attempt": str(attempt.number),
            "X-Rota-Token": str(attempt.token),
            **self._headers,
        }

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=BoundedConnector(limit=0),
                timeout=aiohttp.ClientTimeout(total=None, connect=10),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


def failure(code: str, error: str, raw: bytes, value: Any, **details: Any) -> Outcome:
    """Fail, with what the other side says of it: its own code, and whether to try again."""
    is_kept = len(raw) <= ERROR_CHARS_MAX and not is_too_deep(raw, value)
    details["body"] = value if is_kept else _text(raw)
    said = value if isinstance(value, dict) else {}
    for place in (said, said.get("error")):
        named = place.get("code") if isinstance(place, dict) else None
        if isinstance(named, str) and 0 < len(named) <= CODE_CHARS_MAX:
            details["code"] = named
            break
    retryable = said.get("retryable")
    return Outcome(
        ok=False,
        code=code,
        error=error[:ERROR_CHARS_MAX],
        details=details,
        retryable=retryable if isinstance(retryable, bool) else None,
    )


def too_large(what: str) -> Outcome:
    error = f"{what} is larger than {RESULT_BYTES_MAX} bytes"
    return Outcome(ok=False, code="result_too_large", error=error)


def too_deep(what: str) -> Outcome:
    error = f"{what} is nested deeper than {DEPTH_MAX} levels"
    return Outcome(ok=False, code="result_too_deep", error=error)


def _no_json(kind: str, raw: bytes, problem: orjson.JSONDecodeError) -> Outcome:
    """Take for text what is not JSON, unless it says that it is or is only too deep to be read."""
    if says_too_deep(problem):
        return too_deep("executor's answer")
    if kind == "application/json" or kind.endswith("+json"):
        error = f"executor's answer says it is JSON and is not: {problem.msg}"
        return Outcome(ok=False, code="bad_result", error=error[:ERROR_CHARS_MAX])
    return Outcome(ok=True, result=raw.decode(errors="replace"))


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """Read the answer; when that is longer than a result may be, only a little more than that."""
    raw = b""
    async for chunk in response.content.iter_chunked(1 << 16):
        raw += chunk
        if len(raw) > RESULT_BYTES_MAX:
            break
    return raw


def _value(raw: bytes) -> Any:
    """Read JSON; what is none is text."""
    try:
        return orjson.loads(raw) if raw else None
    except ValueError:
        return raw.decode(errors="replace")


def _text(raw: bytes) -> str:
    """Give the beginning of a body, for people to read."""
    return raw.decode(errors="replace").strip()[:ERROR_CHARS_MAX]

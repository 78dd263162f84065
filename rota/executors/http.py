"""Executes an attempt by one HTTP request to an address from the configuration.

The body is the task, the headers carry task, agent and attempt; the answer, JSON or text, is the
result. An answer of 300 or more fails the task, with status and body in the error. Cancelling the
attempt closes the connection. Redirects are not followed and proxies not asked: the operator
named this address and no other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aiohttp
import orjson

from rota.config import ERROR_CHARS_MAX, RESULT_BYTES_MAX
from rota.domain.commands import Outcome
from rota.domain.values import DEPTH_MAX, is_too_deep

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rota.executors.port import Attempt


class HttpExecutor:
    """POSTs attempts to one URL."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        """Send to `url`, with these extra headers."""
        self._url = url.rstrip("/")
        self._headers = dict(headers or {})
        self._session: aiohttp.ClientSession | None = None

    def address(self, attempt: Attempt) -> str:
        """Give the URL for an attempt."""
        del attempt
        return self._url

    def body(self, attempt: Attempt) -> dict[str, Any]:
        """Give the body for an attempt."""
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
        return body

    def refusal(self, attempt: Attempt) -> Outcome | None:
        """Say why the attempt cannot be sent at all, if so."""
        del attempt
        return None

    async def run(self, attempt: Attempt) -> Outcome:
        """Send the attempt and read its answer."""
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
                raw = await _read(response)
                return _outcome(response.status, raw)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            text = f"executor cannot be reached: {str(error) or type(error).__name__}"
            return Outcome(ok=False, code="connection", error=text[:ERROR_CHARS_MAX])

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
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(total=None, connect=10),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            )
        return self._session

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()


async def _read(response: aiohttp.ClientResponse) -> bytes | None:
    """Read the answer; None if it is larger than a result may be."""
    raw = b""
    async for chunk in response.content.iter_chunked(1 << 16):
        raw += chunk
        if len(raw) > RESULT_BYTES_MAX:
            return None
    return raw


def _outcome(status: int, raw: bytes | None) -> Outcome:
    if raw is None:
        error = f"executor's answer is larger than {RESULT_BYTES_MAX} bytes"
        return Outcome(ok=False, code="result_too_large", error=error)
    try:
        value = orjson.loads(raw) if raw else None
    except ValueError:
        value = raw.decode(errors="replace")
    if is_too_deep(raw, value):
        error = f"executor's answer is nested deeper than {DEPTH_MAX} levels"
        return Outcome(ok=False, code="result_too_deep", error=error)
    if status < 300:
        return Outcome(ok=True, result=value)
    text = raw.decode(errors="replace").strip()[:ERROR_CHARS_MAX]
    return Outcome(
        ok=False,
        code=f"status_{status}",
        error=f"executor returned {status}: {text}" if text else f"executor returned {status}",
        details={"status": status, "body": value if len(raw) <= ERROR_CHARS_MAX else text},
    )

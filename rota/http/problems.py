"""Errors as HTTP answers.

Natively `{code, error, retryable, details, requestId}`; a dialect may render its own. Nothing of
the inside (paths, tracebacks, other people's input) gets into them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from rota.domain.task import TaskState
from rota.domain.values import DEPTH_MAX, is_too_deep
from rota.errors import Conflict, InvalidRequest, RotaError
from rota.wording import UNKNOWN, first_wrong

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import ValidationError

RETRY_AFTER_S = {429: "1", 503: "2"}
_STATE_WORD = re.compile(rf"(?<= )(?:{'|'.join(TaskState)})(?= task\b|$)")
"""A state in an error's sentence: `only a failed task`, or the last word."""


class HttpProblem(RotaError):  # noqa: N818 - a problem is what HTTP calls it
    """A problem of HTTP itself: method, media type, path, authority."""

    def __init__(self, status: int, code: str, message: str, **details: Any) -> None:
        super().__init__(message, code=code, details=details)
        self.status = status
        self.retryable = status in RETRY_AFTER_S


def native_body(error: RotaError, request_id: str) -> dict[str, Any]:
    body: dict[str, Any] = {
        "code": error.code,
        "error": str(error),
        "retryable": error.retryable,
    }
    if error.details:
        body["details"] = error.details
    body["requestId"] = request_id
    return body


def reworded(error: RotaError, words: Mapping[TaskState, str]) -> RotaError:
    """Say what an error says of a task's state in a dialect's words.

    A workflow has states of its own, which every dialect calls alike.
    """
    state = error.details.get("state")
    if not isinstance(error, Conflict) or state is None or "taskId" not in error.details:
        return error
    message = _STATE_WORD.sub(lambda found: words[TaskState(found[0])], error.message)
    details = {**error.details, "state": words[TaskState(state)]}
    return Conflict(message, code=error.code, details=details, hint=error.hint)


def response(error: RotaError, body: dict[str, Any]) -> web.Response:
    answer = web.Response(body=_written(body), status=error.status, content_type="application/json")
    retry_after = error.details.get("retryAfterS", RETRY_AFTER_S.get(error.status))
    if retry_after is not None:
        answer.headers["Retry-After"] = str(retry_after)
    if error.status == 405:
        answer.headers["Allow"] = ", ".join(error.details.get("allowed", ()))
    if error.status == 401:
        answer.headers["WWW-Authenticate"] = "Bearer"
    return answer


def _written(body: dict[str, Any]) -> bytes:
    """Write an error's body; bytes of a request that are no text, and are quoted, become `?`."""
    try:
        return orjson.dumps(body)
    except TypeError:
        return orjson.dumps(_as_text(body))


def _as_text(value: Any) -> Any:
    """Put `?` for the surrogates by which Python keeps bytes that are not UTF-8."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_as_text(name): _as_text(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_as_text(each) for each in value]
    return value


def invalid(error: ValidationError) -> InvalidRequest:
    """Turn the first thing wrong with a body into a sentence that names the field."""
    kind, where, problem = first_wrong(error)
    if kind == "missing":
        message = f"missing required field '{where}'"
    elif kind in ("extra_forbidden", UNKNOWN):
        message = f"unknown field '{where}'{problem.removeprefix('is not known')}"
    elif not where and kind == "value_error":
        message = problem
    elif not where:
        message = "the body must be a JSON object"
    else:
        message = f"field '{where}': {problem}"
    return InvalidRequest(message, details={"field": where} if where else {})


def forget_frames(error: BaseException) -> None:
    """Let go of what an error, and those it came from, were raised through.

    Frames hold bodies, and whatever holds the error (a future, a stream) is held by a frame: only a
    collection of cycles would free them, and those are rare here.
    """
    known: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is not None and id(each) not in known:
            known.add(id(each))
            each.__traceback__ = None
            left += (each.__cause__, each.__context__)


def check_depth(raw: bytes, value: Any) -> None:
    """Refuse nesting so deep that it could not be written down again."""
    if is_too_deep(raw, value):
        msg = f"the body is nested deeper than {DEPTH_MAX} levels"
        raise InvalidRequest(msg, code="too_deep")

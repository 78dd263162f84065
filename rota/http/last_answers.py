"""What the listener itself answers, before or instead of a handler: always the last answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from rota import ids
from rota.http import problems
from rota.http.problems import HttpProblem

if TYPE_CHECKING:
    from aiohttp import web


def not_http(status: int = 400) -> HttpProblem:
    return HttpProblem(status, "bad_http", "this is not a valid HTTP request")


def in_crumbs() -> HttpProblem:
    """Say that a body is more framing than body."""
    return HttpProblem(400, "too_many_chunks", "the body comes in too many too small chunks")


def cut_short() -> HttpProblem:
    return HttpProblem(400, "body_cut_short", "the connection was closed before the body had come")


def refusal(error: HttpProblem) -> web.Response:
    """Answer with an error and close the connection."""
    request_id = ids.request_id()
    answer = problems.response(error, problems.native_body(error, request_id))
    answer.headers["X-Request-ID"] = request_id
    answer.force_close()
    return answer


def late() -> bytes:
    """Write the answer to headers that did not come; there is no request to answer."""
    request_id = ids.request_id()
    error = HttpProblem(408, "header_timeout", "the headers came too slowly")
    body = orjson.dumps(problems.native_body(error, request_id))
    head = (
        "HTTP/1.1 408 Request Timeout\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nX-Request-ID: {request_id}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body

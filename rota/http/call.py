"""One request on its way through a handler: reading it, answering it.

Bodies are bounded in size, depth and time; what is wrong with one becomes a sentence that names the
field.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import orjson
from aiohttp import web
from pydantic import BaseModel, ValidationError

from rota.config import BODY_VALUES_MAX
from rota.domain.packed import written
from rota.domain.values import has_more_values
from rota.errors import CallbackRefused, InvalidRequest, PayloadTooLarge
from rota.http import problems, views
from rota.http.access import unwelcome
from rota.http.dialects import automechanica, browsermanager, browseros, pinchtab
from rota.http.presence import connection_of
from rota.http.problems import HttpProblem
from rota.http.scoped_bridge import ScopedBridge
from rota.sight.room import room_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aiohttp.web_request import BaseRequest

    from rota.domain.shares import Shares
    from rota.domain.task import Task
    from rota.http.access import Caller
    from rota.http.app import App
    from rota.http.namespaces import Namespace

M = TypeVar("M", bound=BaseModel)

VIEWS: dict[str, Callable[[Task], dict[str, Any]]] = {
    "native": views.native,
    "pinchtab": pinchtab.view,
    "browseros": browseros.view,
    "browsermanager": browsermanager.view,
    "automechanica": automechanica.view,
}
_INT = re.compile(r"-?\d{1,19}", re.ASCII)


class Call:
    """One request on its way through a handler."""

    __slots__ = (
        "app",
        "bridge",
        "by",
        "caller",
        "dialect",
        "is_named",
        "namespace",
        "params",
        "path",
        "request",
        "request_id",
        "share",
        "sight",
    )

    def __init__(
        self,
        app: App,
        request: BaseRequest,
        request_id: str,
        path: str,
        params: dict[str, str],
        caller: Caller,
        dialect: str,
        namespace: Namespace | None,
    ) -> None:
        """Bundle what a handler needs; `namespace` is the one that was named, if one was."""
        self.app = app
        self.is_named = namespace is not None
        self.namespace = namespace or app.namespaces.default
        self.caller = caller
        self.by = by = caller.by
        agent = request.query.get("agentId", "") if "agentId=" in request.query_string else ""
        self.share = caller.share_for(agent)
        whole = self.namespace.bridge
        self.bridge = whole if caller.agents is None else ScopedBridge(whole, caller)
        self.sight = self.bridge.sight_for(by)
        self.request = request
        self.request_id = request_id
        self.params = params
        self.path = path
        self.dialect = dialect

    def now(self) -> int:
        """Give the present moment, by the clock as it is set now."""
        return self.sight.now()

    # -- who asks

    def may_work_for(self, agents: Sequence[str] | None = None) -> tuple[str, ...] | None:
        """Give the agents that a worker gets tasks of; None is all of them. Raises HttpProblem.

        Those that it names, if its token is for all of them; else those that its token is for.
        """
        if agents:
            self.caller.check_agents(agents)
            return tuple(agents)
        return None if self.caller.agents is None else tuple(sorted(self.caller.agents))

    @property
    def is_welcome(self) -> bool:
        """Whether the caller's token is good still: whoever waits has to look."""
        return self.namespace.guests.is_welcome(self.caller)

    def check_welcome(self) -> None:
        """Refuse a caller whose token was revoked meanwhile. Raises HttpProblem."""
        if not self.is_welcome:
            raise unwelcome()

    @contextmanager
    def holding(self, bound: Shares, code: str, problem: str) -> Iterator[None]:
        """Hold one of what callers share while in this block. Raises HttpProblem."""
        if not bound.take(self.share):
            raise HttpProblem(503, code, problem)
        try:
            yield
        finally:
            bound.give_back(self.share)

    @contextmanager
    def staying(self, share: str, leave: Callable[[], None]) -> Iterator[None]:
        """Have a function called, while in this block, when the request may wait no longer.

        Its caller is no longer welcome then, or its place is needed. It takes no room for its
        answer meanwhile. Raises QueueFull.
        """
        room = room_of.get()
        if room is not None:
            room.give_back()
        waiting = connection_of(self.request).waiting(share, leave)
        with waiting, self.namespace.guests.staying(self.caller, leave):
            yield

    @property
    def must_end(self) -> bool:
        """Whether what waits has to be answered now: the server stops, or its place is needed."""
        return self.app.closing or connection_of(self.request).is_excess

    # -- in

    async def parsed(self) -> Any:
        """Read the body as JSON. Raises HttpProblem, PayloadTooLarge or InvalidRequest."""
        raw = await self._read()
        self.check_welcome()  # that may have taken a while
        kind = self.request.headers.get("Content-Type", "application/json")
        if kind.partition(";")[0].strip().lower() != "application/json":
            msg = "send the body as Content-Type: application/json"
            raise HttpProblem(415, "unsupported_media_type", msg)
        if has_more_values(raw, BODY_VALUES_MAX):
            msg = f"the body has more than {BODY_VALUES_MAX} values"
            raise PayloadTooLarge(msg, code="too_many_values", details={"max": BODY_VALUES_MAX})
        try:
            value = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            msg = f"the body is not valid JSON: {error.msg} at line {error.lineno}"
            raise InvalidRequest(msg, code="invalid_json") from None
        problems.check_depth(raw, value)
        return value

    def validate(self, model: type[M], value: Any) -> M:
        """Make a model of a parsed body. Raises InvalidRequest naming the field."""
        try:
            return model.model_validate(value, context=self.app.reserved)
        except ValidationError as error:
            raise problems.invalid(error) from None

    async def body(self, model: type[M], *, optional: bool = False) -> M:
        """Read and validate the body; an optional one may be empty."""
        if optional and not self.request.can_read_body:
            return model()
        return self.validate(model, await self.parsed())

    async def _read(self) -> bytes:
        request, limit = self.request, self.app.settings.server.body_bytes_max
        if (request.content_length or 0) > limit:
            raise PayloadTooLarge(f"the body is larger than {limit} bytes")
        if request.headers.get("Content-Encoding", "identity") != "identity":
            msg = "send the body without Content-Encoding"
            raise HttpProblem(415, "unsupported_encoding", msg)
        try:
            within_s = None
            if not request.content.is_eof():
                await self._expected()
                within_s = self.app.settings.server.body_timeout_s
            return await self.app.body_budget.read(request.content, limit, self.share, within_s)
        except TimeoutError:
            raise HttpProblem(408, "body_timeout", "the body came too slowly") from None
        except RuntimeError:  # as aiohttp says it, if it was gone before the body was read
            if request.transport is not None:
                raise
            raise ConnectionError("the client has left") from None

    async def _expected(self) -> None:
        """Tell a client that asks first to go on."""
        expect = self.request.headers.get("Expect")
        if expect is None:
            return
        if expect.lower() != "100-continue":
            raise HttpProblem(417, "expectation_failed", "only 100-continue can be expected")
        await self.request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self.request.writer.output_size = 0

    async def check_callback(self, url: str | None, field: str = "callbackUrl") -> None:
        """Refuse a callback URL that may not be called, by its field. Raises CallbackRefused."""
        if not url:
            return
        try:
            await self.bridge.guard.check_at_submission(url)
        except CallbackRefused as error:
            error.details["field"] = field
            raise

    def query(self, name: str) -> str | None:
        value: str | None = self.request.query.get(name)
        return value or None

    def query_int(self, name: str, *, default: int, low: int, high: int) -> int:
        """Give a query parameter that must be a whole number in a range."""
        text = self.query(name)
        if text is None:
            return default
        if not _INT.fullmatch(text) or not low <= int(text) <= high:
            msg = f"query parameter '{name}': must be a whole number from {low} to {high}"
            raise InvalidRequest(msg, details={"field": name})
        return int(text)

    def view(
        self, task: Task, default: Callable[[Task], dict[str, Any]], *, is_past: bool = False
    ) -> dict[str, Any]:
        """Show a task in the view that was asked for; natively with the limit that holds it."""
        name = self.query("view") if self.request.query_string else None
        if name is not None and name not in VIEWS:
            msg = f"unknown view '{name[:50]}'; use {', '.join(VIEWS)}"
            raise InvalidRequest(msg, details={"field": "view"})
        view = VIEWS[name] if name is not None else default
        shown = view(task)
        held = self.sight.why_held(task) if view is views.native and not is_past else None
        if held is not None:
            shown["waitReason"] = held
        return shown

    # -- out

    def json(self, value: Any, status: int = 200) -> web.Response:
        return self.raw(written(value), status)

    def raw(
        self, body: bytes, status: int = 200, content_type: str = "application/json"
    ) -> web.Response:
        return web.Response(body=body, status=status, headers={"Content-Type": content_type})

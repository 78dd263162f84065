"""The server as a whole: agents, types, pauses, limits, figures, tokens, namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from rota.client.faces import asks, iterates
from rota.client.fields import Limits
from rota.client.pages import all_rows
from rota.client.paths import path_of, path_of_pause, said
from rota.client.steps import Call, Json, Rows
from rota.client.words import in_ms, wire
from rota.client.work_models import RevokedToken, Token, TokenPage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rota.client.fields import AgentState, Role


class ServerCalls:
    """/v1/agents, /v1/types, /v1/scheduler, /v1/stats, /v1/config, /v1/tokens, /health."""

    @asks(dict[str, Any])
    def pause(
        self, *, agent: str | None = None, action: str | None = None, reason: str = ""
    ) -> Call:
        """Dispatch nothing more of an agent, of a type, or with neither at all."""
        path = f"{path_of_pause(agent, action)}/pause"
        return Call("POST", path, body={"reason": reason}, is_safe=True)

    @asks(dict[str, Any])
    def resume(self, *, agent: str | None = None, action: str | None = None) -> Call:
        """Dispatch again what `pause` held back."""
        return Call("POST", f"{path_of_pause(agent, action)}/resume", is_safe=True)

    @asks(dict[str, Any])
    def scheduler(self) -> Call:
        """Say what is paused."""
        return _get("/v1/scheduler")

    @asks(dict[str, Any])
    def agents(
        self,
        *,
        state: AgentState | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Call:
        """Give a page of agents, by name, with what each has waiting and in flight.

        `nextCursor` leads to the next page.
        """
        return _get("/v1/agents", state=state, limit=limit, cursor=cursor)

    @iterates(dict[str, Any])
    def iter_agents(self, *, state: AgentState | None = None) -> Rows[Json]:
        """Give all agents, by name, asked for a page at a time."""
        return all_rows("agents", "/v1/agents", {"state": state})

    @asks(dict[str, Any])
    def types(self) -> Call:
        """Give the types of tasks, with their settings and what each has in flight."""
        return _get("/v1/types")

    @asks(dict[str, Any])
    def stats(self) -> Call:
        """Give the counters."""
        return _get("/v1/stats")

    @asks(dict[str, Any])
    def config(self) -> Call:
        """Give the settings in force, without secrets."""
        return _get("/v1/config")

    @asks(dict[str, Any])
    def change_limits(self, /, **limits: Unpack[Limits]) -> Call:
        """Put other limits in force, such as max_inflight=40, until a restart or a reload."""
        body = {"scheduler": wire(limits, Limits)}
        return Call("POST", "/v1/config/reload", body=body, is_safe=True)

    @asks(dict[str, Any])
    def namespaces(self) -> Call:
        """Give the server's namespaces, and their states."""
        return _get("/v1/namespaces")

    @asks(dict[str, Any])
    def health(self) -> Call:
        """Give what the server says of its health."""
        return _get("/health")

    @asks(dict[str, Any])
    def ask(
        self,
        method: str,
        path: str,
        *,
        query: Json | None = None,
        body: Json | None = None,
        wait_s: float = 0.0,
    ) -> Call:
        """Ask for something that has no method here."""
        return Call(method, path, query, body, wait_s, is_safe=method == "GET")

    # -- who may do what ---------------------------------------------------------------------

    @asks(Token)
    def create_token(
        self,
        name: str,
        role: Role,
        *,
        agents: Iterable[str] = (),
        expires_s: float | None = None,
    ) -> Call:
        """Make a token; its secret is shown this once."""
        body = said({"name": name, "role": role})
        if named := list(agents):
            body["agents"] = named
        if expires_s is not None:
            body["expiresInMs"] = in_ms(expires_s)
        return Call("POST", "/v1/tokens", body=body)

    @asks(TokenPage)
    def tokens(self, *, limit: int | None = None, cursor: str | None = None) -> Call:
        """Give a page of tokens, by name, without their secrets."""
        return _get("/v1/tokens", limit=limit, cursor=cursor)

    @asks(RevokedToken)
    def revoke_token(self, name: str) -> Call:
        """Let a token open nothing any more, at once. Raises NotFound."""
        return Call("DELETE", path_of("tokens", name))


def _get(path: str, **query: object) -> Call:
    return Call("GET", path, query, is_safe=True)

"""Tokens for tests over HTTP: an administrator's of the configuration, and others made with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.http_server import Client

if TYPE_CHECKING:
    from support.http_server import Answer, Rota, Servers

OPS = "ops-token-" + "o" * 20


class Guarded:
    """A server that wants tokens; it is asked by `ops` unless another is named."""

    def __init__(self, serve: Servers, config: dict[str, Any] | None = None) -> None:
        config = dict(config or {})
        config["server"] = {**config.get("server", {}), "tokens": {"ops": OPS}}
        self.rota: Rota = serve(config)
        self.rota.token = OPS
        self.tokens: dict[str, str] = {}
        self.principals: dict[str, str] = {}
        """What is `by` them."""

    def make(self, name: str, role: str, *agents: str, **fields: Any) -> str:
        """Have a token made; give it."""
        body = {"name": name, "role": role, "agents": list(agents), **fields}
        answer = self.rota.post("/v1/tokens", body)
        assert answer.status == 201, answer
        self.tokens[name] = answer.json["token"]
        self.principals[name] = answer.json["principal"]
        return self.tokens[name]

    def revoke(self, name: str) -> None:
        answer = self.rota.request("DELETE", f"/v1/tokens/{name}")
        assert answer.json == {"name": name, "revoked": True}, answer

    def client(self, name: str) -> Client:
        """Give a client that asks under somebody's name."""
        client = Client()
        client.port, client.token = self.rota.port, self.tokens[name]
        return client

    def ask(self, name: str, method: str, path: str, body: Any = None) -> Answer:
        """Ask under somebody's name."""
        return self.rota.request(method, path, body, bearer(self.tokens[name]))


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}

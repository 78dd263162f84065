"""A real process, killed: tokens that were made are good, and what was revoked stays revoked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.server_process import ServerProcess

from rota.client.sync_client import JsonClient
from rota.errors import NotFound, RequestError

if TYPE_CHECKING:
    from pathlib import Path

OPS = "ops-token-" + "o" * 20


def status_of(server: ServerProcess, token: str) -> int:
    try:
        JsonClient(server.url, token=token).tasks()
    except RequestError as error:
        return error.status
    return 200


def test_tokens_are_what_they_were_when_the_server_is_killed(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data", {"server": {"tokens": {"ops": OPS}}})
    kept: dict[str, str] = {}
    gone: dict[str, str] = {}
    with server:
        for round_ in range(4):
            ops = JsonClient(server.url, token=OPS)
            for n in range(5):
                name = f"agent-{round_}-{n}"
                kept[name] = ops.create_token(name, "submit", agents=[name])["token"]
            for name in list(kept)[:2]:
                ops.revoke_token(name)
                gone[name] = kept.pop(name)
            server.kill()
            server.start()
            assert {status_of(server, token) for token in kept.values()} == {200}
            assert {status_of(server, token) for token in gone.values()} == {401}
        ops = JsonClient(server.url, token=OPS)
        assert {row["name"] for row in ops.tokens()["tokens"]} == set(kept)
        name, token = kept.popitem()
        mine = JsonClient(server.url, token=token)
        task = mine.submit("waits", name)["taskId"]
        other = ops.submit("waits", "other")["taskId"]
        assert [row["taskId"] for row in mine.tasks()["tasks"]] == [task]
        with pytest.raises(NotFound):
            mine.get(other)
        with pytest.raises(RequestError) as caught:
            mine.submit("echo", "other")
        assert (caught.value.status, caught.value.code) == (403, "forbidden")
        secrets = [*kept.values(), *gone.values(), token]
        stored = b"".join(p.read_bytes() for p in server.data_dir.rglob("*") if p.is_file())
        assert not [secret for secret in secrets if secret.encode() in stored]
        assert not [secret for secret in secrets if secret in server.output()]

"""Tokens that are made at run time: shown once, good at once, and good for nothing once revoked."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from support.http_server import Rota, until
from support.tokens import OPS, Guarded, bearer

from rota.http.v1 import tokens

if TYPE_CHECKING:
    from support.http_server import Answer, Servers

WORK = "/v1/tasks"


@pytest.fixture
def guarded(serve: Servers) -> Guarded:
    return Guarded(serve, {"types": {"crawl": {}}})


def unknown(answer: Answer) -> bool:
    """Whether an answer is that for a token that nobody ever made."""
    said = (answer.status, answer.json["code"], answer.json["error"])
    return said == (401, "unauthorized", "this token is not known here")


# -- making one ----------------------------------------------------------------------------------


def test_a_token_is_shown_once_and_kept_as_a_hash(guarded: Guarded) -> None:
    body = {"name": "ann", "role": "submit", "agents": ["b", "a"], "expiresInMs": 3_600_000}
    answer = guarded.rota.post("/v1/tokens", body)
    made = answer.json
    assert answer.status == 201
    assert made["token"].startswith("rota_")
    assert len(made["token"]) >= 48
    assert (made["name"], made["role"], made["agents"]) == ("ann", "submit", ["a", "b"])
    (row,) = guarded.rota.get("/v1/tokens").json["tokens"]
    assert row["createdBy"] == "ops"
    assert row["expiresAt"] == made["expiresAt"]
    assert "token" not in row
    everywhere = str(guarded.rota.events()) + str(row) + str(guarded.rota.log.lines)
    assert made["token"] not in everywhere
    assert made["token"][5:] not in everywhere
    (event,) = [e for e in guarded.rota.events() if e["kind"] == "token_created"]
    assert event["by"] == "ops"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"role": "admin"}, "name"),
        ({"name": "a b", "role": "admin"}, "name"),
        ({"name": "a/b", "role": "admin"}, "name"),
        ({"name": "x" * 101, "role": "admin"}, "name"),
        ({"name": "a", "role": "root"}, "role"),
        ({"name": "a", "role": "submit"}, "agents"),
        ({"name": "a", "role": "work", "agents": []}, "agents"),
        ({"name": "a", "role": "admin", "agents": ["x"]}, "agents"),
        ({"name": "a", "role": "work", "agents": [""]}, "agents.0"),
        ({"name": "a", "role": "work", "agents": ["x"] * 101}, "agents"),
        ({"name": "a", "role": "admin", "expiresInMs": 0}, "expiresInMs"),
        ({"name": "a", "role": "admin", "expiresInMs": 1 << 60}, "expiresInMs"),
        ({"name": "a", "role": "admin", "color": 1}, "color"),
    ],
)
def test_what_cannot_be_a_token_is_refused_by_field(
    guarded: Guarded, body: dict[str, Any], field: str
) -> None:
    answer = guarded.rota.post("/v1/tokens", body)
    assert (answer.status, answer.json["details"]["field"]) == (400, field), answer


@pytest.mark.parametrize("name", ["ops", "local", "rota", "ann"])
def test_a_name_stands_for_one_caller(guarded: Guarded, name: str) -> None:
    guarded.make("ann", "audit")
    answer = guarded.rota.post("/v1/tokens", {"name": name, "role": "audit"})
    assert (answer.status, answer.code) == (409, "name_taken")


def test_a_revoked_name_is_free_again_and_the_old_secret_is_not(guarded: Guarded) -> None:
    old = guarded.make("ann", "audit")
    guarded.revoke("ann")
    guarded.make("ann", "audit")
    assert guarded.ask("ann", "GET", WORK).status == 200
    assert unknown(guarded.rota.request("GET", WORK, headers=bearer(old)))


def test_what_is_not_there_cannot_be_revoked(guarded: Guarded) -> None:
    answer = guarded.rota.request("DELETE", "/v1/tokens/nobody")
    assert (answer.status, answer.code) == (404, "not_found")
    assert guarded.rota.request("DELETE", "/v1/tokens/ops").status == 404


def test_tokens_are_listed_in_pages(guarded: Guarded) -> None:
    for name in ("c", "a", "b"):
        guarded.make(name, "audit")
    page = guarded.rota.get("/v1/tokens?limit=2").json
    assert [row["name"] for row in page["tokens"]] == ["a", "b"]
    rest = guarded.rota.get(f"/v1/tokens?limit=2&cursor={page['nextCursor']}").json
    assert [row["name"] for row in rest["tokens"]] == ["c"]
    assert "nextCursor" not in rest


def test_a_page_of_tokens_has_only_so_many_bytes(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "PAGE_BYTES_MAX", 400)
    for name in ("a", "b", "c"):
        guarded.make(name, "submit", "x" * 200)
    found: list[str] = []
    pages, cursor = 0, ""
    while cursor is not None:
        page = guarded.rota.get(f"/v1/tokens?cursor={cursor}").json
        found += [row["name"] for row in page["tokens"]]
        pages, cursor = pages + 1, page.get("nextCursor")
    assert (found, pages) == (["a", "b", "c"], 2)


def test_tokens_survive_a_restart_and_so_does_a_revocation(guarded: Guarded) -> None:
    kept, gone = guarded.make("kept", "audit"), guarded.make("gone", "audit")
    guarded.revoke("gone")
    guarded.rota.restart()
    assert guarded.rota.request("GET", WORK, headers=bearer(kept)).status == 200
    assert unknown(guarded.rota.request("GET", WORK, headers=bearer(gone)))


def test_a_name_that_the_configuration_takes_later_is_told(serve: Servers) -> None:
    guarded = Guarded(serve)
    secret = guarded.make("late", "audit")
    guarded.rota.config["server"]["tokens"]["late"] = "late-token-" + "l" * 20
    guarded.rota.restart()
    assert any("token late is in the configuration" in line for line in guarded.rota.log.lines)
    assert guarded.rota.request("GET", WORK, headers=bearer(secret)).status == 200


# -- the first one -------------------------------------------------------------------------------


def test_the_first_token_is_an_administrators_and_closes_the_door(rota: Rota) -> None:
    refused = rota.post("/v1/tokens", {"name": "ann", "role": "submit", "agents": ["ann"]})
    assert (refused.status, refused.code) == (409, "admin_first")
    assert rota.get(WORK).status == 200
    made = rota.post("/v1/tokens", {"name": "ops", "role": "admin"}).json
    assert rota.get(WORK).status == 401
    rota.token = made["token"]
    assert [event["by"] for event in rota.events()] == ["rota", "local"]
    assert rota.request("DELETE", "/v1/tokens/ops").status == 200
    assert rota.get(WORK).status == 401  # that nobody has one any more opens no door
    rota.restart()
    rota.token = None
    assert rota.get(WORK).status == 401
    assert rota.get("/health").status == 200


def test_callers_without_tokens_are_local_and_rota_is_by_itself(rota: Rota) -> None:
    task = rota.submit_native(action="echo")
    rota.ended(task)
    found = [(event["kind"], event["by"]) for event in rota.events(task=task)]
    assert found == [
        ("task_submitted", "local"),
        ("task_assigned", "rota"),
        ("task_started", "rota"),
        ("task_succeeded", "rota"),
    ]


# -- what is not accepted ------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["token=", "access_token=", "Token=", "a=1&access%5Ftoken="])
def test_a_token_in_a_url_is_not_accepted_and_not_logged(guarded: Guarded, query: str) -> None:
    secret = guarded.make("ann", "audit")
    for headers in ({}, bearer(secret)):
        path = f"{WORK}?{query}{secret}"
        guarded.rota.token = None
        answer = guarded.rota.request("GET", path, headers=headers)
        guarded.rota.token = OPS
        assert (answer.status, answer.code) == (401, "unauthorized")
        assert "URL" in answer.json["error"]
        assert secret not in answer.body.decode()
    assert secret not in str(guarded.rota.log.lines)


def test_all_tokens_that_are_not_good_are_answered_alike(serve: Servers) -> None:
    guarded = Guarded(serve)
    gone = guarded.make("gone", "audit")
    guarded.revoke("gone")
    for secret in (gone, "rota_" + "x" * 43, "", "x" * 5000):
        assert unknown(guarded.rota.request("GET", WORK, headers=bearer(secret)))


def test_an_expired_token_is_refused_by_the_clock(guarded: Guarded) -> None:
    secret = guarded.make("brief", "audit", expiresInMs=1000)
    assert guarded.ask("brief", "GET", WORK).status == 200
    ask = lambda: guarded.rota.request("GET", WORK, headers=bearer(secret))  # noqa: E731
    until(lambda: ask().status == 401, what="it has expired")
    assert unknown(ask())
    (row,) = guarded.rota.get("/v1/tokens").json["tokens"]
    assert row["expired"] is True
    guarded.make("brief", "audit")
    assert guarded.ask("brief", "GET", WORK).status == 200


# -- while something is under way ----------------------------------------------------------------


@pytest.mark.parametrize("role", ["submit", "audit", "admin"])
def test_a_stream_ends_with_its_token(guarded: Guarded, role: str) -> None:
    secret = guarded.make("ann", role, *(["ann"] if role == "submit" else []))
    with guarded.rota.stream("/v1/events/stream?after=0", **bearer(secret)) as stream:
        guarded.rota.submit_native("ann", "waits")
        frames = iter(stream)
        while next(frames).event["kind"] != "task_submitted":
            pass
        guarded.revoke("ann")
        guarded.rota.submit_native("ann", "waits")
        left = [frame.event["kind"] for frame in frames]
        assert "task_submitted" not in left


def test_a_stream_ends_when_its_token_expires(guarded: Guarded) -> None:
    secret = guarded.make("ann", "audit", expiresInMs=1000)
    with guarded.rota.stream("/v1/events/stream", **bearer(secret)) as stream:
        assert list(stream) == []


def test_whoever_waits_for_a_task_is_refused_with_its_token(guarded: Guarded) -> None:
    task = guarded.rota.submit_native("ann", "waits")
    secret = guarded.make("ann", "submit", "ann")
    got: list[Answer] = []

    def wait() -> None:
        path = f"/v1/tasks/{task}?waitMs=30000"
        got.append(guarded.rota.request("GET", path, headers=bearer(secret)))

    waiting = threading.Thread(target=wait)
    waiting.start()
    watches = lambda: guarded.rota.inside(lambda s: s.app.namespaces.default.watches.watching.held)  # noqa: E731
    until(lambda: watches() == 1)
    guarded.revoke("ann")
    waiting.join(10)
    assert unknown(got[0])


def test_a_socket_is_closed_with_its_token(guarded: Guarded) -> None:
    job = guarded.rota.post("/api/jobs", {"jobType": "crawl", "agentId": "ann"}).json
    secret = guarded.make("ann", "submit", "ann")
    url = f"http://127.0.0.1:{guarded.rota.port}/ws/jobs/{job['data']['jobId']}"

    async def watch() -> Any:
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(url, headers=bearer(secret)) as socket,
        ):
            assert (await socket.receive_json())["type"] == "job.snapshot"
            await asyncio.to_thread(guarded.revoke, "ann")
            return (await socket.receive(timeout=10)).type

    assert asyncio.run(watch()) in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)


def _is_reading(server: Any) -> bool:
    """Whether a handler waits for a body."""
    busy = [each for each in server._http.server.connections if each._current_request is not None]
    return any(each._current_request.method == "POST" for each in busy)


def test_a_body_that_took_its_time_is_not_taken_from_who_was_revoked(guarded: Guarded) -> None:
    secret = guarded.make("ann", "submit", "ann")
    body = b'{"agentId":"ann","action":"echo"}'
    head = (
        f"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {secret}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with guarded.rota.connected() as sock:
        sock.sendall(head.encode() + body[:5])
        until(lambda: guarded.rota.inside(_is_reading))
        guarded.revoke("ann")
        sock.sendall(body[5:])
        assert sock.recv(65536).startswith(b"HTTP/1.1 401")
    assert "task_submitted" not in {event["kind"] for event in guarded.rota.events()}


# -- namespaces ----------------------------------------------------------------------------------


def test_a_token_is_good_in_the_namespace_that_made_it(serve: Servers) -> None:
    guarded = Guarded(serve, {"namespaces": {"team": {}}})
    rota = guarded.rota
    here = guarded.make("here", "admin")
    body = {"name": "there", "role": "admin"}
    there = rota.request("POST", "/v1/tokens", body, {"X-Rota-Namespace": "team"}).json["token"]
    for secret, own, other in ((here, "default", "team"), (there, "team", "default")):
        for name, status in ((own, 200), (other, 403)):
            answer = rota.request("GET", WORK, headers={**bearer(secret), "X-Rota-Namespace": name})
            assert answer.status == status
        rows = rota.request("GET", "/v1/namespaces", headers=bearer(secret)).json["namespaces"]
        assert [row["name"] for row in rows] == [own]
        answer = rota.request("POST", "/v1/config/reload", headers=bearer(secret))
        assert (answer.status, answer.code) == (403, "namespace_forbidden")
    made = rota.request("POST", WORK, {"agentId": "a", "action": "echo"}, bearer(there)).json
    assert rota.get(f"{WORK}/{made['taskId']}").status == 404


def test_where_there_is_one_namespace_its_administrator_reloads(guarded: Guarded) -> None:
    guarded.make("admin", "admin")
    assert guarded.ask("admin", "POST", "/v1/config/reload").status == 200

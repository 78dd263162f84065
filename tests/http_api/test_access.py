"""Who may ask, under which name, how many at once; and the id that every answer carries."""

from __future__ import annotations

import contextlib

import pytest
from support.http_server import Rota, Servers, until

from rota.errors import ConfigError
from rota.http.problems import HttpProblem, response
from rota.http.routes import ROUTES

OPS, DEV = "ops-token-" + "o" * 20, "dev-token-" + "d" * 20


@pytest.fixture
def guarded(serve: Servers) -> Rota:
    """A server that wants tokens."""
    return serve({"server": {"tokens": {"ops": OPS, "dev": DEV}}})


# -- request ids ---------------------------------------------------------------------------------


def test_every_answer_carries_a_request_id(rota: Rota) -> None:
    asked = [("GET", r.path.replace("{id}", "x")) for r in ROUTES if r.method == "GET"]
    asked = [(method, path) for method, path in asked if path != "/v1/events/stream"]
    asked += [("POST", "/tasks"), ("DELETE", "/tasks"), ("GET", "/nowhere")]
    seen = set()
    for method, path in asked:
        answer = rota.request(method, path)
        assert answer.headers["x-request-id"], path
        seen.add(answer.headers["x-request-id"])
    assert len(seen) == len(asked)


@pytest.mark.parametrize("given", ["abc", "A.b_c:d-9", "x" * 128])
def test_a_safe_request_id_is_echoed(rota: Rota, given: str) -> None:
    answer = rota.request("GET", "/nowhere", headers={"X-Request-ID": given})
    assert answer.headers["x-request-id"] == given
    assert answer.json["requestId"] == given


@pytest.mark.parametrize("given", ["", "a b", "x" * 129, "é", "a\tb", '"><script>', "a/b"])
def test_an_unsafe_request_id_is_replaced(rota: Rota, given: str) -> None:
    answer = rota.request("GET", "/health", headers={"X-Request-ID": given})
    assert answer.status == 200
    assert answer.headers["x-request-id"] != given
    assert answer.headers["x-request-id"].startswith("req_")


# -- tokens --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/tasks", "/health"])
def test_two_authorization_headers_are_refused(guarded: Rota, rota: Rota, path: str) -> None:
    for server, tokens in ((guarded, (OPS, DEV)), (guarded, (OPS, OPS)), (rota, (OPS, DEV))):
        lines = "".join(f"Authorization: Bearer {token}\r\n" for token in tokens)
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        found = server.raw(f"{head}{lines}\r\n".encode())
        assert found.startswith(b"HTTP/1.1 400")
        assert b'"field":"Authorization"' in found


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", "Bearer nope", f"Basic {OPS}", OPS, f"Bearer {OPS}x",
     f"Bearer {OPS[:-1]}", "Bearer \xe9"],
)  # fmt: skip
def test_without_a_valid_token_nothing_is_served(guarded: Rota, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}
    for route in ROUTES:
        answer = guarded.request(route.method, route.path.replace("{id}", "x"), headers=headers)
        if route.public:
            assert answer.status == route.status
            continue
        assert answer.status == 401, route
        field = "error" if route.dialect == "projects" else "code"
        code = -1401 if route.dialect == "browsermanager" else "unauthorized"
        assert answer.json[field] == code
        assert answer.headers["www-authenticate"] == "Bearer"
    guarded.token = OPS
    assert {event["kind"] for event in guarded.events()} <= {"server_started"}


def test_the_principal_is_recorded(guarded: Rota) -> None:
    guarded.token = DEV
    native = guarded.submit_native(action="waits")
    tab = guarded.submit("bob", "waits", tabId="t")
    guarded.token = OPS
    guarded.post(f"/v1/tasks/{native}/cancel")
    guarded.post(f"/tasks/{tab}/cancel")
    guarded.post("/v1/agents/ann/pause")
    found = [(event["kind"], event["by"]) for event in guarded.events()]
    assert found == [
        ("server_started", "rota"),
        ("task_submitted", "dev"),
        ("task_submitted", "dev"),
        ("task_cancelled", "ops"),
        ("task_cancelled", "ops"),
        ("agent_paused", "ops"),
    ]


def test_bearer_is_spelled_in_any_case(guarded: Rota) -> None:
    answer = guarded.request("GET", "/v1/tasks", headers={"Authorization": f"bEARER {OPS}"})
    assert answer.status == 200


def test_a_server_does_not_listen_beyond_loopback_without_tokens(serve: Servers) -> None:
    with pytest.raises(ConfigError, match="tokens"):
        serve({"server": {"host": "0.0.0.0"}})


def test_short_tokens_are_refused(serve: Servers) -> None:
    with pytest.raises(ConfigError, match="16"):
        serve({"server": {"tokens": {"ops": "short"}}})


# -- browsers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["evil", "", "ftp", "file", "javascript", "httpx", "xhttp"])
def test_a_page_of_our_name_by_another_scheme_is_another_origin(rota: Rota, scheme: str) -> None:
    origin = f"{scheme}://127.0.0.1:{rota.port}"
    answer = rota.request("GET", "/v1/tasks", headers={"Origin": origin})
    assert (answer.status, answer.json["code"]) == (403, "foreign_origin")


def test_the_way_to_the_docs_is_as_open_as_they_are(guarded: Rota) -> None:
    answer = guarded.get("/")
    assert (answer.status, answer.headers["location"]) == (302, "/docs")
    assert guarded.get(answer.headers["location"]).status == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1", "x"])
def test_pages_of_other_origins_are_refused(rota: Rota, origin: str) -> None:
    for method, path in (("GET", "/v1/tasks"), ("POST", "/tasks"), ("GET", "/health")):
        answer = rota.request(method, path, headers={"Origin": origin})
        assert (answer.status, answer.json["code"]) == (403, "foreign_origin")


def test_rotas_own_pages_are_served(rota: Rota) -> None:
    own = f"http://127.0.0.1:{rota.port}"
    assert rota.request("GET", "/v1/tasks", headers={"Origin": own}).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "127.0.0.1@x", "10.0.0.1"]
)
def test_foreign_hosts_are_refused(rota: Rota, host: str) -> None:
    """A name that somebody else makes resolve to the loopback is not ours."""
    answer = rota.request("GET", "/v1/tasks", headers={"Host": host})
    assert (answer.status, answer.json["code"]) == (403, "foreign_host")


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:9867", "127.0.0.1", "127.8.8.8:1", "[::1]:5"]
)
def test_loopback_hosts_are_served(rota: Rota, host: str) -> None:
    assert rota.request("GET", "/v1/tasks", headers={"Host": host}).status == 200


# -- connections ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "retryable"), [(503, True), (429, True), (404, False)])
def test_what_is_refused_for_now_can_be_tried_again(status: int, *, retryable: bool) -> None:
    problem = HttpProblem(status, "too_many_streams", "too many streams are open")
    assert problem.retryable is retryable
    assert ("Retry-After" in response(problem, {}).headers) is retryable


def test_those_who_came_first_are_served_whoever_comes_after(serve: Servers) -> None:
    """Connections above the cap are the ones to refuse, also when they only sit there."""
    rota = serve({"server": {"connections_max": 2}})
    ask = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(rota.connected())
        first.sendall(ask)
        assert first.recv(65536).startswith(b"HTTP/1.1 200")
        for _ in range(5):
            stack.enter_context(rota.connected())
        until(lambda: rota.inside(lambda server: len(server._http.server.connections)) >= 2)
        first.sendall(ask)
        assert first.recv(65536).startswith(b"HTTP/1.1 200")

"""Pages of other origins: refused, unless server.allowOrigins lists their origin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rota.errors import ConfigError

if TYPE_CHECKING:
    from support.http_server import Rota, Servers

PAGE = "http://localhost:5173"
TOKEN = "0123456789abcdef"


@pytest.fixture
def shared(serve: Servers) -> Rota:
    return serve({"server": {"allowOrigins": [PAGE], "tokens": {"ops": TOKEN}}})


def ask(rota: Rota, origin: str, method: str = "POST") -> tuple[int, dict[str, str]]:
    """Ask as a browser does before it lets a page send a request."""
    headers = {"Origin": origin, "Access-Control-Request-Method": method}
    answer = rota.request("OPTIONS", "/v1/tasks", headers=headers)
    return answer.status, answer.headers


def test_a_page_of_a_listed_origin_may_ask_and_read_the_answer(shared: Rota) -> None:
    status, headers = ask(shared, PAGE)
    assert status == 204
    assert headers["access-control-allow-origin"] == PAGE
    assert set(headers["access-control-allow-headers"].split(", ")) == {
        "Authorization", "Content-Type", "Idempotency-Key", "X-Idempotency-Key", "Last-Event-ID",
        "X-Request-ID", "X-Rota-Namespace",
    }  # fmt: skip
    assert "POST" in headers["access-control-allow-methods"]
    said = {"Origin": PAGE, "Authorization": f"Bearer {TOKEN}"}
    answer = shared.request("GET", "/v1/tasks", headers=said)
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, PAGE)
    assert answer.headers["vary"] == "Origin"


def test_it_may_read_errors_and_streams_too_and_still_needs_a_token(shared: Rota) -> None:
    answer = shared.request("GET", "/v1/tasks", headers={"Origin": PAGE})
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (401, PAGE)
    with shared.stream(Origin=PAGE, Authorization=f"Bearer {TOKEN}") as stream:
        assert stream.headers["access-control-allow-origin"] == PAGE


@pytest.mark.parametrize("origin", ["http://localhost:5174", "https://localhost:5173", "null"])
def test_an_origin_that_is_not_listed_is_refused(shared: Rota, origin: str) -> None:
    status, headers = ask(shared, origin)
    assert status == 403
    assert "access-control-allow-origin" not in headers
    said = {"Origin": origin, "Authorization": f"Bearer {TOKEN}"}
    answer = shared.request("GET", "/v1/tasks", headers=said)
    assert (answer.status, answer.code) == (403, "foreign_origin")


def test_nothing_is_shared_unless_it_is_set(rota: Rota) -> None:
    assert ask(rota, PAGE)[0] == 403
    assert "access-control-allow-origin" not in rota.get("/v1/tasks").headers


@pytest.mark.parametrize(
    ("entry", "sent"),
    [
        ("https://App.example:443", "https://app.example"),
        ("http://Localhost:80", "http://localhost"),
        ("http://app.example:443", "http://app.example:443"),
        ("https://bücher.example:8443", "https://xn--bcher-kva.example:8443"),
        ("http://[::1]:80", "http://[::1]"),
    ],
)
def test_an_origin_is_taken_as_browsers_send_it(serve: Servers, entry: str, sent: str) -> None:
    rota = serve({"server": {"allowOrigins": [entry]}})
    assert ask(rota, sent)[0] == 204
    assert rota.get("/v1/config").json["server"]["allowOrigins"] == [sent]


@pytest.mark.parametrize(
    "entry", ["*", "localhost:5173", "http://*", "http://a/", "ftp://a", "http://a..b"]
)
def test_what_is_no_origin_is_refused_at_start(serve: Servers, entry: str) -> None:
    with pytest.raises(ConfigError, match="origin"):
        serve({"server": {"allowOrigins": [entry]}})

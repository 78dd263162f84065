"""HTTPS: served with a certificate, and with another one while the server runs."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import ssl
from typing import TYPE_CHECKING, Any

import pytest
from support.certificates import certify, needs_openssl
from support.http_server import Rota, read_all, until

from rota.client.sync_client import JsonClient
from rota.errors import ConfigError, InvalidRequest, ServerUnreachable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.http_server import Servers

pytestmark = needs_openssl


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    folder = tmp_path / "pem"
    folder.mkdir()
    certify(folder)
    return folder


@pytest.fixture
def secure(serve: Servers, pem: Path) -> Rota:
    tls = {"cert": str(pem / "cert.pem"), "key": str(pem / "key.pem")}
    return serve({"server": {"tls": tls}})


@pytest.fixture
def client(secure: Rota, pem: Path, monkeypatch: pytest.MonkeyPatch) -> JsonClient:
    monkeypatch.setenv("ROTA_CA", str(pem / "cert.pem"))
    return JsonClient(f"https://127.0.0.1:{secure.port}")


@contextlib.contextmanager
def shaken(rota: Rota) -> Iterator[ssl.SSLSocket]:
    """A connection over TLS, to whoever it is."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with rota.connected() as sock, context.wrap_socket(sock, server_hostname="localhost") as made:
        yield made


def served_with(rota: Rota) -> bytes:
    with shaken(rota) as sock:
        found = sock.getpeercert(binary_form=True)
    assert found is not None
    return found


def reload(rota: Rota) -> None:
    rota.inside(lambda server: server._reload_soon())


def test_tasks_are_submitted_and_followed_over_https(secure: Rota, client: JsonClient) -> None:
    task = client.submit("echo", "ann", params={"text": "hello"})["taskId"]
    assert client.wait(task, 10)["state"] == "succeeded"
    stream = client.stream(after=0)
    assert next(stream)["kind"] == "server_started"
    stream.close()


def test_who_does_not_know_the_certificate_does_not_talk(secure: Rota) -> None:
    with pytest.raises(ServerUnreachable, match="certificate"):
        JsonClient(f"https://127.0.0.1:{secure.port}").health()


def test_a_file_of_certificates_that_is_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_CA", str(tmp_path / "none.pem"))
    with pytest.raises(InvalidRequest, match="ROTA_CA"):
        JsonClient("https://127.0.0.1:1")


def test_plain_http_is_not_served(secure: Rota) -> None:
    with contextlib.suppress(ConnectionError):
        asked = secure.raw(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200" not in asked


def test_a_large_answer_and_many_requests_on_one_connection(secure: Rota) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection("127.0.0.1", secure.port, context=context, timeout=20)
    body = json.dumps({"agentId": "a", "action": "waits", "params": {"x": "y" * 1_000_000}})
    for _ in range(3):
        connection.request("POST", "/v1/tasks", body, {"Content-Type": "application/json"})
        task = json.loads(connection.getresponse().read())["taskId"]
        connection.request("GET", f"/v1/tasks/{task}")
        assert len(connection.getresponse().read()) > 1_000_000
    connection.close()


def test_a_client_that_closes_its_half_leaves_nothing_behind(secure: Rota) -> None:
    with shaken(secure) as sock:
        sock.sendall(b"GET /v1/events/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        heard = b""
        while b"rota event stream" not in heard:
            heard += sock.recv(65536)
        with contextlib.suppress(OSError):
            plain = sock.unwrap()
            plain.shutdown(socket.SHUT_WR)
            read_all(plain)
    until(lambda: secure.inside(lambda s: s.app.namespaces.streaming.held) == 0)
    assert not [line for line in secure.log.lines if "eof_received" in line]


def test_new_connections_get_the_new_certificate_and_old_ones_go_on(
    secure: Rota, pem: Path
) -> None:
    first = served_with(secure)
    with shaken(secure) as old:
        certify(pem)
        reload(secure)
        until(lambda: served_with(secure) != first)
        old.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert old.recv(65536).startswith(b"HTTP/1.1 200")
    assert any("reloaded the certificate" in line for line in secure.log.lines)


@pytest.mark.parametrize("broken", ["cert.pem", "key.pem"])
def test_a_certificate_that_cannot_be_used_keeps_the_old_one(
    secure: Rota, pem: Path, broken: str
) -> None:
    first = served_with(secure)
    certify(pem)
    (pem / broken).write_text("not a certificate")
    reload(secure)
    until(lambda: [line for line in secure.log.lines if "old one stays" in line])
    assert served_with(secure) == first


def test_a_key_of_another_certificate_does_not_start(serve: Servers, tmp_path: Path) -> None:
    cert, _ = certify(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    _, key = certify(other)
    for tls in ({"cert": str(cert), "key": str(key)}, {"cert": "none", "key": "none"}):
        with pytest.raises(ConfigError, match="tls"):
            serve({"server": {"tls": tls}})


def test_who_does_not_shake_hands_keeps_nobody_waiting(secure: Rota, client: Any) -> None:
    with secure.connected(), secure.connected():
        assert client.health()["status"] == "ok"


def test_who_does_not_shake_hands_has_a_place_and_gives_way(serve: Servers, pem: Path) -> None:
    tls = {"cert": str(pem / "cert.pem"), "key": str(pem / "key.pem")}
    secure = serve({"server": {"tls": tls, "connectionsMax": 8}})
    taken = lambda: secure.inside(lambda s: len(s._http.server.places))  # noqa: E731
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(secure.connected()) for _ in range(8)]
        until(lambda: taken() == 8)
        with shaken(secure) as sock:
            sock.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert sock.recv(65536).startswith(b"HTTP/1.1 200")
            assert taken() == 8
        assert silent[0].recv(1) == b""  # the first that came gave way
    until(lambda: taken() == 0)


def test_who_leaves_or_lies_instead_of_shaking_hands_leaves_nothing(secure: Rota) -> None:
    taken = lambda: secure.inside(lambda s: len(s._http.server.places))  # noqa: E731
    for said in (b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 5000):
        with secure.connected() as sock, contextlib.suppress(OSError):
            sock.sendall(said)
            sock.shutdown(socket.SHUT_WR)
            read_all(sock)
    until(lambda: taken() == 0)
    with shaken(secure) as sock:
        sock.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert sock.recv(65536).startswith(b"HTTP/1.1 200")


def test_both_files_are_named(serve: Servers) -> None:
    with pytest.raises(ConfigError, match="key"):
        serve({"server": {"tls": {"cert": "a"}}})


def test_the_handshake_asks_no_name(secure: Rota) -> None:
    async def shake() -> int:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", secure.port, ssl=context, server_hostname=""
        )
        writer.write(b"GET /health/live HTTP/1.0\r\nHost: localhost\r\n\r\n")
        status = int((await reader.readline()).split()[1])
        writer.close()
        return status

    assert asyncio.run(shake()) == 200

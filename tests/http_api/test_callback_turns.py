"""Callbacks over real sockets: how many at once, what hangs, and what operators see of it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import Received, Rota, Servers, Target, target, until

if TYPE_CHECKING:
    from collections.abc import Iterator

WIDE = {"maxPerAgent": 500, "workerCount": 50, "maxInflight": 50, "maxPerAgentInflight": 50}


class Gate:
    """A target on which paths under /hang wait until they are let go."""

    def __init__(self, hooks: Target) -> None:
        self.hooks = hooks
        self.open = threading.Event()
        self.hanging = threading.Semaphore(0)
        hooks.respond = self._respond

    def _respond(self, request: Received) -> tuple[int, bytes]:
        if request.path.startswith("/hang"):
            self.hanging.release()
            self.open.wait(60)
        return 200, b""

    def wait_hanging(self, count: int) -> None:
        for _ in range(count):
            assert self.hanging.acquire(timeout=20)


@pytest.fixture
def gate() -> Iterator[Gate]:
    with target() as made:
        gate = Gate(made)
        yield gate
        gate.open.set()


def serve_with(serve: Servers, **webhooks: Any) -> Rota:
    allowed = {"allow_hosts": ["127.0.0.1", "localhost"], "timeoutMs": 60_000}
    return serve({"scheduler": WIDE, "webhooks": {**allowed, **webhooks}})


def delivered(rota: Rota) -> int:
    return int(rota.get("/v1/stats").json["callbacks"]["delivered"])


def metric(rota: Rota, name: str) -> float:
    text = rota.get("/metrics").body.decode()
    (line,) = [line for line in text.splitlines() if line.startswith(f"{name}{{")]
    return float(line.split()[1])


def test_ninety_callbacks_of_which_four_hang_are_held_up_by_those_four_only(
    serve: Servers, gate: Gate
) -> None:
    rota = serve_with(serve)
    for n in range(4):
        rota.submit_native(callbackUrl=f"{gate.hooks.url}/hang/{n}")
    gate.wait_hanging(4)
    for n in range(86):
        rota.submit_native(callbackUrl=f"{gate.hooks.url}/quick/{n}")
    until(lambda: delivered(rota) == 86, what="all but those that hang are delivered")
    assert rota.get("/health").json["callbacks"]["pending"] == 4
    assert metric(rota, "rota_callbacks_sending") == 4
    gate.open.set()
    until(lambda: delivered(rota) == 90)


def test_a_host_gets_no_more_at_once_than_is_set_and_the_rest_is_seen_to_wait(
    serve: Servers, gate: Gate
) -> None:
    rota = serve_with(serve, perHost=3, parallel=8)
    for n in range(10):
        rota.submit_native(callbackUrl=f"{gate.hooks.url}/hang/{n}")
    gate.wait_hanging(3)
    until(lambda: metric(rota, "rota_callbacks_waiting") == 7)
    assert metric(rota, "rota_callbacks_sending") == 3
    assert metric(rota, "rota_callbacks_pending") == 10
    until(lambda: metric(rota, "rota_callbacks_oldest_seconds") >= 1)
    assert rota.get("/health").json["callbacks"]["oldest_seconds"] >= 1
    assert len(gate.hooks.requests) == 3
    gate.open.set()
    until(lambda: delivered(rota) == 10)
    assert rota.get("/health").json["callbacks"] == {"pending": 0, "oldest_seconds": 0}
    assert metric(rota, "rota_callbacks_waiting") == 0


def test_a_host_that_hangs_does_not_hold_up_another(serve: Servers, gate: Gate) -> None:
    rota = serve_with(serve, perHost=2, parallel=8)
    for n in range(20):
        rota.submit_native(callbackUrl=f"http://localhost:{gate.hooks.port}/hang/{n}")
    gate.wait_hanging(2)
    for n in range(20):
        rota.submit_native(callbackUrl=f"{gate.hooks.url}/quick/{n}")
    until(lambda: delivered(rota) == 20)
    gate.open.set()
    until(lambda: delivered(rota) == 40)

"""A worker over plain HTTP, for tests: it takes tasks, waits for them, and says what became of them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from support.http_server import Answer, Client, until

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT_MS = 20_000


def take(rota: Client, worker: str = "ada", **wants: Any) -> list[dict[str, Any]]:
    """Take tasks; give the leases."""
    answer = rota.post("/v1/leases", {"workerId": worker, **wants})
    assert answer.status == 200, answer
    leases: list[dict[str, Any]] = answer.json["leases"]
    return leases


def take_one(rota: Client, worker: str = "ada", **wants: Any) -> dict[str, Any]:
    """Take the one task there is."""
    [lease] = take(rota, worker, **wants)
    return lease


def say(rota: Client, lease: dict[str, Any], what: str, **more: Any) -> Answer:
    """Say something of a lease: `complete`, `fail`, `release` or `heartbeat`."""
    return rota.post(f"/v1/leases/{lease['leaseId']}/{what}", {"token": lease["token"], **more})


def workers(rota: Client) -> dict[str, dict[str, Any]]:
    """Give the workers by their names."""
    return {row["workerId"]: row for row in rota.get("/v1/workers").json["workers"]}


def is_waiting(rota: Client, worker: str) -> Callable[[], bool]:
    """Say whether a worker waits, when asked."""
    return lambda: worker in (known := workers(rota)) and bool(known[worker]["waiting"])


class Waiting:
    """A worker that waits in a thread of its own."""

    def __init__(self, rota: Client, worker: str = "ada", **wants: Any) -> None:
        """Begin to wait; come back when the server knows of it."""
        self.answer: Answer | None = None
        body = {"workerId": worker, "waitMs": WAIT_MS, **wants}

        def ask() -> None:
            self.answer = rota.post("/v1/leases", body)

        self._thread = threading.Thread(target=ask)
        self._thread.start()
        until(is_waiting(rota, worker), what=f"{worker} waits")

    def given(self) -> list[dict[str, Any]]:
        """Give the leases, once it is answered."""
        self._thread.join(30)
        assert self.answer is not None
        assert self.answer.status == 200, self.answer
        leases: list[dict[str, Any]] = self.answer.json["leases"]
        return leases

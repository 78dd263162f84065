"""A submission is told that nothing runs its action, unless a live worker takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from support.http_server import Rota


def reason(rota: Rota, action: str, **fields: Any) -> str | None:
    body = {"agentId": "ann", "action": action, **fields}
    found: str | None = rota.post("/v1/tasks", body).json.get("waitReason")
    return found


def test_a_live_worker_takes_the_task_so_nothing_is_said(rota: Rota) -> None:
    assert "waits for a worker" in str(reason(rota, "greet"))
    poll = {"workerId": "w", "types": ["welcome", "other"], "labels": ["gpu"], "waitMs": 0}
    assert rota.post("/v1/leases", poll).status == 200
    assert reason(rota, "welcome") is None
    assert reason(rota, "welcome", requires=["gpu"]) is None
    assert "waits for a worker" in str(reason(rota, "welcome", requires=["cpu"]))
    assert "waits for a worker" in str(reason(rota, "greet"))

"""GET /v1/agents by pages, and the stats with many agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.http import agents as shown

if TYPE_CHECKING:
    import pytest
    from support.http_server import Servers


def test_agents_come_by_pages_in_the_order_of_their_names(serve: Servers) -> None:
    rota = serve()
    for name in ("eve", "ann", "dan", "bob", "cyd"):
        rota.submit_native(name, "waits")
    first = rota.get("/v1/agents?limit=2").json
    assert [row["agentId"] for row in first["agents"]] == ["ann", "bob"]
    assert (first["count"], first["nextCursor"]) == (2, "bob")
    second = rota.get("/v1/agents?limit=3&cursor=bob").json
    assert [row["agentId"] for row in second["agents"]] == ["cyd", "dan", "eve"]
    assert "nextCursor" not in second
    assert rota.get("/v1/agents?cursor=eve").json == {"agents": [], "count": 0}


def test_agents_can_be_asked_for_by_what_they_do(serve: Servers) -> None:
    rota = serve()
    rota.ended(rota.submit_native("idle"))
    rota.submit_native("waits", "waits")
    rota.post("/v1/agents/held/pause")

    def named(state: str) -> list[str]:
        return [row["agentId"] for row in rota.get(f"/v1/agents?state={state}").json["agents"]]

    assert named("busy") == named("waiting") == ["waits"]
    assert named("paused") == ["held"]
    assert named("inflight") == []
    answer = rota.get("/v1/agents?state=odd")
    assert (answer.status, answer.json["details"]["field"]) == (400, "state")


def test_stats_of_many_agents_show_the_busiest_and_the_sum_of_the_rest(
    serve: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shown, "AGENTS_SHOWN", 2)
    rota = serve()
    for name, many in (("ann", 3), ("bob", 1), ("cyd", 2), ("dan", 1)):
        for _ in range(many):
            rota.submit_native(name, "waits")
    found = rota.get("/scheduler/stats").json
    assert found["queue"]["agentCounts"] == {"ann": 3, "cyd": 2}
    assert found["queue"]["agentCountsRest"] == {"agents": 2, "queued": 2}
    assert set(found["metrics"]["agents"]) == {"ann", "cyd"}
    rest = found["metrics"]["agentsRest"]
    assert (rest["agents"], rest["submitted"], rest["rejected"]) == (2, 2, 0)


def test_stats_of_few_agents_have_only_the_documents_fields(serve: Servers) -> None:
    rota = serve()
    rota.submit_native("ann", "waits")
    found = rota.get("/scheduler/stats").json
    assert set(found["queue"]) == {"totalQueued", "totalInflight", "agentCounts"}
    assert "agentsRest" not in found["metrics"]


def test_the_scheduler_names_a_bounded_number_of_paused_agents(
    serve: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shown, "AGENTS_SHOWN", 1)
    rota = serve()
    for name in ("bob", "ann", "cyd"):
        rota.post(f"/v1/agents/{name}/pause")
    found = rota.get("/v1/scheduler").json
    assert (found["pausedAgents"], found["pausedAgentsRest"]) == (["ann"], 2)

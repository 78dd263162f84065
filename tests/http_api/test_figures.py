"""The document's figures over HTTP: in /v1/stats, by day, and for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rota.http import agent_metrics
from rota.projections import daily as d

if TYPE_CHECKING:
    from support.http_server import Rota

NAMES = (
    "tasks_created",
    "tasks_completed",
    "tasks_failed",
    "average_latency",
    "worker_heartbeat_delay",
    "error_rate",
)


def some_work(rota: Rota) -> None:
    for agent, action in (("ann", "echo"), ("ann", "fail"), ("bob", "echo")):
        rota.ended(rota.submit_native(agent, action))


def days(rota: Rota, query: str = "") -> list[dict[str, Any]]:
    answer = rota.get(f"/v1/stats/daily{query}")
    assert answer.status == 200, answer
    found: list[dict[str, Any]] = answer.json["days"]
    return found


def samples(rota: Rota) -> dict[tuple[str, str], float]:
    text = rota.get("/metrics").body.decode()
    return {
        (sample.name, sample.labels["agent"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "agent" in sample.labels and sample.labels.get("le", "+Inf") == "+Inf"
    }


def test_stats_show_the_six_figures_in_all_and_per_agent(rota: Rota) -> None:
    some_work(rota)
    found = rota.get("/v1/stats").json["figures"]
    assert [found[name] for name in NAMES[:3]] == [3, 2, 1]
    assert found["average_latency"] > 0
    assert found["worker_heartbeat_delay"] is None
    assert found["error_rates_per_agent"] == {"ann": 0.5, "bob": 0.0}
    assert set(found["agents"]["ann"]) == set(NAMES)
    assert found["agents"]["ann"]["tasks_failed"] == 1
    assert "other" not in found
    assert found["wait"]["count"] == found["run"]["count"] == 3
    assert len(found["wait"]["buckets"]) == len(found["bounds_ms"]) + 1


def test_the_series_of_days_survives_a_restart_and_a_lost_snapshot(rota: Rota) -> None:
    some_work(rota)
    before = days(rota)
    assert len(before) == 7
    assert [day["tasks_created"] for day in before[:-1]] == [0] * 6
    assert (before[-1]["tasks_created"], before[-1]["error_rate"]) == (
        3,
        pytest.approx(1 / 3, abs=1e-6),
    )
    assert set(before[-1]["agents"]) == {"ann", "bob"}
    rota.restart()
    assert days(rota) == before
    rota.stop()
    for snapshot in rota.folder.rglob("*.snap"):
        snapshot.unlink()
    rota.start()
    assert days(rota) == before


def test_a_day_can_be_asked_for_one_agent(rota: Rota) -> None:
    some_work(rota)
    (today,) = days(rota, "?agentId=ann")[-1:]
    assert set(today) == {"day", *NAMES}
    assert (today["tasks_created"], today["error_rate"]) == (2, 0.5)
    (nobody,) = days(rota, f"?from={today['day']}&to={today['day']}&agentId=nobody")
    assert nobody["tasks_created"] == 0
    assert nobody["error_rate"] is None


def test_of_an_agent_that_is_not_kept_by_name_nothing_is_made_up(
    rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(d, "AGENTS_TODAY", 1)
    some_work(rota)
    (today,) = days(rota, "?agentId=bob")[-1:]
    assert today["tasks_created"] is None
    assert today["other"]["tasks_created"] == 1
    whole = days(rota)[-1]
    assert (list(whole["agents"]), whole["tasks_created"]) == (["ann"], 3)


def test_days_to_come_are_left_out_and_old_ones_are_empty(rota: Rota) -> None:
    today = days(rota)[-1]["day"]
    assert len(days(rota, f"?from={today}&to={today[:4]}-12-31")) == 1 or today.endswith("12-31")
    assert days(rota, "?from=2001-01-01&to=2001-01-02")[0]["tasks_created"] == 0


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("from=yesterday", "from"),
        ("to=2026-13-01", "to"),
        ("from=2026-1-1", "from"),
        ("from=2026-01-02&to=2026-01-01", "from"),
        ("from=2020-01-01&to=2026-01-01", "from"),
        ("agentId=" + "a" * 1000, "agentId"),
    ],
)
def test_bad_days_are_named(rota: Rota, query: str, field: str) -> None:
    answer = rota.get(f"/v1/stats/daily?{query}")
    assert (answer.status, answer.json["details"]) == (400, {"field": field})


def test_metrics_have_counters_and_histograms_by_agent(rota: Rota) -> None:
    some_work(rota)
    found = samples(rota)
    assert found["rota_agent_tasks_created_total", "ann"] == 2
    assert found["rota_agent_attempts_failed_total", "ann"] == 1
    assert found["rota_agent_latency_seconds_count", "bob"] == 1
    assert found["rota_agent_wait_seconds_bucket", "ann"] == 2
    assert found["rota_agent_run_seconds_count", "ann"] == 2
    assert ("rota_agent_tasks_created_total", "other") not in found


def test_only_so_many_agents_have_a_label_of_their_own(
    rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_metrics, "AGENTS_MAX", 1)
    some_work(rota)
    rota.ended(rota.submit_native("other"))
    found = samples(rota)
    assert {agent for _, agent in found} == {"ann", "other"}
    assert found["rota_agent_tasks_created_total", "other"] == 2

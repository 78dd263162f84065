"""agingMs: a task that has waited long enough is served before a fresh one of more urgency."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from support.http_server import Rota, Servers, Target, until, with_tab


def click(rota: Rota, tag: str, **fields: Any) -> str:
    return rota.submit_native("ann", "click", tabId="t", params={"tag": tag}, **fields)


def busy(rota: Rota, tab: Target) -> None:
    """Keep the only worker busy until `busy` is let go."""
    rota.submit_native("ann", "click", tabId="t", params={"tag": "busy", "hold": "busy"})
    tab.wait_for(1)


def is_older_than(rota: Rota, task_id: str, ms: int) -> bool:
    created = datetime.fromisoformat(rota.get(f"/v1/tasks/{task_id}").json["createdAt"])
    return (datetime.now(UTC) - created).total_seconds() * 1000 > ms


def order(tab: Target, count: int) -> list[str]:
    tab.release("busy")
    tab.wait_for(1 + count)
    return tab.tags()[1:]


@pytest.fixture
def rota(serve: Servers, tab: Target) -> Rota:
    """A server with one worker, where 20 ms of waiting are worth one priority."""
    return serve(with_tab(tab, workerCount=1, agingMs=20))


def test_an_old_task_of_little_urgency_overtakes_a_fresh_urgent_one(
    rota: Rota, tab: Target
) -> None:
    busy(rota, tab)
    old = click(rota, "old low", priority="low")
    until(lambda: is_older_than(rota, old, 3 * 20), what="it has aged by three priorities")
    click(rota, "fresh critical", priority="critical")
    assert order(tab, 2) == ["old low", "fresh critical"]


def test_a_task_that_has_not_waited_long_enough_stays_behind(serve: Servers, tab: Target) -> None:
    rota = serve(with_tab(tab, workerCount=1, agingMs=3_600_000))
    busy(rota, tab)
    for word in ("low", "normal", "high", "critical"):
        click(rota, word, priority=word)
    assert order(tab, 4) == ["critical", "high", "normal", "low"]


def test_without_aging_urgency_goes_first_however_old_the_rest_is(
    serve: Servers, tab: Target
) -> None:
    rota = serve(with_tab(tab, workerCount=1))
    busy(rota, tab)
    old = click(rota, "old low", priority="low")
    until(lambda: is_older_than(rota, old, 60))
    click(rota, "fresh critical", priority="critical")
    assert order(tab, 2) == ["fresh critical", "old low"]


def test_age_counts_over_a_restart_and_a_backoff(rota: Rota, tab: Target) -> None:
    rota.post("/v1/agents/ann/pause")
    old = click(rota, "old low", priority="low")
    rota.restart()
    until(lambda: is_older_than(rota, old, 60))
    click(rota, "fresh critical", priority="critical")
    rota.restart()
    rota.post("/v1/agents/ann/resume")
    tab.wait_for(2)
    assert tab.tags() == ["old low", "fresh critical"]


def test_a_task_ages_from_its_submission_while_it_waits_for_others(rota: Rota, tab: Target) -> None:
    blocked = click(rota, "old low", priority="low", dependsOn=["later"])
    until(lambda: is_older_than(rota, blocked, 60))
    rota.submit_native("bob", taskId="later", params={})
    rota.post("/v1/agents/ann/pause")
    until(lambda: rota.get(f"/v1/tasks/{blocked}").json["state"] != "blocked")
    if rota.get(f"/v1/tasks/{blocked}").json["state"] == "ready":
        click(rota, "fresh critical", priority="critical")
        rota.post("/v1/agents/ann/resume")
        tab.wait_for(2)
        assert tab.tags() == ["old low", "fresh critical"]


def test_aging_set_while_tasks_wait_reorders_them(serve: Servers, tab: Target) -> None:
    rota = serve(with_tab(tab, workerCount=1))
    busy(rota, tab)
    old = click(rota, "old low", priority="low")
    until(lambda: is_older_than(rota, old, 20))
    click(rota, "fresh critical", priority="critical")
    answer = rota.post("/v1/config/reload", {"scheduler": {"agingMs": 1}})
    assert answer.json["changed"] == ["agingMs"]
    assert order(tab, 2) == ["old low", "fresh critical"]


def test_aging_changes_nothing_between_agents(rota: Rota, tab: Target) -> None:
    busy(rota, tab)
    old = click(rota, "ann 1", priority="low")
    click(rota, "ann 2", priority="low")
    until(lambda: is_older_than(rota, old, 60))
    rota.submit_native("bob", "click", tabId="t", params={"tag": "bob"})
    assert order(tab, 3).index("bob") < 2


@pytest.mark.parametrize("value", [-1, 86_400_001, "1", 1.5, True])
def test_a_bad_aging_is_refused(rota: Rota, value: Any) -> None:
    answer = rota.post("/v1/config/reload", {"scheduler": {"agingMs": value}})
    assert (answer.status, answer.code) == (400, "bad_config")
    assert "agingMs" in answer.json["error"]

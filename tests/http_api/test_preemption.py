"""preempt: a task that may take the place of a less urgent one of its own agent."""

from __future__ import annotations

from typing import Any

import pytest
from support.http_server import Rota, Servers, Target, ended, look, until, with_tab


@pytest.fixture
def rota(serve: Servers, tab: Target) -> Rota:
    """A server with one worker."""
    return serve(with_tab(tab, workerCount=1))


def click(rota: Rota, tag: str, hold: str = "", agent: str = "ann", **fields: Any) -> str:
    """Submit a task that the browser runs until `hold` is let go."""
    params = {"tag": tag, **({"hold": hold} if hold else {})}
    return rota.submit_native(agent, "click", tabId="t", params=params, **fields)


def settled(rota: Rota) -> None:
    """Let everything that was decided so far happen."""
    rota.post("/v1/agents/nobody/pause")


def test_an_urgent_task_takes_the_place_of_a_less_urgent_one(rota: Rota, tab: Target) -> None:
    victim = click(rota, "victim", "victim", priority="low")
    tab.wait_for(1)
    urgent = click(rota, "urgent", priority="critical", preempt=True)
    assert ended(rota, urgent)["state"] == "succeeded"
    until(lambda: tab.left, what="the browser sees the victim's connection close")
    (event,) = rota.events(task=victim, kind="attempt_interrupted")
    assert event["data"] == {"attempt": 1, "reason": "preempted", "for_task": urgent}
    assert look(rota, urgent)["preempt"] is True
    until(lambda: tab.tags() == ["victim", "urgent", "victim"], what="the victim runs again")
    tab.release("victim")
    task = ended(rota, victim)
    assert (task["state"], task["attempt"]) == ("succeeded", 1)
    assert "interruptions" not in task


def test_a_victim_has_spent_no_attempt(rota: Rota, tab: Target) -> None:
    policy = {"kind": "fixed", "baseMs": 0, "maxAttempts": 2}
    victim = click(rota, "victim", "victim", priority=3, retry=policy)
    tab.wait_for(1)
    for number in range(7):
        ended(rota, click(rota, "urgent", priority=0, preempt=True))
        count = number + 2
        until(lambda count=count: tab.tags().count("victim") == count, what="it runs again")
    tab.release("victim")
    assert ended(rota, victim)["attempt"] == 1
    assert rota.kinds(victim).count("attempt_interrupted") == 7


def test_a_late_result_of_a_victim_changes_nothing(rota: Rota, tab: Target) -> None:
    victim = click(rota, "victim", "victim", priority=3)
    tab.wait_for(1)
    urgent = click(rota, "urgent", "urgent", priority=0, preempt=True)
    until(lambda: "urgent" in tab.tags())
    tab.release("victim")
    settled(rota)
    assert look(rota, victim)["state"] == "ready"
    tab.release("urgent")
    ended(rota, urgent)
    assert ended(rota, victim)["attempt"] == 1


def test_nobody_is_preempted_unless_it_is_asked_for(rota: Rota, tab: Target) -> None:
    running = click(rota, "running", "it", priority=3)
    tab.wait_for(1)
    urgent = click(rota, "urgent", priority=0)
    settled(rota)
    assert (look(rota, running)["state"], look(rota, urgent)["state"]) == ("running", "ready")
    assert "preempt" not in look(rota, urgent)
    tab.release("it")
    ended(rota, urgent)
    assert rota.events(kind="attempt_interrupted") == []


@pytest.mark.parametrize("priority", [0, 1])
def test_only_the_less_urgent_make_room(rota: Rota, tab: Target, priority: int) -> None:
    click(rota, "running", "it", priority=priority)
    tab.wait_for(1)
    urgent = click(rota, "urgent", priority=1, preempt=True)
    settled(rota)
    assert look(rota, urgent)["state"] == "ready"
    assert rota.events(kind="attempt_interrupted") == []


def test_other_agents_are_left_alone(rota: Rota, tab: Target) -> None:
    other = click(rota, "other", "it", agent="bob", priority=3)
    tab.wait_for(1)
    urgent = click(rota, "urgent", agent="ann", priority=0, preempt=True)
    settled(rota)
    assert (look(rota, other)["state"], look(rota, urgent)["state"]) == ("running", "ready")
    tab.release("it")
    assert ended(rota, urgent)["state"] == "succeeded"
    assert rota.events(kind="attempt_interrupted") == []


def test_what_must_not_run_twice_is_spared(rota: Rota, tab: Target) -> None:
    spared = click(rota, "spared", "it", priority=3, onInterrupt="fail")
    tab.wait_for(1)
    urgent = click(rota, "urgent", priority=0, preempt=True)
    settled(rota)
    assert (look(rota, spared)["state"], look(rota, urgent)["state"]) == ("running", "ready")
    tab.release("it")
    assert ended(rota, spared)["state"] == "succeeded"
    assert ended(rota, urgent)["state"] == "succeeded"


def test_the_least_urgent_goes_and_among_equals_the_latest(serve: Servers, tab: Target) -> None:
    rota = serve(with_tab(tab, workerCount=10, maxPerAgentInflight=4))
    names = [("high", 1), ("old low", 3), ("new low", 3), ("normal", 2)]
    tasks = {tag: click(rota, tag, "it", priority=p) for tag, p in names}
    tab.wait_for(4)
    went = []
    for _ in range(4):
        click(rota, "urgent", "urgent", priority=1, preempt=True)
        settled(rota)
        went += [e["task"] for e in rota.events(kind="attempt_interrupted")][len(went) :]
    assert went == [tasks["new low"], tasks["old low"], tasks["normal"]]
    assert look(rota, tasks["high"])["state"] == "running"


def test_nobody_is_preempted_while_there_is_room(serve: Servers, tab: Target) -> None:
    rota = serve(with_tab(tab, workerCount=2))
    click(rota, "running", "it", priority=3)
    tab.wait_for(1)
    assert ended(rota, click(rota, "urgent", priority=0, preempt=True))["state"] == "succeeded"
    assert rota.events(kind="attempt_interrupted") == []


def test_a_type_or_a_key_that_is_full_is_freed_by_one_of_its_own(
    serve: Servers, tab: Target
) -> None:
    config = with_tab(tab, workerCount=10)
    rota = serve({**config, "types": {"scan": {"executor": "tab", "maxConcurrent": 1}}})
    least = click(rota, "least", "it", priority=9)
    keyed = click(rota, "keyed", "it", priority=3, key="k")
    scan = rota.submit_native("ann", "scan", tabId="t", priority=3, params={"hold": "it"})
    tab.wait_for(3)
    fields = {"tabId": "t", "priority": 0, "preempt": True}
    ended(rota, rota.submit_native("ann", "scan", **fields))
    ended(rota, click(rota, "urgent", priority=0, preempt=True, key="k"))
    assert [e["task"] for e in rota.events(kind="attempt_interrupted")] == [scan, keyed]
    assert look(rota, least)["state"] == "running"


def test_caps_hold_while_places_are_taken(serve: Servers, tab: Target) -> None:
    rota = serve(with_tab(tab, workerCount=2))
    tasks = [click(rota, "low", "it", priority=3) for _ in range(4)]
    tab.wait_for(2)
    urgent = [click(rota, "urgent", priority=n % 3, preempt=True) for n in range(6)]
    for task_id in urgent:
        assert ended(rota, task_id)["state"] == "succeeded"
    tab.release("it")
    for task_id in tasks:
        assert ended(rota, task_id)["state"] == "succeeded"
    now = 0
    for event in rota.events():
        now += event["kind"] == "task_assigned"
        now -= event["kind"] in ("task_succeeded", "attempt_interrupted")
        assert 0 <= now <= 2


def test_a_paused_agent_or_type_preempts_nobody(rota: Rota, tab: Target) -> None:
    running = click(rota, "running", "it", priority=3)
    tab.wait_for(1)
    for path in ("agents/ann", "types/click", "scheduler"):
        rota.post(f"/v1/{path}/pause")
        urgent = click(rota, "urgent", priority=0, preempt=True)
        settled(rota)
        assert look(rota, urgent)["state"] == "ready"
        rota.post(f"/v1/tasks/{urgent}/cancel")
        rota.post(f"/v1/{path}/resume")
    assert look(rota, running)["state"] == "running"


@pytest.mark.parametrize("path", ["agents/ann", "types/click", "scheduler"])
def test_a_task_that_came_during_a_pause_takes_its_place_after_it(
    rota: Rota, tab: Target, path: str
) -> None:
    click(rota, "running", "it", priority=3)
    tab.wait_for(1)
    rota.post(f"/v1/{path}/pause")
    urgent = click(rota, "urgent", priority=0, preempt=True)
    settled(rota)
    rota.post(f"/v1/{path}/resume")
    assert ended(rota, urgent)["state"] == "succeeded"


def test_a_task_takes_its_place_although_another_that_may_not_is_ahead_of_it(
    serve: Servers, tab: Target
) -> None:
    rota = serve(with_tab(tab, workerCount=2))
    click(rota, "low 1", "one", priority=3)
    click(rota, "low 2", "two", priority=3)
    tab.wait_for(2)
    polite = click(rota, "polite", "polite", priority=0)
    settled(rota)
    assert look(rota, polite)["state"] == "ready"
    assert ended(rota, click(rota, "urgent", priority=0, preempt=True))["state"] == "succeeded"
    rota.when(polite, "running")


def test_a_victim_keeps_its_place_in_the_queue(rota: Rota, tab: Target) -> None:
    click(rota, "victim", "victim", priority=3)
    tab.wait_for(1)
    for n in range(3):
        click(rota, f"later {n}", priority=3)
    ended(rota, click(rota, "urgent", priority=0, preempt=True))
    tab.release("victim")
    tab.wait_for(6)
    assert tab.tags() == ["victim", "urgent", "victim", "later 0", "later 1", "later 2"]


def test_a_pre_emption_survives_a_restart(rota: Rota, tab: Target) -> None:
    victim = click(rota, "victim", "victim", priority=3)
    tab.wait_for(1)
    urgent = click(rota, "urgent", "urgent", priority=0, preempt=True)
    until(lambda: "urgent" in tab.tags())
    rota.restart()
    until(lambda: tab.tags().count("urgent") == 2, what="the urgent one runs again first")
    assert tab.tags() == ["victim", "urgent", "urgent"]
    tab.release("urgent")
    tab.release("victim")
    assert [ended(rota, t)["attempt"] for t in (urgent, victim)] == [1, 1]

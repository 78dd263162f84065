"""`rota cancel | retry | reprioritise`: many tasks by filter, once somebody has said yes."""

from __future__ import annotations

import json

import pytest
from support.http_server import until
from support.terminal import Terminal

from rota.cli import bulk


@pytest.fixture
def waiting(client):
    """Submit tasks that wait for a worker; give their ids."""

    def make(agent, count=1, action="lift", **fields):
        return [client.submit(action, agent, **fields)["taskId"] for _ in range(count)]

    return make


def states(client, ids):
    return [client.get(each)["state"] for each in ids]


def test_a_dry_run_says_how_many(rota, client, waiting):
    ids = waiting("bk1", 2)
    result = rota("cancel", "--agent", "bk1", "--dry-run")
    assert (result.exit_code, result.stdout) == (0, "2 tasks would be cancelled\n")
    assert states(client, ids) == ["ready", "ready"]
    shown = json.loads(rota("cancel", "--agent", "bk1", "--dry-run", "--json").stdout)
    assert shown == {"matched": 2, "changed": 0, "refused": {}, "more": False, "dryRun": True}


def test_without_a_terminal_nothing_is_done_until_yes_is_said(rota, client, waiting):
    ids = waiting("bk2", 2)
    result = rota("cancel", "--agent", "bk2", "--type", "lift")
    assert result.exit_code == 1
    assert "2 tasks would be cancelled, and nobody is there to be asked" in result.stderr
    assert "--yes" in result.stderr
    assert states(client, ids) == ["ready", "ready"]
    result = rota("cancel", "--agent", "bk2", "--type", "lift", "--reason", "over", "--yes")
    assert (result.exit_code, result.stdout) == (0, "2 tasks cancelled\n")
    assert client.get(ids[0])["error"]["message"] == "over"


@pytest.mark.parametrize(("answer", "state"), [("y\n", "cancelled"), ("n\n", "ready")])
def test_on_a_terminal_somebody_is_asked(server, client, waiting, answer, state):
    agent = f"bk3{state}"
    (task,) = waiting(agent)
    with Terminal(100, "cancel", "--agent", agent, url=server.url, with_err=True) as terminal:
        terminal.until("Cancel 1 task? [y/N]")
        terminal.press(answer)
        if state == "ready":
            terminal.until("nothing was done")
        code = terminal.ended()
    assert code == (0 if state == "cancelled" else 1)
    assert states(client, [task]) == [state]


def test_tasks_are_chosen_by_state_key_batch_workflow_and_age(rota, client, waiting):
    (later,) = waiting("bk4", delay_s=3600)
    (keyed,) = waiting("bk4", key="bk4")
    batch = client.submit_batch([{"action": "lift"}], agent="bk4")
    flow = client.submit_workflow([{"action": "lift"}], agent="bk4")

    def cancel(*words):
        return rota("cancel", "--agent", "bk4", *words, "--yes").stdout

    assert cancel("--older-than", "2h") == "0 tasks cancelled\n"
    assert cancel("--state", "scheduled") == "1 task cancelled\n"
    assert cancel("--key", "bk4") == "1 task cancelled\n"
    assert cancel("--batch", batch["batchId"], "--state", "ready") == "1 task cancelled\n"
    assert cancel("--workflow", flow["workflowId"]) == "1 task cancelled\n"
    assert states(client, [later, keyed]) == ["cancelled", "cancelled"]


def test_one_task_and_many_are_given_another_priority(rota, client, waiting):
    first, second = waiting("bk5", 2)
    result = rota("reprioritise", first, "--priority", "high")
    assert result.stdout == f"{first} ready, priority 1\n"
    shown = json.loads(rota("reprioritise", first, "--priority", "0", "--json").stdout)
    assert shown == {"taskId": first, "state": "ready", "priority": 0}
    result = rota("reprioritise", "--agent", "bk5", "--priority", "0", "--yes")
    assert result.stdout == "1 task reprioritised\n"
    assert [client.get(each)["priority"] for each in (first, second)] == [0, 0]


def test_the_failed_ones_are_retried_and_who_cannot_be_is_counted(rota, client):
    ids = [client.submit("fail", "bk6")["taskId"] for _ in range(2)]
    until(lambda: states(client, ids) == ["failed", "failed"])
    assert rota("retry", "--agent", "bk6", "--code", "none", "--yes").stdout == "0 tasks retried\n"
    result = rota("retry", "--agent", "bk6", "--state", "failed", "--yes")
    assert (result.exit_code, result.stdout) == (0, "2 tasks retried\n")
    kinds = [each["kind"] for each in client.events(task_id=ids[0])["events"]]
    assert kinds.count("task_revived") == 1


def test_many_are_changed_a_portion_at_a_time(rota, client, waiting, monkeypatch):
    ids = waiting("bk7", 5)
    asked = []

    def ask(**more):
        asked.append(more)
        return client.cancel_many(agent="bk7", **more)

    monkeypatch.setattr(bulk, "PORTION_TASKS", 2)
    answer = bulk.Many("cancel", ask)._do(4)
    assert asked == [{"limit": 2}, {"limit": 2}]
    assert (answer["changed"], answer["more"]) == (4, True)
    assert states(client, ids).count("ready") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cancel"], "which tasks are meant?"),
        (["retry"], "which tasks are meant?"),
        (["reprioritise", "--priority", "1"], "which tasks are meant?"),
        (["cancel", "--yes"], "which tasks are meant?"),
        (["cancel", "tsk_1", "--agent", "a"], "give either the ID of one task, or filters"),
        (["retry", "tsk_1", "--dry-run"], "give either the ID of one task, or filters"),
        (["cancel", "--all", "--agent", "a"], "give either --all or filters"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_to_type(rota, words, said):
    result = rota(*words)
    assert result.exit_code == 1
    assert said in result.stderr
    assert "try: rota" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["cancel", "--state", "failed"],
        ["retry", "--state", "ready"],
        ["cancel", "--older-than", "long"],
        ["reprioritise", "tsk_1"],
    ],
)
def test_options_that_make_no_sense_are_wrong_usage(rota, words):
    assert rota(*words).exit_code == 2

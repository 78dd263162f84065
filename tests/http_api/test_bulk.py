"""Many tasks at once: cancelled, retried and reprioritised by a filter, and one by its id."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import ended, look, until
from support.tokens import Guarded

from rota.http.bulk_models import BulkDone, Reprioritised
from rota.http.namespaces import OPERATIONS_MAX

if TYPE_CHECKING:
    from support.http_server import Answer, Rota, Servers

FOREVER: dict[str, Any] = {"action": "sleep", "params": {"ms": 600_000}}
ROOMY = {"scheduler": {"maxQueueSize": 50_000, "maxPerAgent": 50_000}}
BAD: dict[str, Any] = {"action": "sleep", "params": {"ms": "long"}}


def submit(rota: Rota, agent: str = "ann", action: str = "lift", **fields: Any) -> str:
    answer = rota.post("/v1/tasks", {"agentId": agent, "action": action, **fields})
    assert answer.status == 202, answer
    return str(answer.json["taskId"])


def bulk(rota: Rota, how: str, **body: Any) -> dict[str, Any]:
    answer = rota.post(f"/v1/tasks/{how}", body)
    assert answer.status == 200, answer
    BulkDone.model_validate(answer.json, strict=True)
    return dict(answer.json)


def done(matched: int, changed: int | None = None, **fields: Any) -> dict[str, Any]:
    """What is answered when all went well, or as `fields` say."""
    changed = matched if changed is None else changed
    usual = {"matched": matched, "changed": changed, "refused": {}, "more": False}
    return {**usual, "dryRun": False, **fields}


def states(rota: Rota, *tasks: str) -> list[str]:
    return [look(rota, task)["state"] for task in tasks]


def in_turn(rota: Rota, agent: str, most: int = 100) -> list[str]:
    """Name the tasks of an agent in the order in which a worker gets them."""
    body = {"workerId": "w", "agents": [agent], "max": most, "waitMs": 0}
    answer = rota.post("/v1/leases", body)
    assert answer.status == 200, answer
    return [lease["taskId"] for lease in answer.json["leases"]]


# -- which are meant -----------------------------------------------------------------------------


def test_what_fits_the_filter_is_cancelled_and_nothing_else(rota: Rota) -> None:
    mine = [submit(rota, "ann", "lift"), submit(rota, "ann", "lift")]
    others = [submit(rota, "ann", "push"), submit(rota, "bob", "lift")]
    assert bulk(rota, "cancel", agentId="ann", type="lift", reason="enough") == done(2)
    assert states(rota, *mine, *others) == ["cancelled", "cancelled", "ready", "ready"]
    assert look(rota, mine[0])["error"]["message"] == "enough"


def test_each_one_is_an_event_with_who_asked_for_it(rota: Rota) -> None:
    task = submit(rota)
    bulk(rota, "reprioritise", agentId="ann", priority="high")
    bulk(rota, "cancel", agentId="ann")
    assert rota.kinds(task) == ["task_submitted", "task_reprioritised", "task_cancelled"]
    event = rota.events(task=task)[1]
    assert event["by"] == "local"
    assert event["data"] == {"priority": 1, "was": 2}


@pytest.mark.parametrize("how", ["cancel", "reprioritise"])
def test_a_dry_run_says_how_many_and_changes_nothing(rota: Rota, how: str) -> None:
    tasks = [submit(rota), submit(rota)]
    more = {"priority": 0} if how == "reprioritise" else {}
    assert bulk(rota, how, agentId="ann", dryRun=True, **more) == done(2, 0, dryRun=True)
    assert states(rota, *tasks) == ["ready", "ready"]
    assert [look(rota, task)["priority"] for task in tasks] == [2, 2]


def test_tasks_are_chosen_by_state_key_batch_and_workflow(rota: Rota) -> None:
    later = submit(rota, delayMs=3_600_000)
    keyed = submit(rota, key="k")
    items = [{"agentId": "ann", "action": "lift"}] * 2
    batch = rota.post("/v1/batches", {"tasks": items}).json["batchId"]
    flow = rota.post("/v1/workflows", {"tasks": items}).json["workflowId"]
    assert bulk(rota, "cancel", state="scheduled") == done(1)
    assert bulk(rota, "cancel", key="k") == done(1)
    assert bulk(rota, "cancel", batchId=batch, state=["ready", "blocked"]) == done(2)
    assert bulk(rota, "cancel", workflowId=flow) == done(2)
    assert states(rota, later, keyed) == ["cancelled", "cancelled"]
    assert rota.get(f"/v1/batches/{batch}").json["state"] != "running"
    assert bulk(rota, "cancel", all=True) == done(0)


def test_tasks_are_chosen_by_their_age(rota: Rota) -> None:
    task = submit(rota)
    created = look(rota, task)["createdAt"]
    assert bulk(rota, "cancel", olderThanMs=3_600_000) == done(0)
    assert bulk(rota, "cancel", createdBefore=created) == done(0)
    assert bulk(rota, "cancel", createdBefore="2100-01-01T00:00:00Z") == done(1)
    assert states(rota, task) == ["cancelled"]


def test_what_runs_is_cancelled_too_and_frees_its_slot(rota: Rota) -> None:
    running = submit(rota, **FOREVER)
    rota.when(running, "running")
    waits = submit(rota)
    assert bulk(rota, "cancel", state="running") == done(1)
    assert states(rota, running, waits) == ["cancelled", "ready"]


def test_a_repeat_finds_nothing_left_to_do(rota: Rota) -> None:
    submit(rota)
    assert bulk(rota, "reprioritise", all=True, priority=0) == done(1)
    assert bulk(rota, "reprioritise", all=True, priority=0) == done(0)
    assert bulk(rota, "cancel", all=True) == done(1)
    assert bulk(rota, "cancel", all=True) == done(0)


def test_a_limit_is_kept_and_the_same_again_goes_on(rota: Rota) -> None:
    for _ in range(5):
        submit(rota)
    assert bulk(rota, "cancel", agentId="ann", limit=3) == done(3, more=True)
    assert bulk(rota, "cancel", agentId="ann", limit=3) == done(2)


# -- another priority ----------------------------------------------------------------------------


def test_a_task_with_a_better_priority_goes_first(rota: Rota) -> None:
    first, second, third = (submit(rota) for _ in range(3))
    answer = rota.post(f"/v1/tasks/{third}/reprioritise", {"priority": "critical"})
    assert answer.json == {"taskId": third, "state": "ready", "priority": 0}
    Reprioritised.model_validate(answer.json, strict=True)
    assert rota.post(f"/v1/tasks/{first}/reprioritise", {"priority": 9}).status == 200
    assert in_turn(rota, "ann") == [third, second, first]


def test_many_tasks_with_a_worse_priority_go_last_in_the_order_they_came_in(rota: Rota) -> None:
    lifts = [submit(rota, "ann", "lift") for _ in range(3)]
    pushes = [submit(rota, "ann", "push") for _ in range(2)]
    assert bulk(rota, "reprioritise", type="lift", priority="low") == done(3)
    assert in_turn(rota, "ann") == [*pushes, *lifts]


def test_the_order_outlives_a_restart(serve: Servers) -> None:
    rota = serve()
    first, second = submit(rota), submit(rota)
    rota.post(f"/v1/tasks/{second}/reprioritise", {"priority": 0})
    rota.restart()
    assert look(rota, second)["priority"] == 0
    assert in_turn(rota, "ann") == [second, first]


def test_the_priority_of_a_running_task_counts_for_its_next_attempt(rota: Rota) -> None:
    running = submit(rota, **FOREVER)
    rota.when(running, "running")
    answer = rota.post(f"/v1/tasks/{running}/reprioritise", {"priority": 5})
    assert answer.json == {"taskId": running, "state": "running", "priority": 5}
    assert look(rota, running)["priority"] == 5


def test_a_task_that_has_ended_keeps_its_priority(rota: Rota) -> None:
    task = submit(rota)
    rota.post(f"/v1/tasks/{task}/cancel")
    answer = rota.post(f"/v1/tasks/{task}/reprioritise", {"priority": 0})
    assert (answer.status, answer.code) == (409, "conflict")
    assert rota.post("/v1/tasks/tsk_none/reprioritise", {"priority": 0}).status == 404


def test_the_same_priority_again_is_no_event(rota: Rota) -> None:
    task = submit(rota)
    for _ in range(2):
        assert rota.post(f"/v1/tasks/{task}/reprioritise", {"priority": 0}).status == 200
    assert rota.kinds(task) == ["task_submitted", "task_reprioritised"]


# -- new lives -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [100, 1])
def test_failed_tasks_are_retried_also_when_they_have_left_memory(
    serve: Servers, kept: int
) -> None:
    rota = serve({"scheduler": {"maxEndedTasks": kept}})
    tasks = [submit(rota, **BAD) for _ in range(3)]
    other = submit(rota, "bob", **BAD)
    for task in (*tasks, other):
        assert ended(rota, task)["state"] == "failed"
    assert bulk(rota, "retry", agentId="ann", dryRun=True) == done(3, 0, dryRun=True)
    assert bulk(rota, "retry", agentId="ann", code="none") == done(0)
    assert bulk(rota, "retry", agentId="ann") == done(3)
    for task in tasks:
        assert ended(rota, task)["state"] == "failed"
        assert rota.kinds(task).count("task_revived") == 1
    assert "task_revived" not in rota.kinds(other)


def test_who_cannot_be_retried_is_counted_by_the_code_that_says_why(serve: Servers) -> None:
    rota = serve({"scheduler": {"maxPerAgent": 2}})
    for _ in range(3):
        assert ended(rota, submit(rota, **BAD))["state"] == "failed"
    rota.post("/v1/agents/ann/pause")
    assert bulk(rota, "retry", agentId="ann", limit=1) == done(1, more=True)
    assert bulk(rota, "retry", agentId="ann") == done(2, 1, refused={"queue_full": 1})


# -- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["cancel", "retry", "reprioritise"])
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"dryRun": True},
        {"all": True, "agentId": "ann"},
        {"agentId": ""},
        {"agentId": 7},
        {"state": "asleep"},
        {"state": []},
        {"state": ["ready", "succeeded"]},
        {"state": "succeeded"},
        {"olderThanMs": -1},
        {"olderThanMs": 10**15},
        {"olderThanMs": "2h"},
        {"createdBefore": "yesterday"},
        {"createdBefore": "2026-01-01T00:00:00Z", "olderThanMs": 1},
        {"agentId": "ann", "limit": 0},
        {"agentId": "ann", "force": True},
        {"agentId": "ann", "dryRun": "perhaps"},
        [],
        "all",
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused_with_a_sentence(rota: Rota, how: str, body: Any) -> None:
    if isinstance(body, dict) and how == "reprioritise":
        body = {"priority": 1, **body}
    task = submit(rota)
    answer = rota.post(f"/v1/tasks/{how}", body)
    assert (answer.status, answer.code) == (400, "bad_request"), answer
    assert len(answer.json["error"]) > 10
    assert rota.kinds(task) == ["task_submitted"]


@pytest.mark.parametrize("priority", [None, -1, 10**9, "soon", 1.5, [], True])
def test_a_priority_that_is_none_is_refused(rota: Rota, priority: Any) -> None:
    task = submit(rota)
    for path in (f"/v1/tasks/{task}/reprioritise", "/v1/tasks/reprioritise"):
        more = {"agentId": "ann"} if path.count("/") == 3 else {}
        answer = rota.post(path, {"priority": priority, **more})
        assert answer.status == 400, answer
    assert rota.post(f"/v1/tasks/{task}/reprioritise").status == 400
    assert rota.kinds(task) == ["task_submitted"]


# -- who may -------------------------------------------------------------------------------------


def test_a_token_for_some_agents_reaches_their_tasks_alone(serve: Servers) -> None:
    guarded = Guarded(serve)
    guarded.make("ann-bot", "submit", "ann")
    rota = guarded.rota
    mine, theirs = submit(rota, "ann"), submit(rota, "bob")
    dead = submit(rota, "bob", **BAD)
    assert ended(rota, dead)["state"] == "failed"

    def ask(how: str, **body: Any) -> Answer:
        return guarded.ask("ann-bot", "POST", f"/v1/tasks/{how}", body)

    assert ask("reprioritise", all=True, priority=0).json == done(1)
    assert ask("cancel", all=True, dryRun=True).json == done(1, 0, dryRun=True)
    assert ask("cancel", agentId="bob").json == done(0)
    assert ask("retry", all=True).json == done(0)
    assert ask("cancel", all=True).json == done(1)
    assert ask(f"{theirs}/reprioritise", priority=0).status == 404
    assert states(rota, mine, theirs, dead) == ["cancelled", "ready", "failed"]
    assert look(rota, theirs)["priority"] == 2


def test_whoever_may_not_cancel_one_may_not_cancel_many(serve: Servers) -> None:
    guarded = Guarded(serve)
    guarded.make("eye", "audit")
    submit(guarded.rota)
    for how in ("cancel", "retry", "reprioritise"):
        body = {"all": True, **({"priority": 0} if how == "reprioritise" else {})}
        assert guarded.ask("eye", "POST", f"/v1/tasks/{how}", body).status == 403


# -- many ----------------------------------------------------------------------------------------


def fill(rota: Rota, count: int, agent: str = "ann") -> None:
    items = [{"agentId": agent, "action": "lift"}] * 1000
    for _ in range(count // 1000):
        assert rota.post("/v1/batches", {"tasks": items}).status == 202


def test_others_are_answered_while_twenty_thousand_are_cancelled(serve: Servers) -> None:
    """By the order of the log: what was recorded in between stands among the cancels."""
    rota = serve(ROOMY)
    fill(rota, 20_000)
    answers: list[dict[str, Any]] = []
    one = threading.Thread(target=lambda: answers.append(bulk(rota, "cancel", agentId="ann")))
    with rota.stream("/v1/events/stream?kind=task_cancelled") as stream:
        one.start()
        (first,) = stream.take(1)
        assert rota.get("/health").status == 200
        assert rota.post("/v1/agents/zoe/pause").status == 200
        one.join()
    assert answers == [done(20_000)]
    (pause,) = rota.events(kind="agent_paused", after=first.id)
    later = rota.events(kind="task_cancelled", after=pause["seq"], limit=1)
    assert later, "the pause was answered after the last of the cancels"
    assert bulk(rota, "cancel", agentId="ann") == done(0)


def test_an_operation_whose_client_has_left_ends_and_the_same_again_goes_on(
    serve: Servers,
) -> None:
    rota = serve(ROOMY)
    fill(rota, 20_000)
    body = b'{"agentId": "ann"}'
    with rota.stream("/v1/events/stream?kind=task_cancelled") as stream:
        with rota.connected() as sock:
            head = b"POST /v1/tasks/cancel HTTP/1.1\r\nHost: localhost\r\n"
            sock.sendall(head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
            stream.take(1)
        until(lambda: rota.inside(lambda s: not operations(s).held), what="it has ended")
    left = bulk(rota, "cancel", agentId="ann", dryRun=True)["matched"]
    assert 0 < left < 20_000
    assert bulk(rota, "cancel", agentId="ann") == done(left)


def test_only_so_many_operations_run_at_once(rota: Rota) -> None:
    submit(rota)
    bound = rota.inside(operations)
    bound.add("token one", OPERATIONS_MAX)
    for how in ("cancel", "retry"):
        answer = rota.post(f"/v1/tasks/{how}", {"all": True})
        assert (answer.status, answer.code) == (503, "too_many_operations")
    bound.give_back("token one")
    assert bulk(rota, "cancel", all=True) == done(1)
    assert bound.held == OPERATIONS_MAX - 1


def operations(server: Any) -> Any:
    return server.app.namespaces.default.operations

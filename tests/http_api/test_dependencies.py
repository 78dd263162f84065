"""dependsOn: what a task waits for, what becomes of it, and what its parents leave it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import Rota, Servers, Target, ended, look, until, with_tab

from rota.config import DEPENDS_MAX
from rota.domain.dependencies import PATH_SHOWN_MAX

if TYPE_CHECKING:
    from support.http_server import Answer


@pytest.fixture
def rota(serve: Servers, tab: Target) -> Rota:
    """A server whose `click` tasks end when the test lets them."""
    return serve(with_tab(tab))


def held(rota: Rota, name: str, **fields: Any) -> str:
    """Submit a task that runs until the browser lets `name` go."""
    return rota.submit_native(action="click", tabId="t", params={"hold": name}, **fields)


def batch(rota: Rota, *tasks: dict[str, Any], agent: str = "ann") -> Answer:
    items = [{"action": "echo", **task} for task in tasks]
    return rota.post("/v1/batches", {"agentId": agent, "tasks": items})


def batch_ids(answer: Answer) -> list[str]:
    assert answer.status == 202, answer
    return [task["taskId"] for task in answer.json["tasks"]]


def seq_of(rota: Rota, task_id: str, kind: str) -> int:
    (found,) = [event["seq"] for event in rota.events(task=task_id) if event["kind"] == kind]
    return int(found)


def head(rota: Rota) -> int:
    return int(rota.get("/v1/events/head").json["seq"])


def refused(rota: Rota, answer: Answer, before: int) -> dict[str, Any]:
    """Check that an answer is a 400 and that nothing was recorded since `before`."""
    assert answer.status == 400, answer
    assert head(rota) == before
    found: dict[str, Any] = answer.json
    return found


# -- waiting -------------------------------------------------------------------------------------


def test_a_task_waits_visibly_for_everything_it_depends_on(rota: Rota, tab: Target) -> None:
    one, two = held(rota, "one"), held(rota, "two")
    answer = rota.post("/v1/tasks", {"agentId": "bob", "action": "echo", "dependsOn": [one, two]})
    assert (answer.status, answer.json["state"]) == (202, "blocked")
    child = answer.json["taskId"]
    task = look(rota, child)
    assert (task["state"], task["dependsOn"]) == ("blocked", [one, two])
    assert task["waitingFor"] == sorted([one, two])
    tab.release("one")
    ended(rota, one)
    assert look(rota, child)["waitingFor"] == [two]
    tab.release("two")
    done = ended(rota, child)
    assert done["state"] == "succeeded"
    assert "waitingFor" not in done
    started = seq_of(rota, child, "task_assigned")
    assert started > max(seq_of(rota, p, "task_succeeded") for p in (one, two))
    assert rota.kinds(child)[:2] == ["task_submitted", "task_released"]
    (released,) = rota.events(task=child, kind="task_released")
    assert released["data"] == {"after": "dependencies"}


def test_a_dependency_that_has_succeeded_holds_nothing_up(rota: Rota) -> None:
    parent = rota.submit_native()
    ended(rota, parent)
    answer = rota.post("/v1/tasks", {"agentId": "bob", "action": "echo", "dependsOn": [parent]})
    assert (answer.status, answer.json["state"]) == (202, "ready")
    assert ended(rota, answer.json["taskId"])["dependsOn"] == [parent]


def test_a_dependency_named_twice_counts_once(rota: Rota, tab: Target) -> None:
    parent = held(rota, "it")
    child = rota.submit_native(dependsOn=[parent, parent])
    assert look(rota, child)["waitingFor"] == [parent]
    tab.release("it")
    assert ended(rota, child)["state"] == "succeeded"


def test_a_blocked_task_counts_as_waiting_and_can_be_cancelled(rota: Rota) -> None:
    child = rota.submit_native(dependsOn=["later"])
    assert rota.get("/v1/stats").json["queue"]["waiting"] == 1
    assert rota.get("/v1/tasks?state=blocked").json["count"] == 1
    assert rota.post(f"/v1/tasks/{child}/cancel").status == 200
    assert rota.get("/v1/stats").json["queue"]["waiting"] == 0
    rota.submit_native(taskId="later")
    ended(rota, "later")
    assert look(rota, child)["state"] == "cancelled"


def test_a_blocked_task_survives_a_restart(rota: Rota, tab: Target) -> None:
    parent = held(rota, "it")
    child = rota.submit_native(dependsOn=[parent, "later"])
    before = look(rota, child)
    rota.restart()
    assert look(rota, child) == before
    tab.release("it")
    until(lambda: look(rota, child)["waitingFor"] == ["later"], what="the parent has run again")
    rota.restart()
    assert look(rota, child)["waitingFor"] == ["later"]
    rota.submit_native(taskId="later")
    assert ended(rota, child)["state"] == "succeeded"


# -- ids of the client's choice ------------------------------------------------------------------


def test_a_missing_dependency_is_waited_for_until_it_is_submitted(rota: Rota) -> None:
    child = rota.submit_native("bob", dependsOn=["parent-1"])
    assert look(rota, child)["waitingFor"] == ["parent-1"]
    answer = rota.post("/v1/tasks", {"agentId": "ann", "action": "echo", "taskId": "parent-1"})
    assert (answer.status, answer.json["taskId"]) == (202, "parent-1")
    assert ended(rota, child)["state"] == "succeeded"
    assert seq_of(rota, child, "task_assigned") > seq_of(rota, "parent-1", "task_succeeded")


def test_an_id_can_be_chosen_once(rota: Rota) -> None:
    rota.submit_native(taskId="mine")
    ended(rota, "mine")
    again = rota.post("/v1/tasks", {"agentId": "bob", "action": "echo", "taskId": "mine"})
    assert (again.status, again.code) == (409, "id_taken")
    assert again.json["details"] == {"taskId": "mine"}
    before = head(rota)
    for items in ([{"taskId": "mine"}], [{"taskId": "new"}, {"taskId": "new"}]):
        answer = batch(rota, *items)
        assert (answer.status, answer.code) == (409, "id_taken")
    assert head(rota) == before
    assert look(rota, "mine")["agentId"] == "ann"


def test_a_rejected_submission_leaves_its_id_free(serve: Servers) -> None:
    rota = serve({"scheduler": {"maxQueueSize": 1}})
    waits = rota.submit_native(action="waits")
    body = {"agentId": "ann", "action": "waits", "taskId": "mine"}
    assert rota.post("/v1/tasks", body).status == 429
    assert rota.get("/v1/tasks/mine").status == 404
    rota.post(f"/v1/tasks/{waits}/cancel")
    assert rota.post("/v1/tasks", body).json["taskId"] == "mine"


def test_on_missing_fail_refuses_what_does_not_exist(rota: Rota) -> None:
    before = head(rota)
    body = {"agentId": "ann", "action": "echo", "onMissing": "fail", "dependsOn": ["nobody"]}
    problem = refused(rota, rota.post("/v1/tasks", body), before)
    assert problem["code"] == "missing_dependency"
    assert problem["details"] == {"field": "dependsOn", "taskId": "nobody"}
    answer = batch(rota, {}, {"onMissing": "fail", "dependsOn": [0, "nobody"]})
    assert refused(rota, answer, before)["code"] == "missing_dependency"
    assert rota.get("/v1/tasks").json["count"] == 0


def test_on_missing_fail_takes_what_exists_or_comes_with_it(rota: Rota) -> None:
    parent = rota.submit_native(action="waits")
    assert rota.submit_native(onMissing="fail", dependsOn=[parent])
    strict = {"onMissing": "fail", "dependsOn": [0, "ref:b", "c"]}
    ids = batch_ids(batch(rota, {}, {"ref": "b"}, {"taskId": "c"}, strict))
    assert ended(rota, ids[3])["state"] == "succeeded"


# -- batches -------------------------------------------------------------------------------------


def test_items_of_a_batch_name_each_other_by_ref_index_and_id(rota: Rota, tab: Target) -> None:
    outside = held(rota, "outside")
    answer = batch(
        rota,
        {"ref": "last", "dependsOn": ["ref:first", 3, outside]},
        {"ref": "first"},
        {"dependsOn": [1]},
        {"taskId": "own", "dependsOn": ["ref:first", 2]},
    )
    last, first, second, own = batch_ids(answer)
    states = [task["state"] for task in answer.json["tasks"]]
    assert states == ["blocked", "ready", "blocked", "blocked"]
    assert ended(rota, own)["dependsOn"] == [first, second]
    assert look(rota, last)["waitingFor"] == [outside]
    tab.release("outside")
    assert ended(rota, last)["state"] == "succeeded"
    order = [
        e["task"] for e in rota.events(kind="task_assigned") if e["task"] in (last, first, own)
    ]
    assert order == [first, own, last]


def test_no_dependency_is_lost_because_two_names_look_alike(rota: Rota) -> None:
    """A ref, an index and an id of three different tasks can be the same word."""
    outside = rota.submit_native(taskId="1", action="waits")
    waits = {"action": "waits"}
    answer = batch(rota, {"ref": "1", **waits}, waits, {"dependsOn": [0, 1, outside]})
    if answer.status == 202:
        ids = batch_ids(answer)
        assert look(rota, ids[2])["waitingFor"] == sorted([ids[0], ids[1], outside])
    else:
        assert (answer.status, answer.json["details"]["field"]) == (400, "dependsOn")


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([{"dependsOn": [1]}], "no item 1"),
        ([{"dependsOn": [2**63]}], "no item"),
        ([{}, {"dependsOn": ["ref:nobody"]}], "no item of this batch has the ref 'nobody'"),
        ([{"ref": "x"}, {"ref": "x"}, {"dependsOn": ["ref:x"]}], "more than one item"),
        ([{}, {"dependsOn": ["ref:"]}], "ref"),
    ],
)
def test_a_name_that_is_nobodys_is_refused(
    rota: Rota, items: list[dict[str, Any]], said: str
) -> None:
    before = head(rota)
    problem = refused(rota, batch(rota, *items), before)
    assert problem["details"]["field"] == "dependsOn"
    assert said in problem["error"]


def test_a_ref_means_nothing_outside_a_batch(rota: Rota) -> None:
    before = head(rota)
    body = {"agentId": "ann", "action": "echo", "dependsOn": ["ref:x"]}
    assert (
        "'ref:x' means an item of a batch"
        in refused(rota, rota.post("/v1/tasks", body), before)["error"]
    )


# -- cycles --------------------------------------------------------------------------------------


def test_a_task_cannot_wait_for_itself(rota: Rota) -> None:
    before = head(rota)
    body = {"agentId": "ann", "action": "echo", "taskId": "me", "dependsOn": ["other", "me"]}
    problem = refused(rota, rota.post("/v1/tasks", body), before)
    assert (problem["code"], problem["details"]["path"]) == ("dependency_cycle", ["me", "me"])


def test_a_cycle_through_tasks_that_exist_is_refused_with_its_path(rota: Rota) -> None:
    rota.submit_native(taskId="a", dependsOn=["b"])
    rota.submit_native(taskId="b", dependsOn=["x", "c"])
    before = head(rota)
    body = {"agentId": "ann", "action": "echo", "taskId": "c", "dependsOn": ["a"]}
    problem = refused(rota, rota.post("/v1/tasks", body), before)
    assert problem["code"] == "dependency_cycle"
    assert problem["details"]["path"] == ["c", "a", "b", "c"]
    assert "c -> a -> b -> c" in problem["error"]
    answer = batch(rota, {"taskId": "c", "dependsOn": ["ref:d"]}, {"ref": "d", "dependsOn": ["a"]})
    assert refused(rota, answer, before)["details"]["path"][0] == "c"
    rota.restart()
    assert rota.post("/v1/tasks", body).code == "dependency_cycle"
    rota.post("/v1/tasks/b/cancel")
    until(lambda: look(rota, "a")["state"] == "cancelled", what="a falls with b")
    assert rota.post("/v1/tasks", body).status == 202


@pytest.mark.parametrize(
    "items",
    [
        [{"dependsOn": [0]}],
        [{"ref": "a", "dependsOn": ["ref:a"]}],
        [{"taskId": "a", "dependsOn": ["a"]}],
        [{"dependsOn": [1]}, {"dependsOn": [0]}],
        [{}, {"ref": "a", "dependsOn": [2, 0]}, {"taskId": "b", "dependsOn": ["ref:a"]}],
        [
            {"taskId": "a", "dependsOn": ["b"]},
            {"taskId": "b", "dependsOn": [2]},
            {"dependsOn": [0]},
        ],
    ],
)
def test_a_cycle_inside_a_batch_is_refused_with_its_path(
    rota: Rota, items: list[dict[str, Any]]
) -> None:
    before = head(rota)
    problem = refused(rota, batch(rota, *items), before)
    assert problem["code"] == "dependency_cycle"
    path = problem["details"]["path"]
    assert path[0] == path[-1]
    assert len(set(path)) == len(path) - 1 >= 1


def test_a_long_cycle_is_shown_in_part(serve: Servers) -> None:
    rota = serve({"scheduler": {"maxQueueSize": 2000, "maxPerAgent": 2000}})
    items = [{"dependsOn": [(at + 1) % 1000]} for at in range(1000)]
    before = head(rota)
    path = refused(rota, batch(rota, *items), before)["details"]["path"]
    assert (len(path), path[-1]) == (PATH_SHOWN_MAX + 1, "...")


# -- parents that do not succeed -----------------------------------------------------------------


def soon_over(rota: Rota, how: str) -> str:
    """Submit a parent that ends in some bad way when `end_it` says so."""
    rota.post("/v1/agents/ann/pause")
    fields = {"queue_timeout": {"queueTimeoutMs": 100}, "timeout": {"timeoutMs": 20}}.get(how, {})
    action = {"failed": "fail", "timeout": "sleep"}.get(how, "echo")
    params = {"params": {"ms": 60_000}} if how == "timeout" else {}
    return rota.submit_native("ann", action, **fields, **params)


def end_it(rota: Rota, task_id: str, how: str) -> None:
    if how == "cancelled":
        rota.post(f"/v1/tasks/{task_id}/cancel")
    elif how != "queue_timeout":
        rota.post("/v1/agents/ann/resume")


@pytest.mark.parametrize("how", ["failed", "cancelled", "queue_timeout", "timeout"])
def test_a_parent_that_does_not_succeed_takes_its_dependents_with_it(rota: Rota, how: str) -> None:
    parent = soon_over(rota, how)
    child = rota.submit_native("bob", dependsOn=[parent, "somebody else"])
    grandchild = rota.submit_native("eve", dependsOn=[child])
    last = rota.submit_native("eve", dependsOn=["yet another", grandchild])
    end_it(rota, parent, how)
    word = "was cancelled" if how == "cancelled" else "failed"
    assert ended(rota, child)["error"] == {
        "code": "dependency_failed",
        "message": f"dependency {parent} {word}",
    }
    for task_id, above in ((grandchild, child), (last, grandchild)):
        task = ended(rota, task_id)
        assert (task["state"], task["attempt"]) == ("cancelled", 0)
        assert task["error"]["message"] == f"dependency {above} was cancelled"
        assert rota.kinds(task_id) == ["task_submitted", "task_cancelled"]
    assert rota.get("/v1/stats").json["queue"]["waiting"] == 0


def test_a_task_that_comes_after_its_parents_end_is_cancelled_at_once(rota: Rota) -> None:
    parent = rota.submit_native(action="fail")
    ended(rota, parent)
    child = rota.submit_native(dependsOn=[parent])
    task = look(rota, child)
    assert (task["state"], task["error"]["code"]) == ("cancelled", "dependency_failed")
    ids = batch_ids(batch(rota, {"dependsOn": [parent]}, {"dependsOn": [0]}, {}))
    assert [ended(rota, i)["state"] for i in ids] == ["cancelled", "cancelled", "succeeded"]


def test_whoever_waits_for_somebody_else_is_left_alone(rota: Rota, tab: Target) -> None:
    good, bad = held(rota, "good"), held(rota, "bad")
    of_both, of_good = (rota.submit_native(dependsOn=d) for d in ([good, bad], [good]))
    rota.post(f"/v1/tasks/{bad}/cancel")
    assert ended(rota, of_both)["state"] == "cancelled"
    assert look(rota, of_good)["waitingFor"] == [good]
    tab.release("good")
    assert ended(rota, of_good)["state"] == "succeeded"
    assert look(rota, of_both)["state"] == "cancelled"


def test_a_dependents_callback_tells_why_it_never_ran(rota: Rota, hooks: Target) -> None:
    child = rota.submit_native(dependsOn=["parent"], callbackUrl=hooks.url)
    rota.submit_native(taskId="parent", action="fail")
    (request,) = hooks.wait_for(1)
    assert request.headers["x-rota-event"] == "task.cancelled"
    assert request.body["error"] == {
        "code": "dependency_failed",
        "message": "dependency parent failed",
    }
    assert request.body["taskId"] == child


def test_a_parent_that_is_retried_by_hand_is_waited_for_again(rota: Rota) -> None:
    parent = rota.submit_native(action="fail")
    lost = rota.submit_native(dependsOn=[parent])
    ended(rota, lost)
    rota.post("/v1/agents/ann/pause")
    assert rota.post(f"/v1/tasks/{parent}/retry").status == 202
    child = rota.submit_native("bob", dependsOn=[parent])
    assert look(rota, child)["waitingFor"] == [parent]
    rota.post("/v1/agents/ann/resume")
    assert ended(rota, child)["state"] == "cancelled"
    assert rota.kinds(lost).count("task_cancelled") == 1


def test_a_rejected_task_cannot_be_depended_on(serve: Servers) -> None:
    rota = serve({"scheduler": {"maxQueueSize": 2}})
    for _ in range(2):
        rota.submit_native(action="waits")
    assert rota.post("/v1/tasks", {"agentId": "ann", "action": "waits"}).status == 429
    (row,) = rota.get("/v1/tasks?state=rejected").json["tasks"]
    for task in rota.get("/v1/tasks?state=ready").json["tasks"]:
        rota.post(f"/v1/tasks/{task['taskId']}/cancel")
    before = head(rota)
    body = {"agentId": "ann", "action": "echo", "dependsOn": [row["taskId"]]}
    problem = refused(rota, rota.post("/v1/tasks", body), before)
    assert problem["code"] == "dependency_rejected"
    assert problem["details"]["taskId"] == row["taskId"]
    answer = batch(rota, {}, {"dependsOn": [0, row["taskId"]]})
    assert refused(rota, answer, before)["code"] == "dependency_rejected"


# -- what has left memory ------------------------------------------------------------------------


def test_a_dependency_that_has_left_memory_still_counts(serve: Servers) -> None:
    rota = serve({"scheduler": {"resultTTLSec": 1}})
    good = rota.submit_native(params={"n": 7})
    bad = rota.submit_native(action="fail")
    ended(rota, bad)
    until(lambda: rota.get("/v1/tasks").json["count"] == 0, what="they are past their retention")
    ended(rota, rota.submit_native())
    assert rota.get("/v1/stats").json["queue"]["tasksInMemory"] == 1
    child = rota.submit_native(
        dependsOn=[good], onMissing="fail", params={"n": f"{{{{{good}.echo.n}}}}"}
    )
    assert ended(rota, child)["result"] == {"echo": {"n": 7}}
    lost = rota.submit_native(dependsOn=[bad])
    assert ended(rota, lost)["error"]["message"] == f"dependency {bad} failed"


# -- results flow --------------------------------------------------------------------------------

LEFT = {"text": "hi", "n": 7, "list": [1, {"deep": None}], "odd key": "é", "0": "zero"}


FILLED: list[tuple[Any, Any]] = [
    ("{{p}}", {"echo": LEFT}),
    ("{{ p.echo }}", LEFT),
    ("{{p.echo.text}}", "hi"),
    ("{{p.echo.n}}", 7),
    ("{{p.echo.list.1.deep}}", None),
    ("{{p.echo.list.0}}", 1),
    ("{{p.echo.0}}", "zero"),
    ("{{p.echo.odd key}}", "é"),
    ("{{p.echo.list}} and {{p.echo.text}}", '[1,{"deep":null}] and hi'),
    ("n={{p.echo.n}}", "n=7"),
    ("{{p.echo.nowhere.at.all}}", None),
    ("{{p.echo.list.9}}", None),
    ("got {{p.echo.nowhere}}.", "got null."),
    ("{{nobody}}", "{{nobody}}"),
    ("{{nobody.x}} {{p.echo.n}}", "{{nobody.x}} 7"),
    ("{{dotted.id}}", {"echo": {"of": "dotted"}}),
    ("{{dotted.id.echo.of}}", "dotted"),
    ("{{}} {{ }} {p} {{p", "{{}} {{ }} {p} {{p"),
    ("no placeholder", "no placeholder"),
    ({"a": ["{{p.echo.n}}", {"b": "{{p.echo.text}}"}]}, {"a": [7, {"b": "hi"}]}),
    (12, 12),
]


def test_results_flow_into_params(rota: Rota) -> None:
    rota.submit_native(taskId="p", params=LEFT)
    rota.submit_native(taskId="dotted.id", params={"of": "dotted"})
    asked = {str(at): given for at, (given, _) in enumerate(FILLED)}
    task = ended(rota, rota.submit_native(dependsOn=["p", "dotted.id"], params=asked))
    assert task["params"] == asked
    found = task["result"]["echo"]
    assert [(given, found[str(at)]) for at, (given, _) in enumerate(FILLED)] == FILLED


def test_results_flow_under_the_names_of_a_batch(rota: Rota, tab: Target) -> None:
    params = {"a": "{{first.n}}", "b": "{{1.echo.n}}", "c": "{{own.echo.n}}", "tag": "child"}
    answer = batch(
        rota,
        {"ref": "first", "action": "click", "tabId": "t", "params": {"json": {"n": [1]}}},
        {"params": {"n": 2}},
        {"taskId": "own", "params": {"n": 3}},
        {
            "action": "click",
            "tabId": "t",
            "dependsOn": ["ref:first", 1, "own"],
            "params": params,
        },
    )
    assert ended(rota, batch_ids(answer)[3])["state"] == "succeeded"
    (request,) = [r for r in tab.requests if r.tag == "child"]
    assert {name: request.body[name] for name in "abc"} == {"a": [1], "b": 2, "c": 3}


def test_results_flow_again_after_a_restart(rota: Rota, tab: Target) -> None:
    rota.submit_native(taskId="p", params={"n": 1})
    child = held(rota, "child", dependsOn=["p"])
    tab.wait_for(1)
    other = rota.submit_native(dependsOn=["p", child], params={"n": "{{p.echo.n}}"})
    rota.restart()
    tab.release("child")
    assert ended(rota, other)["result"] == {"echo": {"n": 1}}


def test_results_that_are_too_large_fail_the_task_once(rota: Rota) -> None:
    rota.submit_native(taskId="p", params={"text": "x" * 1_000_000})
    child = rota.submit_native(
        dependsOn=["p"],
        params={"all": ["{{p.echo.text}}"] * 9},
        retry={"kind": "fixed", "baseMs": 0, "maxAttempts": 5},
    )
    task = ended(rota, child)
    assert (task["state"], task["attempt"]) == ("failed", 1)
    assert task["error"]["code"] == "bad_params"
    assert "larger than" in task["error"]["message"]


# -- many ----------------------------------------------------------------------------------------


def test_a_chain_of_tasks_runs_link_by_link(serve: Servers) -> None:
    rota = serve({"scheduler": {"maxQueueSize": 500, "maxPerAgent": 500}})
    items = [{"dependsOn": [at - 1] if at else []} for at in range(200)]
    ids = batch_ids(batch(rota, *items))
    assert ended(rota, ids[-1])["state"] == "succeeded"
    assert [e["task"] for e in rota.events(kind="task_assigned")] == ids


@pytest.mark.parametrize("fate", ["completed", "cancelled"])
def test_ten_thousand_dependents_are_settled_while_the_server_goes_on_answering(
    serve: Servers, tab: Target, fate: str
) -> None:
    limits = {"maxQueueSize": 20_000, "maxPerAgent": 20_000, "maxPerAgentInflight": 20}
    rota = serve(with_tab(tab, workerCount=20, **limits))
    parent = held(rota, "it")
    for _ in range(10):
        assert batch(rota, *[{"dependsOn": [parent]}] * 1000, agent="bob").status == 202
    if fate == "completed":
        tab.release("it")
    else:
        rota.post(f"/v1/tasks/{parent}/cancel")
    seen: list[int] = []
    until(
        lambda: seen.append(rota.get("/health").json["queue"]["queued"]) or seen[-1] == 0,
        within_s=60,
        what="all are settled",
    )
    assert seen == sorted(seen, reverse=True)
    assert len({count for count in seen if 0 < count < 10_000}) >= 3
    until(lambda: rota.get("/v1/stats").json["total"][fate] == 10_001, what="all have ended")


def test_a_thousand_dependencies_are_taken_and_one_more_is_refused(rota: Rota) -> None:
    many = [f"parent-{n}" for n in range(DEPENDS_MAX)]
    child = rota.submit_native(dependsOn=many)
    assert look(rota, child)["waitingFor"] == sorted(many)
    before = head(rota)
    for count in (DEPENDS_MAX + 1, 90_000):
        depends = [f"parent-{n}" for n in range(count)]
        body = {"agentId": "ann", "action": "echo", "dependsOn": depends}
        problem = refused(rota, rota.post("/v1/tasks", body), before)
        assert problem["details"]["field"] == "dependsOn"
        assert str(DEPENDS_MAX) in problem["error"]
        answer = batch(rota, {"dependsOn": depends})
        assert refused(rota, answer, before)["details"]["field"] == "tasks.0.dependsOn"

"""Who may do what: every route under every role, and what an agent's token gets to know of others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import until
from support.tokens import Guarded

from rota.http.access import Caller
from rota.http.call import Call
from rota.http.problems import HttpProblem
from rota.http.route import Route
from rota.http.routes import ROUTES, routes_for

if TYPE_CHECKING:
    from support.http_server import Answer, Servers

PROJECTS = ("/v1/projects", "/projects")
PROJECT_STEPS = {
    f"{step} {base}{rest}"
    for base in PROJECTS
    for step, rest in (
        ("POST", "/run"), ("POST", "/stop"), ("POST", "/force-stop"), ("POST", "/{id}/tasks"),
        ("PATCH", "/{id}/tasks/{task}"), ("DELETE", "/{id}/tasks/{task}"), ("DELETE", "/{id}"),
        ("PUT", "/{id}"), ("POST", "/{id}/run"), ("POST", "/{id}/queue/stop"), ("POST", "/{id}/queue/force-stop"),
    )
}  # fmt: skip
PROJECT_VIEWS = {
    f"GET {base}{rest}"
    for base in PROJECTS
    for rest in (
        "", "/{id}", "/{id}/tasks", "/{id}/tasks/{task}", "/{id}/queue/status", "/{id}/runs",
        "/{id}/runs/{run}", "/{id}/runs/{run}/events",
    )
}  # fmt: skip
SUBMITS = {
    "POST /v1/tasks", "POST /v1/tasks/{id}/cancel", "POST /v1/tasks/{id}/retry",
    "POST /v1/batches", "POST /v1/batches/{id}/cancel",
    "POST /tasks", "DELETE /tasks/{id}", "POST /tasks/{id}/cancel", "POST /tasks/{id}/retry",
    "POST /tasks/batch", "DELETE /tasks/batch/{id}",
    "POST /api/jobs", "POST /api/jobs/{id}/cancel", "POST /api/start",
    "POST /automechanica/tasks",
    "POST /v1/tasks/{id}/reprioritise",
    "POST /v1/tasks/cancel", "POST /v1/tasks/retry", "POST /v1/tasks/reprioritise",
    *PROJECT_STEPS,
    "POST /v1/schedules", "PATCH /v1/schedules/{name}", "DELETE /v1/schedules/{name}",
    "POST /v1/schedules/{name}/pause", "POST /v1/schedules/{name}/resume",
    "POST /v1/schedules/{name}/run",
}  # fmt: skip
WORKS = {
    "POST /v1/tasks/{id}/logs", "POST /v1/tasks/{id}/progress",
    "POST /v1/types", "POST /v1/leases", "POST /v1/leases/settle", "POST /v1/leases/{id}/heartbeat",
    "POST /v1/leases/{id}/complete", "POST /v1/leases/{id}/fail", "POST /v1/leases/{id}/release",
    "POST /automechanica/leases",
    *(f"POST /automechanica/leases/{{id}}/{how}"
      for how in ("heartbeat", "complete", "fail", "release")),
}  # fmt: skip
SEES = {
    "GET /v1/tasks", "GET /v1/tasks/{id}", "GET /v1/tasks/{id}/events", "GET /v1/tasks/{id}/logs",
    "GET /v1/batches/{id}", "GET /v1/events", "GET /v1/events/stream", "GET /v1/events/head",
    "GET /tasks", "GET /tasks/{id}", "GET /tasks/batch/{id}",
    "GET /api/jobs", "GET /api/jobs/{id}", "GET /api/jobs/{id}/logs", "GET /ws/jobs/{id}",
    "GET /v1/workflows", "GET /v1/workflows/{id}", "GET /v1/dead",
    "GET /automechanica/tasks", "GET /automechanica/tasks/{id}", "GET /automechanica/dead",
    "GET /automechanica/workflows", "GET /automechanica/workflows/{id}",
    *PROJECT_VIEWS,
    "GET /v1/schedules", "GET /v1/schedules/{name}", "GET /v1/schedules/{name}/history",
}  # fmt: skip
OVERSEES = {
    "GET /v1/agents", "GET /v1/types", "GET /v1/scheduler", "GET /v1/stats", "GET /v1/config",
    "GET /v1/namespaces", "GET /v1/tokens", "GET /metrics", "GET /scheduler/stats",
    "GET /tasks/stats", "GET /v1/workers",
}  # fmt: skip
MEASURES = {"GET /v1/stats/daily", "GET /automechanica/task_queue_metrics"}
ORCHESTRATES = {
    "POST /v1/workflows", "POST /v1/workflows/{id}/cancel", "POST /v1/workflows/{id}/pause",
    "POST /v1/workflows/{id}/resume", "POST /v1/workflows/{id}/close",
    "POST /v1/dead/{id}/revive", "POST /v1/dead/revive",
    "POST /automechanica/workflows", "POST /automechanica/dead/{id}/revive",
    *(f"POST /automechanica/workflows/{{id}}/{how}"
      for how in ("cancel", "pause", "resume", "close")),
}  # fmt: skip
MAY = {
    "submit": SUBMITS | SEES,
    "work": WORKS | SEES,
    "orchestrate": SUBMITS | SEES | ORCHESTRATES,
    "analyse": MEASURES,
    "audit": SEES | OVERSEES | MEASURES,
}
NAMED = SUBMITS | WORKS | SEES | OVERSEES | MEASURES | ORCHESTRATES
ALL = routes_for(["/api/start"])
AGENTS: dict[str, tuple[str, ...]] = {
    "submit": ("ann",), "work": ("ann",), "analyse": ("ann",),
    "orchestrate": (), "audit": (), "admin": (),
}  # fmt: skip


@pytest.fixture
def guarded(serve: Servers) -> Guarded:
    types = {"crawl": {}, "browser_start": {}}
    routes = {"/api/start": "browser_start"}
    made = Guarded(serve, {"types": types, "browsermanager": {"routes": routes}})
    for role, agents in AGENTS.items():
        made.make(role, role, *agents)
    return made


def named(route: Route) -> str:
    return f"{route.method} {route.path}"


@pytest.mark.parametrize("role", AGENTS)
def test_every_route_is_for_whom_the_table_says(guarded: Guarded, role: str) -> None:
    for route in ALL:
        if route.path == "/v1/tokens/{id}":
            continue  # it has a test of its own, and this would revoke ours
        own = "ann" if route.method == "PUT" else "tsk_nobody00"  # a project is made for its agent
        path = route.path.replace("{id}", own) + ("?after=x" if route.is_stream else "")
        answer = guarded.ask(role, route.method, path, {} if route.method == "POST" else None)
        may = route.public or role == "admin" or named(route) in MAY[role]
        assert answer.status != 401, (role, named(route))
        assert (answer.status == 403) is not may, (role, named(route), answer)
        if not may:
            is_job = route.dialect == "browsermanager"
            told = answer.json["data"] if is_job else answer.json
            code = told.get("code") or told["error"]
            assert code == "forbidden", answer


def test_the_table_names_every_route_that_is_not_the_administrators() -> None:
    known = {named(route) for route in ALL}
    assert known >= NAMED
    kept = known - NAMED
    assert {name for name in kept if name.startswith("GET")} == {
        named(route) for route in ROUTES if route.public
    }


def test_a_route_that_says_nothing_is_the_administrators() -> None:
    async def handler(call: Any) -> None: ...

    assert Route("GET", "/new", handler, "new").needs == "manage"


def test_an_analyst_reads_the_figures_of_its_agents_alone(guarded: Guarded) -> None:
    for agent in ("ann", "bob"):
        body = {"agentId": agent, "action": "echo"}
        task = guarded.ask("admin", "POST", "/v1/tasks", body).json["taskId"]
        guarded.ask("admin", "GET", f"/v1/tasks/{task}?waitMs=10000")
    today = guarded.ask("analyse", "GET", "/v1/stats/daily").json["days"][-1]
    assert (today["tasks_created"], today["tasks_completed"]) == (1, 1)
    assert list(today["agents"]) == list(today["error_rates_per_agent"]) == ["ann"]
    own = guarded.ask("analyse", "GET", "/v1/stats/daily?agentId=ann").json["days"][-1]
    assert own["tasks_created"] == 1
    other = guarded.ask("analyse", "GET", "/v1/stats/daily?agentId=bob")
    assert (other.status, other.code) == (403, "forbidden")
    whole = guarded.ask("audit", "GET", "/v1/stats/daily").json["days"][-1]
    assert whole["tasks_created"] == 2


def test_an_orchestrator_makes_workflows_and_revives_but_pauses_nobody(guarded: Guarded) -> None:
    body = {"tasks": [{"agentId": "bob", "action": "fail"}], "open": True}
    flow = guarded.ask("orchestrate", "POST", "/v1/workflows", body).json
    (task,) = flow["tasks"]
    path = f"/v1/tasks/{task['taskId']}?waitMs=10000"
    assert guarded.ask("orchestrate", "GET", path).json["state"] == "failed"
    revived = guarded.ask("orchestrate", "POST", f"/v1/dead/{task['taskId']}/revive")
    assert revived.status == 202
    closed = guarded.ask("orchestrate", "POST", f"/v1/workflows/{flow['workflowId']}/cancel")
    assert closed.json["state"] == "cancelled"
    assert guarded.ask("orchestrate", "POST", "/v1/agents/bob/pause").status == 403


@pytest.mark.parametrize("role", sorted(MAY))
def test_only_an_administrator_makes_and_revokes_tokens(guarded: Guarded, role: str) -> None:
    assert guarded.ask(role, "DELETE", "/v1/tokens/audit").status == 403
    body = {"name": "x", "role": "admin"}
    assert guarded.ask(role, "POST", "/v1/tokens", body).status == 403
    assert guarded.ask("audit", "GET", "/v1/tokens").json["count"] == len(AGENTS)


# -- submitting ----------------------------------------------------------------------------------


SUBMISSIONS: list[tuple[str, Any]] = [
    ("/v1/tasks", {"agentId": "bob", "action": "echo"}),
    ("/v1/batches", {"agentId": "bob", "tasks": [{"action": "echo"}]}),
    ("/v1/batches", {"agentId": "ann", "tasks": [{"action": "a"}, {"action": "b", "agentId": "bob"}]}),
    ("/tasks", {"agentId": "bob", "action": "click"}),
    ("/tasks", {"instruction": "look"}),
    ("/tasks/batch", {"agentId": "bob", "tasks": [{"action": "click"}]}),
    ("/tasks/batch", {"tasks": [{"instruction": "look"}]}),
    ("/api/jobs", {"jobType": "crawl", "agentId": "bob"}),
    ("/api/jobs", {"jobType": "crawl"}),
    ("/api/start", {"profileId": "p"}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body"), SUBMISSIONS)
def test_nothing_is_submitted_for_another_agent(guarded: Guarded, path: str, body: Any) -> None:
    before = guarded.rota.get("/v1/events/head").json["seq"]
    answer = guarded.ask("submit", "POST", path, body)
    assert answer.status == 403
    assert "bob" not in answer.body.decode()
    assert guarded.rota.get("/v1/events/head").json["seq"] == before


def test_an_agents_token_submits_sees_cancels_and_retries_its_own(guarded: Guarded) -> None:
    ask = guarded.ask
    made = ask("submit", "POST", "/v1/tasks", {"agentId": "ann", "action": "waits"})
    task = made.json["taskId"]
    assert ask("submit", "GET", f"/v1/tasks/{task}").json["agentId"] == "ann"
    assert ask("submit", "POST", f"/v1/tasks/{task}/cancel").json["state"] == "cancelled"
    failing = {"agentId": "ann", "action": "fail"}
    failed = ask("submit", "POST", "/v1/tasks", failing).json["taskId"]
    guarded.rota.ended(failed)
    assert ask("submit", "POST", f"/v1/tasks/{failed}/retry").status == 202
    assert {e.get("by") for e in guarded.rota.events(task=task)} == {guarded.principals["submit"]}


def test_a_token_for_all_agents_submits_for_all(guarded: Guarded) -> None:
    guarded.make("any", "submit", "*")
    for agent in ("ann", "bob"):
        body = {"agentId": agent, "action": "echo"}
        assert guarded.ask("any", "POST", "/v1/tasks", body).status == 202
    assert guarded.ask("any", "GET", "/v1/tasks").json["count"] == 2
    assert guarded.ask("any", "GET", "/v1/stats").status == 403


def test_a_worker_adds_to_the_logs_of_its_agents_tasks_alone(guarded: Guarded) -> None:
    tasks = {agent: guarded.rota.submit_native(agent, "waits") for agent in ("ann", "bob")}
    for what, body in (("logs", {"lines": ["x"]}), ("progress", {"progress": 1})):
        for agent, status in (("ann", 201), ("bob", 404)):
            path = f"/v1/tasks/{tasks[agent]}/{what}"
            assert guarded.ask("work", "POST", path, body).status == status


# -- seeing --------------------------------------------------------------------------------------


def _plain(answer: Answer) -> Any:
    return {name: value for name, value in answer.json.items() if name != "requestId"}


def test_lists_and_the_feed_have_its_agents_alone_and_an_auditor_sees_all(guarded: Guarded) -> None:
    for agent in ("ann", "bob"):
        guarded.rota.submit_native(agent, "waits")
    mine = guarded.ask("submit", "GET", "/v1/tasks").json["tasks"]
    assert {task["agentId"] for task in mine} == {"ann"}
    assert guarded.ask("submit", "GET", "/v1/tasks?agentId=bob").json["tasks"] == []
    feed = guarded.ask("submit", "GET", "/v1/events").json["events"]
    assert {event["agent"] for event in feed} == {"ann"}
    everything = guarded.ask("audit", "GET", "/v1/events").json["events"]
    assert everything == guarded.rota.events()
    assert "rota_" not in str(everything)


# -- depending -----------------------------------------------------------------------------------


def test_a_task_depends_on_what_its_caller_can_see_and_is_there(guarded: Guarded) -> None:
    own, others = (guarded.rota.submit_native(agent, "waits") for agent in ("ann", "bob"))
    body = {"agentId": "ann", "action": "echo"}

    def ask(depends: str, **fields: Any) -> Answer:
        return guarded.ask(
            "submit", "POST", "/v1/tasks", {**body, "dependsOn": [depends], **fields}
        )

    assert ask(own).json["state"] == "blocked"
    for way in ("wait", "fail"):
        hidden, absent = (ask(each, onMissing=way) for each in (others, "tsk_never000"))
        for answer in (hidden, absent):
            assert (answer.status, answer.code) == (400, "missing_dependency")
        same = str(_plain(hidden)).replace(others, "ID")
        assert same == str(_plain(absent)).replace("tsk_never000", "ID")
    batch = {"agentId": "ann", "tasks": [{"action": "echo", "dependsOn": [others]}]}
    assert guarded.ask("submit", "POST", "/v1/batches", batch).code == "missing_dependency"


def test_the_result_of_anothers_task_does_not_come_in_by_a_placeholder(guarded: Guarded) -> None:
    others = guarded.rota.submit_native("bob", "echo", params={"text": "s3cret"})
    guarded.rota.ended(others)
    body = {"agentId": "ann", "action": "echo", "params": {"text": f"{{{{{others}}}}}"}}
    task = guarded.ask("submit", "POST", "/v1/tasks", body).json["taskId"]
    until(lambda: guarded.ask("submit", "GET", f"/v1/tasks/{task}?waitMs=5000").json["result"])
    assert "s3cret" not in guarded.ask("submit", "GET", f"/v1/tasks/{task}").body.decode()


def test_items_of_a_batch_depend_on_each_other(guarded: Guarded) -> None:
    tasks = [
        {"action": "waits", "ref": "first"},
        {"action": "waits", "taskId": "second-1", "dependsOn": ["ref:first"]},
        {"action": "waits", "dependsOn": [0, "second-1"]},
    ]
    answer = guarded.ask("submit", "POST", "/v1/batches", {"agentId": "ann", "tasks": tasks})
    assert answer.status == 202, answer
    batch = answer.json["batchId"]
    assert guarded.ask("submit", "GET", f"/v1/batches/{batch}").json["total"] == 3
    assert guarded.ask("submit", "POST", f"/v1/batches/{batch}/cancel").json["cancelled"] == 3


def test_a_cycle_names_no_tasks_to_whom_they_may_not_belong(guarded: Guarded) -> None:
    body = {"agentId": "bob", "action": "waits", "taskId": "bobs", "dependsOn": ["anns"]}
    assert guarded.rota.post("/v1/tasks", body).status == 202
    between = {"agentId": "ann", "action": "waits", "taskId": "mid", "dependsOn": ["bobs"]}
    assert guarded.rota.post("/v1/tasks", between).status == 202
    last = {"agentId": "ann", "action": "waits", "taskId": "anns", "dependsOn": ["mid"]}
    answer = guarded.ask("submit", "POST", "/v1/tasks", last)
    assert (answer.status, answer.code) == (400, "dependency_cycle")
    assert "bobs" not in answer.body.decode()


def test_a_token_does_not_meet_the_keys_of_a_revoked_one_of_its_name(guarded: Guarded) -> None:
    body = {"agentId": "ann", "action": "waits", "dedup": {"key": "k", "mode": "reject"}}
    keyed = {"agentId": "ann", "action": "waits", "idempotencyKey": "k"}
    batch = {"agentId": "ann", "tasks": [{"action": "waits"}], "idempotencyKey": "b"}
    sent = (("/v1/tasks", body), ("/v1/tasks", keyed), ("/v1/batches", batch))
    made: list[Any] = []
    for agents in (("ann", "bob"), ("ann",)):
        guarded.make("fleet", "submit", *agents)
        answers = [guarded.ask("fleet", "POST", path, each) for path, each in sent]
        assert [answer.status for answer in answers] == [202, 202, 202]
        assert not any(answer.json.get("known") for answer in answers)
        made += [answer.json.get("taskId") or answer.json["batchId"] for answer in answers]
        assert guarded.ask("fleet", "POST", "/v1/tasks", keyed).json["taskId"] == made[-2]
        guarded.revoke("fleet")
    assert len(set(made)) == 6
    guarded.rota.restart()
    assert len({event["by"] for event in guarded.rota.events(kind="task_submitted")}) == 2


# -- leasing -------------------------------------------------------------------------------------


def test_a_worker_gets_tasks_of_the_agents_that_its_token_is_for() -> None:
    def may(agents: frozenset[str] | None, named: list[str] | None) -> Any:
        call: Any = SimpleNamespace(caller=Caller("w", "default", "work", agents))
        return Call.may_work_for(call, named)

    assert may(frozenset("ba"), None) == ("a", "b")
    assert may(frozenset("ba"), []) == ("a", "b")
    assert may(frozenset("ba"), ["b"]) == ("b",)
    assert may(None, None) is None
    assert may(None, ["c"]) == ("c",)
    with pytest.raises(HttpProblem) as caught:
        may(frozenset("ba"), ["a", "c"])
    assert (caught.value.status, caught.value.code) == (403, "forbidden")

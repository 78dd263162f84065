"""/v1/schedules over real HTTP: what is made by the calendar, what is refused, who may do what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.clocks import SetClock
from support.http_server import Rota, ended, until
from support.leasing import say, take_one
from support.tokens import Guarded

from rota.clock import US_PER_S, parse_rfc3339

if TYPE_CHECKING:
    from pathlib import Path

    from support.http_server import Answer, Client, Servers, Target

ECHO = {"agentId": "ann", "action": "echo"}
WAITS = {"agentId": "ann", "action": "browse"}
NOON = "0 12 * * *"
MINUTELY = "* * * * *"
HOUR_S = 3600.0


def create(rota: Client, name: str = "n", cron: str = NOON, **fields: Any) -> Answer:
    target = {} if fields.keys() & {"task", "workflow", "project"} else {"task": ECHO}
    return rota.post("/v1/schedules", {"name": name, "cron": cron, **target, **fields})


def made(rota: Client, name: str = "n", cron: str = NOON, **fields: Any) -> dict[str, Any]:
    answer = create(rota, name, cron, **fields)
    assert answer.status == 201, answer
    view: dict[str, Any] = answer.json
    return view


def patch(rota: Client, name: str = "n", **fields: Any) -> Answer:
    return rota.request("PATCH", f"/v1/schedules/{name}", fields)


def fire(rota: Client, name: str = "n") -> dict[str, Any]:
    answer = rota.post(f"/v1/schedules/{name}/run")
    assert answer.status in (200, 202), answer
    fired: dict[str, Any] = answer.json
    return fired


def firings(rota: Client, name: str = "n") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rota.get(f"/v1/schedules/{name}/history").json["firings"]
    return found


def get(rota: Client, name: str = "n") -> dict[str, Any]:
    answer = rota.get(f"/v1/schedules/{name}")
    assert answer.status == 200, answer
    view: dict[str, Any] = answer.json
    return view


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def stepped(serve: Servers, tmp_path: Path, clock: SetClock) -> Rota:
    """A server whose clock can be set."""
    return serve.adopt(Rota(tmp_path / "stepped", {}, clock))


def go_to(rota: Rota, clock: SetClock, moment: str, after_s: float = 0.0) -> None:
    """Set the clock to a moment, or so long after it."""
    ahead = (parse_rfc3339(moment) - SetClock().wall_us()) / US_PER_S
    clock.ahead_s = ahead + after_s
    rota.inside(lambda server: server.shard.timekeeper.look())


# -- what it is ----------------------------------------------------------------------------------


def test_a_schedule_is_made_and_shown_in_the_words_of_its_request(rota: Rota) -> None:
    task = {**ECHO, "params": {"at": "{{schedule.moment}}"}, "key": "k", "timeoutMs": 5000,
            "retry": {"maxAttempts": 2, "baseMs": 5}}  # fmt: skip
    view = made(rota, cron="0 12 1 1 *", timezone="Europe/Berlin", task=task, catchUp="last",
                overlap="queue", jitterMs=1000)  # fmt: skip
    assert view["task"]["retry"].items() >= task.pop("retry").items()
    assert view["task"].items() >= task.items()
    wanted = {"state": "active", "makes": "task", "agents": ["ann"], "by": "local",
              "timezone": "Europe/Berlin", "catchUp": "last", "overlap": "queue",
              "jitterMs": 1000, "fired": 0, "waiting": 0}  # fmt: skip
    assert view.items() >= wanted.items()
    assert len(view["upcoming"]) == 5
    assert view["upcoming"][0] == view["nextAt"]
    assert all(moment.endswith("-01-01T11:00:00Z") for moment in view["upcoming"])
    assert 0 <= parse_rfc3339(view["dueAt"]) - parse_rfc3339(view["nextAt"]) <= 1_000_000
    assert get(rota) == view


def test_the_same_again_is_known_and_another_is_refused(rota: Rota) -> None:
    first = made(rota, startAt="2030-01-01T00:00:00Z")
    again = create(rota, startAt="2030-01-01T00:00:00Z")
    assert (again.status, again.json) == (200, {**first, "known": True})
    other = create(rota, cron="@daily", startAt="2030-01-01T00:00:00Z")
    assert (other.status, other.code) == (409, "schedule_exists")


def test_the_same_again_is_known_after_its_start_has_passed(stepped: Rota, clock: SetClock) -> None:
    go_to(stepped, clock, "2030-06-01T10:00:00Z")
    made(stepped, startAt="2030-06-01T11:00:00Z")
    go_to(stepped, clock, "2030-06-01T11:30:00Z")
    assert create(stepped, startAt="2030-06-01T11:00:00Z").json["known"] is True
    assert patch(stepped, overlap="queue").status == 200
    assert patch(stepped, startAt="2030-06-01T11:10:00Z").status == 400


@pytest.mark.parametrize("word", ["@hourly", "@daily", "@midnight", "@weekly", "@monthly",
                                  "@yearly", "@annually", "@Daily", " 0  12 * * mon-fri "])  # fmt: skip
def test_words_for_common_times_are_known(rota: Rota, word: str) -> None:
    assert made(rota, cron=word)["state"] == "active"


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"cron": "0 0 31 2 *"}, "cron", "never comes"),
    ({"cron": "0 0 */30 2 1#5"}, "cron", "never comes"),
    ({"cron": "@reboot"}, "cron", "is not known"),
    ({"cron": "0 0 * *"}, "cron", "has 4 fields"),
    ({"cron": "0 0 0 * * *"}, "cron", "has 6 fields"),
    ({"cron": "61 * * * *"}, "cron", "no cron expression"),
    ({"cron": "\u0661 * * * *"}, "cron", "cron expression"),
    ({"cron": ""}, "cron", "blank"),
    ({"cron": "*" * 201}, "cron", "200"),
    ({"cron": "0 0 1 1 *", "endAt": "2029-12-01T00:00:00Z", "startAt": "2029-02-01T00:00:00Z"},
     "cron", "does not come between"),
    ({"timezone": "Mars/Olympus"}, "timezone", "no time zone"),
    ({"timezone": "../../etc/passwd"}, "timezone", "no time zone"),
    ({"timezone": "Europe"}, "timezone", "no time zone"),
    ({"timezone": "z" * 65}, "timezone", "64"),
    ({"name": "x" * 101}, "name", "100"),
    ({"name": "a/b"}, "name", "letters"),
    ({"name": ""}, "name", "letters"),
    ({"startAt": "2030-01-02T00:00:00Z", "endAt": "2030-01-01T00:00:00Z"}, "endAt", "not after"),
    ({"endAt": "2020-01-01T00:00:00Z"}, "endAt", "in the past"),
    ({"startAt": "2020-01-01T00:00:00Z"}, "startAt", "in the past"),
    ({"startAt": "noon"}, "startAt", "RFC 3339"),
    ({"jitterMs": 31_536_000_000}, "jitterMs", "3600000"),
    ({"jitterMs": -1}, "jitterMs", "0"),
    ({"catchUp": "some"}, "catchUp", "none"),
    ({"overlap": "pile"}, "overlap", "skip"),
    ({"colour": "red"}, "colour", "unknown"),
    ({"task": None}, "", "give one of task, workflow, project"),
    ({"project": {"id": "p"}}, "", "give one of task, workflow, project"),
    ({"task": {**ECHO, "idempotencyKey": "k"}}, "task.idempotencyKey", "makes many"),
    ({"task": {**ECHO, "taskId": "mine"}}, "task.taskId", "makes many"),
    ({"task": {**ECHO, "dedup": {"key": "k"}}}, "task.dedup", "makes many"),
    ({"task": {**ECHO, "deadline": "2030-01-01T00:00:00Z"}}, "task.deadline", "makes many"),
    ({"task": {**ECHO, "dependsOn": ["tsk_a"]}}, "task.dependsOn", "one workflow"),
    ({"task": {**ECHO, "params": {"a": "{{schedule.colour}}"}}}, "task.params", "nothing stands"),
    ({"task": None, "project": {"id": "run"}}, "project.id", "paths of their own"),
    ({"task": None, "project": {"id": "p", "mode": "twice"}}, "project.mode", "single"),
    ({"task": None, "workflow": {"tasks": [{**ECHO, "dependsOn": ["tsk_outside"]}]}},
     "workflow.tasks.0.dependsOn", "outside"),
    ({"task": None, "workflow": {"tasks": [{**ECHO, "ref": "a", "dependsOn": ["ref:a"]}]}},
     "", "cycle"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "field", "says"), REFUSED)
def test_what_makes_no_sense_is_refused_by_its_field_with_a_sentence(
    rota: Rota, fields: dict[str, Any], field: str, says: str
) -> None:
    body = {"name": "n", "cron": NOON, "task": ECHO, **fields}
    answer = rota.post("/v1/schedules", {n: v for n, v in body.items() if v is not None})
    assert (answer.status, answer.json["retryable"]) == (400, False), answer
    assert says in answer.json["error"], answer.json
    if field:
        assert answer.json["details"]["field"] == field
    assert rota.get("/v1/schedules").json["count"] == 0


def test_they_are_listed_by_name_in_pages_and_by_what_is_wanted(rota: Rota) -> None:
    rota.post("/v1/projects/site/tasks", {"action": "echo"})
    for name in ("d", "b", "a", "c"):
        made(rota, name, task={"agentId": f"of-{name}", "action": "echo"})
    made(rota, "p", project={"id": "site", "mode": "loop"})
    made(rota, "w", workflow={"tasks": [ECHO, {**ECHO, "agentId": "of-a"}]}, paused=True)

    def names(query: str) -> list[str]:
        return [row["name"] for row in rota.get(f"/v1/schedules?{query}").json["schedules"]]

    page = rota.get("/v1/schedules?limit=4").json
    assert ([row["name"] for row in page["schedules"]], page["nextCursor"]) == (list("abcd"), "d")
    assert names("cursor=d") == ["p", "w"]
    assert names("state=paused") == ["w"]
    assert names("agent=of-a") == ["a", "w"]
    assert names("makes=project") == ["p"]
    assert names("makes=task&state=active&agent=of-b") == ["b"]
    for wrong in ("state=happy", "makes=noise", "limit=0"):
        assert rota.get(f"/v1/schedules?{wrong}").status == 400


# -- what becomes of it --------------------------------------------------------------------------


def test_a_moment_that_comes_makes_a_task_that_says_where_it_is_from(
    stepped: Rota, clock: SetClock
) -> None:
    go_to(stepped, clock, "2030-06-01T09:59:30Z")
    task = {**ECHO, "params": {"at": "{{schedule.moment}}", "of": "{{schedule.name}}"}}
    made(stepped, cron=MINUTELY, task=task)
    go_to(stepped, clock, "2030-06-01T10:00:01Z")
    [fired] = until(lambda: firings(stepped))
    assert fired.items() >= {"outcome": "started", "moment": "2030-06-01T10:00:00Z"}.items()
    task = ended(stepped, fired["id"])
    assert task["result"] == {"echo": {"at": "2030-06-01T10:00:00Z", "of": "n"}}
    assert task["schedule"] == "n"
    [first, *_] = stepped.get(f"/v1/tasks/{fired['id']}/events").json["events"]
    [fact] = stepped.events(kind="schedule_fired")
    assert (first["seq"], first["by"]) == (fact["seq"] + 1, "local")
    assert get(stepped).items() >= {"lastId": fired["id"], "fired": 1}.items()


@pytest.mark.parametrize(("catch_up", "fired", "missed"), [("none", 0, 7), ("last", 1, 6),
                                                          ("all", 7, 0)])  # fmt: skip
def test_a_week_of_downtime_is_made_up_for_as_it_is_told_to(
    stepped: Rota, clock: SetClock, catch_up: str, fired: int, missed: int
) -> None:
    go_to(stepped, clock, "2030-06-01T10:00:00Z")
    made(stepped, cron="0 3 * * *", catchUp=catch_up, overlap="queue")
    stepped.stop()
    go_to_later = parse_rfc3339("2030-06-08T10:00:00Z") - SetClock().wall_us()
    clock.ahead_s = go_to_later / US_PER_S
    stepped.start()
    view = until(lambda: (v := get(stepped))["fired"] + v["missed"] == 7 and v)
    assert (view["fired"], view["missed"]) == (fired, missed)
    assert view["nextAt"] == "2030-06-09T03:00:00Z"
    started = [f["moment"] for f in firings(stepped) if f["outcome"] == "started"]
    assert started == [f"2030-06-0{n}T03:00:00Z" for n in range(9 - fired, 9)]
    gone = [f for f in firings(stepped) if f["outcome"] == "missed"]
    assert sum(f["missed"] for f in gone) == missed


def test_a_year_of_minutes_is_bounded_and_holds_nobody_up(stepped: Rota, clock: SetClock) -> None:
    go_to(stepped, clock, "2030-06-01T10:00:00Z")
    made(stepped, cron=MINUTELY, catchUp="all", overlap="cancel", task=WAITS)
    go_to(stepped, clock, "2031-06-01T10:00:00Z")
    view = until(lambda: (v := get(stepped))["fired"] == 100 and v)
    [gone] = [f for f in firings(stepped) if f["outcome"] == "missed"]
    assert gone["more"] is True
    assert gone["moment"] < gone["lastMoment"] < "2031-06-01T08:21:00Z"
    assert view["nextAt"] == "2031-06-01T10:01:00Z"


def test_a_clock_that_is_set_back_fires_nothing_twice(stepped: Rota, clock: SetClock) -> None:
    go_to(stepped, clock, "2030-06-01T09:59:30Z")
    made(stepped, cron=MINUTELY)
    go_to(stepped, clock, "2030-06-01T10:00:01Z")
    until(lambda: firings(stepped))
    go_to(stepped, clock, "2030-06-01T09:59:30Z")
    ahead = until(lambda: (view := get(stepped))["state"] == "ahead" and view)
    assert (ahead["nextAt"], ahead["firedUntil"]) == (
        "2030-06-01T10:01:00Z",
        "2030-06-01T10:00:00Z",
    )
    assert stepped.get("/health").json["schedules_ahead"] == 1
    go_to(stepped, clock, "2030-06-01T10:01:01Z")
    until(lambda: len(firings(stepped)) == 2)
    assert [f["moment"][11:16] for f in firings(stepped)] == ["10:00", "10:01"]


def test_run_now_is_beside_the_calendar_and_minds_what_goes_on(rota: Rota) -> None:
    before = made(rota, task=WAITS)["nextAt"]
    first = fire(rota)
    assert first.items() >= {"outcome": "started", "manual": True}.items()
    assert rota.post("/v1/schedules/n/run").status == 200
    assert fire(rota)["reason"] == f"{first['id']} has not ended"
    assert get(rota)["nextAt"] == before
    patch(rota, overlap="queue")
    assert fire(rota)["outcome"] == "queued"
    rota.post(f"/v1/tasks/{first['id']}/cancel")
    until(lambda: get(rota)["fired"] == 2)
    assert [f.get("waited") for f in firings(rota)][-1] is True
    patch(rota, overlap="cancel")
    last = fire(rota)["id"]
    view = get(rota)
    assert (view["fired"], view["lastId"]) == (3, last)
    assert view["skipped"] == 2


def test_a_workflow_is_made_and_the_next_takes_its_place(rota: Rota) -> None:
    flow = {"name": "both", "tasks": [{**WAITS, "ref": "a"}, {**WAITS, "dependsOn": ["ref:a"]}]}
    view = made(rota, workflow=flow, overlap="cancel")
    assert view["workflow"]["tasks"][1]["dependsOn"] == ["ref:a"]
    first, second = fire(rota)["id"], fire(rota)["id"]
    over = until(lambda: (w := rota.get(f"/v1/workflows/{first}").json)["completedAt"] and w)
    assert over["state"] == "cancelled"
    tasks = rota.get(f"/v1/workflows/{second}").json["tasks"]
    assert [task["state"] for task in tasks] == ["ready", "blocked"]


def test_a_full_queue_refuses_no_moment_and_the_firing_says_so(
    stepped: Rota, clock: SetClock
) -> None:
    rota = stepped
    rota.post("/v1/config/reload", {"scheduler": {"maxQueueSize": 1}})
    rota.submit_native(action="browse")
    made(rota, cron=MINUTELY, task=WAITS)
    go_to(rota, clock, get(rota)["nextAt"], 1.0)
    [fired] = until(lambda: firings(rota))
    assert (fired["outcome"], fired["reason"]) == (
        "started",
        "global queue full; it was let in all the same",
    )
    assert rota.get(f"/v1/tasks/{fired['id']}").json["state"] == "ready"


def test_a_type_that_was_removed_leaves_a_task_that_waits_for_a_worker(
    serve: Servers, tmp_path: Path, tab: Target
) -> None:
    config = {"executors": {"w": {"kind": "http", "url": tab.url}}}
    typed = {**config, "types": {"work": {"executor": "w"}}}
    rota = serve.adopt(Rota(tmp_path / "typed", typed))
    made(rota, task={"agentId": "ann", "action": "work", "priority": 3})
    assert ended(rota, fire(rota)["id"])["state"] == "succeeded"
    rota.config = config
    rota.restart()
    left = rota.get(f"/v1/tasks/{fire(rota)['id']}").json
    assert (left["state"], left["executor"]) == ("ready", "pull")


def test_a_rule_that_changed_skips_the_moment_with_the_reason(serve: Servers) -> None:
    rota = serve({"types": {"work": {"timeoutMsMax": 9000}}})
    made(rota, task={"agentId": "ann", "action": "work", "timeoutMs": 8000})
    rota.config = {"types": {"work": {"timeoutMsMax": 10}}}
    rota.restart()
    fired = fire(rota)
    assert fired["outcome"] == "skipped"
    assert "timeoutMs" in fired["reason"]


# -- projects ------------------------------------------------------------------------------------


def hold(rota: Client, *actions: str) -> None:
    tasks = [{"action": action, "params": {"ms": 60_000}} for action in actions]
    assert rota.post("/v1/projects/site/tasks", {"tasks": tasks}).status == 201


def status(rota: Client) -> dict[str, Any]:
    found: dict[str, Any] = rota.get("/v1/projects/site/queue/status").json
    return found


def test_a_firing_starts_a_run_of_a_project(rota: Rota) -> None:
    hold(rota, "echo", "echo")
    view = made(rota, project={"id": "site", "mode": "loop"})
    assert (view["project"], view["agents"]) == ({"id": "site", "mode": "loop"}, ["site"])
    run = fire(rota)["id"]
    until(lambda: not status(rota)["isRunning"])
    assert (status(rota)["stopReason"], status(rota)["completed"]) == ("empty", 2)
    assert rota.get(f"/v1/projects/site/runs/{run}").json["state"] == "completed"
    [queued] = rota.events(kind="run_queued")
    [fact] = rota.events(kind="schedule_fired")
    assert (queued["seq"], queued["by"]) == (fact["seq"] + 1, "local")


@pytest.mark.parametrize("overlap", ["skip", "queue", "cancel"])
def test_a_run_that_goes_on_is_left_awaited_or_cut_off(rota: Rota, overlap: str) -> None:
    hold(rota, "sleep", "echo")
    made(rota, project={"id": "site"}, overlap=overlap)
    run = rota.post("/v1/projects/site/run", {}).json["runId"]  # somebody else's counts, too
    until(lambda: status(rota)["currentTaskId"])
    fired = fire(rota)
    if overlap == "skip":
        assert (fired["outcome"], fired["reason"]) == ("skipped", f"{run} has not ended")
        return
    assert fired["outcome"] == "queued"
    if overlap == "queue":
        assert fire(rota)["reason"] == "one is waiting already"
        assert status(rota)["currentRunId"] == run
        rota.post("/v1/projects/site/queue/force-stop")
    last = until(lambda: (f := firings(rota)[-1])["outcome"] == "started" and f)
    assert last["waited"] is True
    until(lambda: not status(rota)["isRunning"])
    over = rota.get(f"/v1/projects/site/runs/{run}").json
    assert over["stopReason"] == "force_stopped"
    assert rota.get(f"/v1/projects/site/runs/{last['id']}").json["completed"] == 1


def test_a_project_that_is_not_there_skips_the_moment(rota: Rota) -> None:
    made(rota, project={"id": "nowhere"})
    assert fire(rota).items() >= {"outcome": "skipped", "reason": "project not found"}.items()


# -- what people do ------------------------------------------------------------------------------


def test_it_is_changed_paused_resumed_and_deleted(rota: Rota) -> None:
    made(rota, endAt="2040-01-01T00:00:00Z", jitterMs=5)
    view = patch(rota, cron="30 6 * * *", timezone="America/New_York", endAt=None, jitterMs=None,
                 task={"agentId": "bob", "action": "sleep"}).json  # fmt: skip
    assert not {"endAt", "jitterMs"} & view.keys()
    assert (view["agents"], view["task"]["action"]) == (["bob"], "sleep")
    assert view["nextAt"][14:] == "30:00Z"
    paused = rota.post("/v1/schedules/n/pause", {"reason": "a move"}).json
    assert (paused["state"], paused["pauseReason"], paused["upcoming"]) == ("paused", "a move", [])
    assert rota.post("/v1/schedules/n/resume").json["nextAt"] == view["nextAt"]
    gone = rota.request("DELETE", "/v1/schedules/n", {"reason": "no more"})
    assert gone.json == {"name": "n", "deleted": True}
    assert rota.events(kind="schedule_deleted")[0]["data"]["reason"] == "no more"
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/pause"), ("POST", "/resume"),
                         ("POST", "/run"), ("GET", "/history?cursor=0")):  # fmt: skip
        answer = rota.request(method, f"/v1/schedules/other{path}")
        assert (answer.status, answer.code) == (404, "schedule_not_found")


@pytest.mark.parametrize("body", [{}, {"cron": None}, {"colour": 1}, {"name": "m"},
                                  {"overlap": None}, {"cron": "0 0 31 2 *"}, {"timezone": "x"},
                                  {"task": ECHO, "project": {"id": "p"}}])  # fmt: skip
def test_a_change_that_makes_no_sense_changes_nothing(rota: Rota, body: dict[str, Any]) -> None:
    before = made(rota)
    assert rota.request("PATCH", "/v1/schedules/n", body).status == 400
    assert get(rota) == before


def test_a_change_records_what_is_changed_and_not_the_whole(rota: Rota) -> None:
    made(rota, task={**ECHO, "params": {"text": "x" * 100_000}}, jitterMs=5)
    assert patch(rota, jitterMs=None, overlap="queue").status == 200
    [fact] = rota.events(kind="schedule_changed")
    assert (fact["v"], fact["data"]["changes"]) == (2, {"jitter_ms": None, "overlap": "queue"})
    before = get(rota)
    rota.restart()
    assert get(rota) == before
    assert "jitterMs" not in before


def test_history_is_told_in_pages_also_of_what_was_deleted(rota: Rota) -> None:
    made(rota, overlap="cancel", task=WAITS)
    ids = [fire(rota)["id"] for _ in range(5)]
    rota.request("DELETE", "/v1/schedules/n")
    seen, cursor = [], "0"
    while cursor is not None:
        page = rota.get(f"/v1/schedules/n/history?limit=2&cursor={cursor}").json
        seen += [firing["id"] for firing in page["firings"]]
        cursor = page.get("nextCursor")
    assert seen == ids


def test_a_page_of_the_history_is_not_empty_while_there_is_more(rota: Rota) -> None:
    made(rota, overlap="cancel", task=WAITS)
    rota.post("/v1/schedules/n/pause")
    rota.post("/v1/schedules/n/resume")
    first = fire(rota)["id"]
    [firing] = rota.get("/v1/schedules/n/history?limit=1").json["firings"]
    assert firing["id"] == first


def test_everything_is_there_after_a_restart(rota: Rota) -> None:
    made(rota, overlap="queue", task=WAITS)
    fire(rota)
    fire(rota)
    before = get(rota)
    assert before["waiting"] == 1
    rota.restart()
    assert get(rota) == before
    live, replayed = rota.digests()
    assert live == replayed


# -- bounds --------------------------------------------------------------------------------------


def test_there_is_room_for_so_many_and_for_so_many_bytes(
    rota: Rota,
) -> None:
    room = rota.inside(lambda server: server.shard.state.schedules.room)
    room.count.most, room.bytes.most = 4, 40_000
    made(rota, "a")
    made(rota, "b")
    answer = create(rota, "c")
    assert (answer.status, answer.code) == (429, "too_many_schedules")
    bob = {**ECHO, "agentId": "bob"}
    assert create(rota, "c", task=bob).status == 201
    large = {"params": {"text": "x" * 30_000}}
    answer = patch(rota, "a", task={**ECHO, **large})
    assert (answer.status, answer.code) == (429, "schedules_too_large")
    assert patch(rota, "c", task={**bob, "params": {"text": "x" * 10_000}}).status == 200


def flow_of(count: int, agent: str = "ann") -> dict[str, Any]:
    return {"tasks": [{"agentId": agent, "action": "browse"} for _ in range(count)]}


def test_what_the_calendar_makes_fits_into_the_queues(serve: Servers) -> None:
    rota = serve({"scheduler": {"maxQueueSize": 12, "maxPerAgent": 3}})
    answer = create(rota, workflow=flow_of(4))
    assert (answer.status, answer.code) == (422, "batch_too_large_for_queue")
    made(rota, workflow=flow_of(2))
    made(rota, "one-more")
    answer = create(rota, "too-many")
    assert (answer.status, answer.code) == (429, "too_many_scheduled_tasks")
    assert answer.json["error"].startswith("the schedules of agent 'ann' would make 4 tasks")
    assert patch(rota, workflow=flow_of(4)).status == 422
    assert patch(rota, workflow=flow_of(3)).code == "too_many_scheduled_tasks"
    assert patch(rota, workflow=flow_of(1)).status == 200
    made(rota, "too-many")
    for agent in ("bob", "eve"):
        made(rota, agent, workflow=flow_of(3, agent))
    assert patch(rota, jitterMs=5).status == 200
    made(rota, "newcomer", workflow=flow_of(3, "joe"))
    answer = create(rota, "one-over", task={**ECHO, "agentId": "sue"})
    assert (answer.status, answer.code) == (429, "too_many_scheduled_tasks")
    assert "maxQueueSize" in answer.json["error"]


def test_what_somebody_asks_to_run_minds_the_queues(serve: Servers) -> None:
    rota = serve({"scheduler": {"maxPerAgent": 2}})
    made(rota, workflow=flow_of(2), overlap="cancel")
    rota.post("/v1/control/pause")
    rota.submit_native(action="browse", agentId="ann")
    answer = rota.post("/v1/schedules/n/run")
    assert (answer.status, answer.code, answer.json["retryable"]) == (429, "queue_full", True)
    assert answer.headers["retry-after"] == "1"
    assert firings(rota) == []


def test_a_run_that_was_asked_for_and_waits_is_skipped_by_a_queue_that_is_full_then(
    serve: Servers,
) -> None:
    rota = serve({"scheduler": {"maxPerAgent": 1}})
    made(rota, task=WAITS, overlap="queue")
    first = fire(rota)["id"]
    assert fire(rota)["outcome"] == "queued"
    lease = take_one(rota)
    assert lease["task"]["taskId"] == first
    rota.submit_native(action="other", agentId="ann")
    assert say(rota, lease, "complete").status == 200
    last = until(lambda: (found := firings(rota)[-1])["outcome"] == "skipped" and found)
    assert last["reason"] == "rejected: agent queue full"


# -- tokens --------------------------------------------------------------------------------------


def born_by(rota: Client, fired: dict[str, Any]) -> str:
    name: str = rota.get(f"/v1/tasks/{fired['id']}/events").json["events"][0]["by"]
    return name


def test_a_token_is_for_the_schedules_of_its_agents(serve: Servers) -> None:
    guarded = Guarded(serve)
    rota, ask = guarded.rota, guarded.ask
    for name, role in (("ann", "submit"), ("bob", "submit"), ("hands", "work")):
        guarded.make(name, role, "ann" if name == "hands" else name)
    guarded.make("eyes", "audit")
    of_ann = {"name": "anns", "cron": NOON, "task": WAITS}
    assert ask("ann", "POST", "/v1/schedules", of_ann).status == 201
    made(rota, "bobs", task={**ECHO, "agentId": "bob"})
    both = {"tasks": [WAITS, {**WAITS, "agentId": "bob"}]}
    made(rota, "both", workflow=both)
    escalates = {"tasks": [WAITS], "onFailure": "escalate",
                 "escalate": {"task": {"agentId": "bob", "action": "echo"}}}  # fmt: skip
    for target in ({"task": {**WAITS, "agentId": "bob"}}, {"workflow": both},
                   {"workflow": escalates}, {"project": {"id": "bob"}}):  # fmt: skip
        answer = ask("ann", "POST", "/v1/schedules", {"name": "x", "cron": NOON, **target})
        assert (answer.status, answer.code) == (403, "forbidden")
        assert ask("ann", "PATCH", "/v1/schedules/anns", target).status == 403

    for name, seen in (("ann", ["anns"]), ("hands", ["anns"]), ("bob", ["bobs"]),
                       ("eyes", ["anns", "bobs", "both"])):  # fmt: skip
        rows = ask(name, "GET", "/v1/schedules").json["schedules"]
        assert [row["name"] for row in rows] == seen
    for method, path in (("GET", ""), ("GET", "/history"), ("DELETE", ""), ("POST", "/pause"),
                         ("POST", "/resume"), ("POST", "/run")):  # fmt: skip
        for name in ("anns", "both", "none"):
            answer = ask("bob", method, f"/v1/schedules/{name}{path}")
            assert (answer.status, answer.code) == (404, "schedule_not_found")
        if method != "GET":
            for who in ("hands", "eyes"):
                assert ask(who, method, f"/v1/schedules/anns{path}").status == 403
    answer = ask("bob", "PATCH", "/v1/schedules/anns", {"overlap": "queue"})
    assert answer.code == "schedule_not_found"

    fired = ask("ann", "POST", "/v1/schedules/anns/run").json
    assert born_by(rota, fired) == guarded.principals["ann"]
    rota.request("DELETE", "/v1/schedules/anns")
    made(rota, "anns", task={**ECHO, "agentId": "bob"})
    assert ask("bob", "GET", "/v1/schedules/anns/history").json["firings"] == []
    assert len(rota.get("/v1/schedules/anns/history").json["firings"]) == 1


def test_a_workflow_is_scheduled_by_nobody_who_may_not_submit_one(serve: Servers) -> None:
    guarded = Guarded(serve)
    guarded.make("ann", "submit", "ann")
    guarded.make("flows", "orchestrate")
    flow = {"workflow": flow_of(1)}
    answer = guarded.ask("ann", "POST", "/v1/schedules", {"name": "n", "cron": NOON, **flow})
    assert (answer.status, answer.code) == (403, "forbidden")
    body = {"name": "n", "cron": NOON, **flow}
    assert guarded.ask("flows", "POST", "/v1/schedules", body).status == 201
    guarded.ask("ann", "POST", "/v1/schedules", {"name": "own", "cron": NOON, "task": WAITS})
    assert guarded.ask("ann", "PATCH", "/v1/schedules/own", flow).code == "forbidden"
    answer = guarded.ask("ann", "PATCH", "/v1/schedules/n", {"catchUp": "last"})
    assert answer.code == "forbidden", "it would be in the name of who said last what it is"
    assert guarded.ask("ann", "PATCH", "/v1/schedules/own", {"catchUp": "last"}).status == 200


def test_what_a_schedule_makes_is_in_the_name_of_who_said_last_what_it_is(serve: Servers) -> None:
    guarded = Guarded(serve)
    guarded.make("ann", "submit", "ann")
    made(guarded.rota, overlap="cancel", task=WAITS)
    ann = guarded.principals["ann"]
    assert guarded.ask("ann", "PATCH", "/v1/schedules/n", {"catchUp": "last"}).json["by"] == ann
    guarded.revoke("ann")
    fired = fire(guarded.rota)
    assert born_by(guarded.rota, fired) == "ops"  # who ran it now
    assert get(guarded.rota)["by"] == ann

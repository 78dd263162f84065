"""`rota project`: lists of tasks, worked through, stopped and cut off."""

from __future__ import annotations

import json

import pytest
from support.http_server import until


@pytest.fixture
def add(rota):
    """Put tasks on a list; give their ids."""

    def run(project, *actions, **params):
        options = [
            word for name, value in params.items() for word in ("--param", f"{name}={value}")
        ]
        results = [rota("project", "add", project, action, *options) for action in actions]
        assert [each.exit_code for each in results] == [0] * len(actions), results[0].stderr
        return [each.stdout.strip() for each in results]

    return run


def words(result):
    return [line.split() for line in result.stdout.splitlines()]


def idle(client, project):
    return until(lambda: None if (s := client.project_status(project))["isRunning"] else s)


def test_a_list_is_filled_worked_through_and_looked_at(rota, client, add):
    first, second = add("cli-p1", "echo", "echo", n=1)
    started = rota("project", "run", "cli-p1")
    assert started.stdout.startswith("run-")
    assert idle(client, "cli-p1")["stopReason"] == "single_done"
    shown = words(rota("project", "tasks", "cli-p1"))
    assert shown[1:] == [[first, "succeeded", "echo"], ["0", second, "pending", "echo"]]
    assert rota("project", "run", "cli-p1", "--loop").exit_code == 0
    idle(client, "cli-p1")
    assert ["stopReason", "empty"] in words(rota("project", "status", "cli-p1"))
    assert ["starts", "2"] in words(rota("project", "get", "cli-p1"))
    assert "cli-p1" in rota("project", "list").stdout
    assert json.loads(rota("project", "list", "--json").stdout)["count"] >= 1
    assert rota("project", "delete", "cli-p1").stdout == "cli-p1 deleted\n"


def test_what_has_not_started_is_moved_and_removed(rota, client, add):
    first, second, third = add("cli-p2", "echo", "echo", "echo")
    assert rota("project", "move", "cli-p2", third, "--position", "0").exit_code == 0
    assert rota("project", "move", "cli-p2", third, "--before", second).exit_code == 0
    assert rota("project", "move", "cli-p2", first).stdout == f"{first} pending\n"
    assert rota("project", "remove", "cli-p2", second).stdout == f"{second} removed\n"
    listed = [each["taskId"] for each in client.project_tasks("cli-p2")["tasks"]]
    assert listed == [third, first]


@pytest.mark.parametrize("how", ["get", "cancel"])
def test_who_asks_for_what_waits_on_a_list_is_told_where_it_is(rota, add, how):
    [task] = add("cli-p6", "echo")
    result = rota(how, task)
    assert result.exit_code == 1
    assert "`rota project tasks PROJECT`" in result.stderr
    assert "`rota project remove PROJECT ID`" in result.stderr


def test_it_is_stopped_and_cut_off(rota, client, add):
    add("cli-p3", "sleep", ms=60_000)
    add("cli-p4", "sleep", ms=60_000)
    started = rota("project", "run", "cli-p3", "cli-p4", "--loop")
    assert started.exit_code == 0
    runs = [client.project_status(each)["currentRunId"] for each in ("cli-p3", "cli-p4")]
    assert words(started)[1:] == [["cli-p3", runs[0]], ["cli-p4", runs[1]]]
    again = rota("project", "run", "cli-p3")
    assert again.exit_code == 1
    assert "already processing" in again.stderr
    several = rota("project", "run", "cli-p3", "cli-p4")
    assert several.exit_code == 1
    until(lambda: client.project_status("cli-p3")["currentTaskId"])
    assert rota("project", "stop", "cli-p3").stdout == "cli-p3 stops\n"
    assert rota("project", "stop", "cli-p3", "cli-p4").exit_code == 0
    killed = rota("project", "force-stop", "cli-p3")
    assert killed.stdout.endswith(" killed\n")
    both = rota("project", "force-stop", "cli-p3", "cli-p4", "--reason", "enough")
    assert both.exit_code == 0
    assert idle(client, "cli-p4")["stopReason"] in ("force_stopped", "stopped")


def test_a_task_is_named_for_one_project_alone(rota):
    result = rota("project", "run", "a", "b", "--task", "t")
    assert result.exit_code == 2
    assert "--task is for one project" in result.stderr


@pytest.mark.parametrize("how", ["run", "stop", "force-stop", "status", "get", "tasks", "delete"])
def test_one_that_is_not_there_is_not_found(rota, how):
    result = rota("project", how, "cli-nobody")
    assert result.exit_code == 1
    assert "project not found" in result.stderr


def test_a_project_without_a_name_is_refused_in_a_sentence(rota):
    result = rota("project", "add", "", "echo")
    assert result.exit_code == 1
    assert "error: a name or id of projects must not be empty" in result.stderr


def test_a_run_is_waited_for(rota, add):
    add("cli-p7", "echo", "fail")
    ended = rota("project", "run", "cli-p7", "--wait", "20s")
    assert (ended.exit_code, ["stopReason", "single_done"] in words(ended)) == (0, True)
    failed = rota("project", "run", "cli-p7", "--wait", "20s", "--json")
    assert (failed.exit_code, json.loads(failed.stdout)["stopReason"]) == (1, "task_failed")
    add("cli-p7", "sleep", ms=60_000)
    late = rota("project", "run", "cli-p7", "--wait", "50ms")
    assert late.exit_code == 1
    assert "still in_progress after 0.05 s" in late.stderr
    assert rota("project", "force-stop", "cli-p7").exit_code == 0
    assert "--wait is for one project" in rota("project", "run", "a", "b", "--wait").stderr


def test_who_adds_what_nobody_runs_is_told_so(rota):
    result = rota("project", "add", "cli-p8", "ecko")
    assert result.exit_code == 0
    assert "waits for a worker" in result.stderr
    assert "is 'ecko' the action you meant?" in result.stderr
    assert rota("project", "add", "cli-p8", "echo").stderr == ""
    assert rota("project", "create", "cli-p9").stdout == "cli-p9\n"


def test_the_client_has_every_call(client):
    client.add_to_project("cli-p5", "echo", params={"n": 1})
    made = client.add_many_to_project("cli-p5", [{"action": "echo"}, {"action": "echo"}])
    first, second = (each["taskId"] for each in made["tasks"])
    assert client.create_project("cli-p5")["status"]["remaining"] == 3
    assert client.project_task("cli-p5", second)["position"] == 2
    client.edit_project_task("cli-p5", second, before=first, priority="high")
    client.remove_project_task("cli-p5", first)
    run = client.run_project("cli-p5", "loop", second)
    idle(client, "cli-p5")
    assert client.wait_run("cli-p5", run["runId"])["completed"] == 2
    assert len(client.get_run("cli-p5", run["runId"])["tasks"]) == 2
    assert client.get_project("cli-p5")["figures"]["starts"] == 1
    assert "cli-p5" in [each["projectId"] for each in client.iter_projects()]
    assert client.steer_projects("stop", ["cli-p5"])["success"]
    assert client.stop_project("cli-p5") == {"success": True}
    assert client.force_stop_project("cli-p5")["success"]
    assert client.delete_project("cli-p5")["removed"] == 0

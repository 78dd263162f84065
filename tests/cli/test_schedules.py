"""`rota schedule`: what is made by the calendar, typed."""

from __future__ import annotations

import json

import pytest
from support.http_server import until


@pytest.fixture
def create(rota):
    """Make a schedule that fires far ahead; give what was printed."""

    def run(name, *words, cron="0 12 1 1 *"):
        options = words or ("--agent", "cli-s", "--action", "echo")
        result = rota("schedule", "create", name, cron, *options)
        assert result.exit_code == 0, result.stderr
        return result

    return run


def words(result):
    return [line.split() for line in result.stdout.splitlines()]


def test_one_is_made_looked_at_run_paused_resumed_and_deleted(rota, client, create):
    made = create("cli-a", "--agent", "cli-s", "--action", "echo", "--param", "n=1",
                  "--timezone", "Europe/Berlin", "--catch-up", "last", "--overlap", "queue",
                  "--jitter", "2s", "--end-at", "2090-01-01T00:00:00Z")  # fmt: skip
    assert made.stdout.startswith("cli-a active, next 2")
    shown = words(rota("schedule", "get", "cli-a"))
    for row in (["timezone", "Europe/Berlin"], ["catchUp", "last"], ["jitterMs", "2000"]):
        assert row in shown
    assert sum(row[0] == "upcoming" for row in shown) == 5
    fired = words(rota("schedule", "run", "cli-a"))
    assert fired[0][0] == "started"
    task = fired[0][1]
    until(lambda: client.get(task)["state"] == "succeeded")
    assert client.get(task)["schedule"] == "cli-a"
    history = words(rota("schedule", "history", "cli-a"))
    assert history[1][1:] == ["started", task]
    paused = rota("schedule", "pause", "cli-a", "--reason", "a move")
    assert paused.stdout == "cli-a paused\n"
    assert "a move" in rota("schedule", "get", "cli-a").stdout
    assert rota("schedule", "resume", "cli-a").stdout.startswith("cli-a active, next ")
    assert rota("schedule", "delete", "cli-a", "--reason", "enough").stdout == "cli-a deleted\n"
    gone = rota("schedule", "get", "cli-a")
    assert gone.exit_code == 1
    assert "schedule not found" in gone.stderr


def test_one_is_changed_and_whoever_makes_it_again_is_told_how(rota, client, create):
    create("cli-g")
    again = rota("schedule", "create", "cli-g", "@daily", "--agent", "cli-s", "--action", "echo")
    assert again.exit_code == 1
    assert "`rota schedule edit cli-g` changes it" in again.stderr
    changed = rota("schedule", "edit", "cli-g", "--cron", "@daily", "--catch-up", "last")
    assert changed.stdout.startswith("cli-g active, next ")
    now = client.get_schedule("cli-g")
    assert (now["cron"], now["catchUp"], now["overlap"]) == ("@daily", "last", "skip")
    assert rota("schedule", "edit", "cli-g").exit_code == 2


def test_they_are_listed_by_what_is_wanted(rota, create):
    create("cli-b1", "--agent", "cli-b", "--action", "echo", "--paused")
    create("cli-b2", "--agent", "cli-b", "--action", "echo")
    listed = words(rota("schedule", "list", "--agent", "cli-b", "--state", "active"))
    assert [row[0] for row in listed] == ["name", "cli-b2"]
    page = json.loads(rota("schedule", "list", "--agent", "cli-b", "--json").stdout)
    assert [row["name"] for row in page["schedules"]] == ["cli-b1", "cli-b2"]
    assert rota("schedule", "list", "--makes", "noise").exit_code == 2


def test_what_it_makes_is_read_from_a_file_or_is_a_project(rota, client, create, tmp_path):
    task = tmp_path / "task.json"
    task.write_text(json.dumps({"agentId": "cli-c", "action": "echo"}))
    flow = tmp_path / "flow.json"
    flow.write_text(json.dumps({"tasks": [{"agentId": "cli-c", "action": "echo"}]}))
    create("cli-c1", "--task", str(task))
    create("cli-c2", "--workflow", str(flow))
    create("cli-c3", "--project", "cli-c", "--loop")
    assert client.get_schedule("cli-c3")["project"] == {"id": "cli-c", "mode": "loop"}
    assert rota("schedule", "run", "cli-c2").stdout.startswith("started wfl_")
    assert rota("schedule", "run", "cli-c3").stdout == "skipped project not found\n"
    again = rota("schedule", "create", "cli-c1", "0 12 1 1 *", "--task", str(task))
    assert again.exit_code == 0
    assert "just so" in again.stderr


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "say what it makes"),
        (("--agent", "a"), "--agent and --action go together"),
        (("--agent", "a", "--action", "b", "--project", "p"), "say what it makes"),
        (("--agent", "a", "--action", "b", "--loop"), "--loop goes with --project"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_it_is_sent(rota, options, says):
    result = rota("schedule", "create", "cli-d", "@daily", *options)
    assert result.exit_code == 2
    assert says in result.stderr


@pytest.mark.parametrize("content", ["{", "[]"])
@pytest.mark.parametrize(
    ("option", "like"), [("--task", '{"agentId": "me", "action"'), ("--workflow", '"tasks": [{')]
)
def test_a_file_that_is_no_body_is_refused(rota, tmp_path, content, option, like):
    file = tmp_path / "body.json"
    file.write_text(content)
    result = rota("schedule", "create", "cli-e", "@daily", option, str(file))
    assert result.exit_code == 1
    assert "JSON" in result.stderr
    assert like in result.stderr


def test_a_calendar_that_never_comes_is_refused_with_a_sentence(rota):
    result = rota("schedule", "create", "cli-f", "0 0 31 2 *", "--agent", "a", "--action", "b")
    assert result.exit_code == 1
    assert "'0 0 31 2 *' never comes" in result.stderr

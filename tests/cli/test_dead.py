"""`rota dead list | revive`: what failed for good, and new lives for it."""

from __future__ import annotations

import json

import pytest
from support.http_server import until

BAD = {"ms": "x"}


@pytest.fixture
def dead(client):
    """Let tasks die; give their ids."""

    def make(agent, count=1, action="fail", **fields):
        ids = [client.submit(action, agent, **fields)["taskId"] for _ in range(count)]
        until(lambda: all(client.get(each)["state"] == "failed" for each in ids))
        return ids

    return make


def rows(result):
    return [line.split()[0] for line in result.stdout.splitlines()[1:]]


def test_the_dead_are_listed_newest_first_and_narrowed_down(rota, dead):
    first, second = dead("dd1", 2)
    (other,) = dead("dd1", action="sleep", params=BAD)
    listed = rota("dead", "list", "--agent", "dd1")
    assert set(rows(listed)) == {first, second, other}
    assert rows(listed)[0] == other
    assert "failed as asked" in listed.stdout
    assert rows(rota("dead", "list", "--agent", "dd1", "--type", "sleep")) == [other]
    assert rows(rota("dead", "list", "--agent", "dd1", "--code", "bad_params")) == [other]
    assert rows(rota("dead", "list", "--agent", "dd1", "--q", "MUST BE A NUMBER")) == [other]
    page = json.loads(rota("dead", "list", "--agent", "dd1", "--limit", "1", "--json").stdout)
    assert [row["params"] for row in page["dead"]] == [BAD]


def test_a_list_goes_on_over_pages(rota, dead):
    ids = set(dead("dd2", 3))
    page = rota("dead", "list", "--agent", "dd2", "--limit", "2")
    cursor = page.stderr.split("--cursor ")[1].split()[0]
    rest = rota("dead", "list", "--agent", "dd2", "--cursor", cursor)
    assert len(rows(page)) == 2
    assert {*rows(page), *rows(rest)} == ids


def test_one_is_revived_with_other_params_and_its_dependents(rota, client):
    items = [
        {"action": "sleep", "params": BAD, "ref": "a"},
        {"action": "echo", "depends_on": ["ref:a"]},
    ]
    flow = client.submit_workflow(items, agent="dd3")
    task, child = [each["taskId"] for each in flow["tasks"]]
    until(lambda: client.get(child)["state"] == "cancelled")
    result = rota("dead", "revive", task, "--params", '{"ms": 1}', "--dependents")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith(task)
    assert "with 1 dependents" in result.stdout
    until(lambda: client.get(child)["state"] == "succeeded")
    assert rows(rota("dead", "list", "--agent", "dd3")) == []
    again = rota("dead", "revive", task)
    assert again.exit_code == 1
    assert "this one is succeeded" in again.stderr


def test_many_are_revived_by_filter(rota, dead):
    dead("dd4", 3)
    result = rota("dead", "revive", "--agent", "dd4", "--limit", "2")
    assert result.stdout == "2 revived, 0 not\n"
    assert "there may be more" in result.stderr
    answer = json.loads(rota("dead", "revive", "--agent", "nobody", "--json").stdout)
    assert (answer["count"], answer["more"]) == (0, False)


def test_one_that_cannot_be_is_named_with_the_reason(rota, client, dead):
    (task,) = dead("dd5", dedup={"key": "dd5"})
    client.submit("waits", "dd5", dedup={"key": "dd5"})
    result = rota("dead", "revive", "--agent", "dd5")
    assert result.stdout == "0 revived, 1 not\n"
    assert task in result.stderr


@pytest.mark.parametrize(
    ("typed_words", "says"),
    [
        ((), "which are meant?"),
        (("--agent", "x", "--params", "{}"), "--params goes with the ID of one task"),
        (("tsk_nobody00", "--params", "[]"), "--params must be a JSON object"),
        (("tsk_nobody00", "--params", "{"), "--params must be a JSON object"),
        (("tsk_nobody00",), "task not found"),
    ],
)
def test_what_cannot_be_meant_is_refused(rota, typed_words, says):
    result = rota("dead", "revive", *typed_words)
    assert result.exit_code == 1
    assert says in result.stderr

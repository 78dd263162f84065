"""`rota submit`: every option reaches the task, and every refusal says what to type next."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

from rota.cli.server_options import found_later, hint_for
from rota.clock import US_PER_S, SystemClock, rfc3339
from rota.errors import RequestError, ServerUnreachable


@pytest.fixture
def submitted(rota):
    """Submit a task; gives it as `rota get` shows it."""

    def submit(*words):
        result = rota("submit", *words)
        assert result.exit_code == 0, result.stderr
        return json.loads(rota("get", result.stdout.strip(), "--json").stdout)

    return submit


def seconds_between(earlier: str, later: str) -> float:
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()


def test_dependencies_are_waited_for_and_shown(rota, submitted):
    words = ("--depends-on", "sub-p1", "--depends-on", "sub-p2", "--id", "sub-child")
    task = submitted("echo", "--agent", "sub1", *words)
    assert (task["taskId"], task["state"]) == ("sub-child", "blocked")
    assert task["waitingFor"] == task["dependsOn"] == ["sub-p1", "sub-p2"]
    for parent in ("sub-p1", "sub-p2"):
        assert rota("submit", "echo", "--agent", "sub1", "--id", parent, "--wait").exit_code == 0
    done = rota("submit", "echo", "--agent", "sub1", "--depends-on", "sub-child", "--wait")
    assert (done.exit_code, "succeeded" in done.stdout) == (0, True)


def test_missing_dependency_can_be_refused(rota):
    words = ("--depends-on", "sub-nobody", "--on-missing", "fail")
    result = rota("submit", "echo", "--agent", "sub1", *words)
    assert result.exit_code == 1
    assert "there is no task 'sub-nobody'" in result.stderr
    assert "--on-missing wait" in result.stderr


def test_cycle_is_refused_with_its_path(rota):
    rota("submit", "echo", "--agent", "sub1", "--id", "sub-a", "--depends-on", "sub-b")
    result = rota("submit", "echo", "--agent", "sub1", "--id", "sub-b", "--depends-on", "sub-a")
    assert result.exit_code == 1
    assert "sub-b -> sub-a -> sub-b" in result.stderr
    assert "--depends-on" in result.stderr


def test_id_that_is_taken_says_how_to_see_the_task(rota):
    assert rota("submit", "wait-here", "--agent", "sub1", "--id", "sub-mine").exit_code == 0
    result = rota("submit", "wait-here", "--agent", "sub1", "--id", "sub-mine")
    assert result.exit_code == 1
    assert "`rota get sub-mine`" in result.stderr
    assert "--id" in result.stderr


def test_delay_and_moment_hold_a_task_back(submitted):
    task = submitted("echo", "--agent", "sub2", "--delay", "2h")
    assert task["state"] == "scheduled"
    assert task["nextAttemptAt"] == task["notBefore"]
    assert 7199 < seconds_between(task["createdAt"], task["notBefore"]) <= 7200
    tomorrow = rfc3339(SystemClock().now_us() + 86_400 * US_PER_S)
    later = submitted("echo", "--agent", "sub2", "--not-before", tomorrow)
    assert (later["state"], later["notBefore"]) == ("scheduled", tomorrow)
    ahead = submitted("echo", "--agent", "sub2", "--not-before", "+90m")
    assert ahead["state"] == "scheduled"


@pytest.mark.parametrize(
    ("written", "ms"),
    [("500ms", 500), ("5s", 5000), ("1.5s", 1500), ("2m", 120_000), ("1h", 3_600_000)],
)
def test_durations_are_written_with_their_unit(submitted, written, ms):
    words = ("--timeout", written, "--queue-timeout", written)
    task = submitted("wait-here", "--agent", "sub3", *words)
    assert (task["timeoutMs"], task["queueTimeoutMs"]) == (ms, ms)


def test_retry_policy_is_made_of_its_options(submitted):
    words = ("--max-attempts", "7", "--retry-kind", "linear", "--retry-base", "2s")
    more = ("--retry-max", "1m", "--retry-on", "timeout", "--retry-on", "status:5xx")
    task = submitted("wait-here", "--agent", "sub4", *words, *more)
    assert task["maxAttempts"] == 7
    policy = {name: task["retry"][name] for name in ("kind", "baseMs", "maxMs", "retryOn")}
    assert policy == {
        "kind": "linear",
        "baseMs": 2000,
        "maxMs": 60_000,
        "retryOn": ["timeout", "status:5xx"],
    }


def test_failing_task_is_tried_as_often_as_asked_for(rota):
    words = ("--max-attempts", "3", "--retry-base", "1ms", "--retry-kind", "fixed", "--wait")
    result = rota("submit", "fail", "--agent", "sub5", *words)
    assert result.exit_code == 1
    assert "3 of 3" in result.stdout
    assert "asked_to_fail: failed as asked" in result.stdout


def test_retry_on_something_unknown_says_what_there_is(rota):
    result = rota("submit", "echo", "--agent", "sub5", "--retry-on", "full moon")
    assert result.exit_code == 1
    assert "status:5xx or code:NAME" in result.stderr


def test_key_and_preempt_reach_the_task(submitted):
    task = submitted("wait-here", "--agent", "sub6", "--key", "profile-1", "--preempt")
    assert (task["key"], task["preempt"]) == ("profile-1", True)


@pytest.mark.parametrize(("word", "number"), [("critical", 0), ("low", 3), ("17", 17)])
def test_priority_is_a_word_or_a_number(submitted, word, number):
    assert submitted("wait-here", "--agent", "sub7", "--priority", word)["priority"] == number


def test_unknown_priority_says_which_there_are(rota):
    result = rota("submit", "echo", "--agent", "sub7", "--priority", "soon")
    assert "critical, high, normal or low" in result.stderr


def test_idempotency_key_makes_one_task(rota):
    words = ("submit", "echo", "--agent", "sub8", "--idempotency-key", "sub-key")
    first, again = rota(*words), rota(*words)
    assert first.stdout == again.stdout
    assert "stands for this task already" in again.stderr
    other = rota(*words, "--param", "n=1")
    assert other.exit_code == 1
    assert "another idempotency key" in other.stderr


def test_dedup_rejects_returns_and_replaces(rota):
    words = ("submit", "wait-here", "--agent", "sub9", "--dedup-key", "sub-dedup")
    first = rota(*words, "--dedup-ttl", "1h").stdout.strip()
    refused = rota(*words)
    assert refused.exit_code == 1
    assert f"`rota get {first}`" in refused.stderr
    assert "--dedup-mode" in refused.stderr
    same = rota(*words, "--dedup-mode", "return")
    assert same.stdout.strip() == first
    assert "stands for this task already" in same.stderr
    second = rota(*words, "--dedup-mode", "replace").stdout.strip()
    assert second != first
    assert json.loads(rota("get", first, "--json").stdout)["error"]["code"] == "replaced"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--delay", "5"), "not like 500ms, 5s, 2m, 1h or 1d"),
        (("--delay", "5s", "--not-before", "+5s"), "either --delay or --not-before"),
        (("--not-before", "5s"), "not like +30s"),
        (("--dedup-mode", "return"), "--dedup-key"),
        (("--dedup-ttl", "1h"), "--dedup-key"),
        (("--max-attempts", "0"), "0"),
        (("--retry-kind", "cubic"), "exponential"),
    ],
)
def test_wrong_usage_says_what_is_right(rota, words, said):
    result = rota("submit", "echo", "--agent", "sub10", *words)
    assert result.exit_code == 2
    assert said in result.stderr


def test_wait_prints_the_result_when_the_task_ends(rota):
    result = rota("submit", "sleep", "--agent", "sub11", "--param", "ms=50", "--wait=30")
    assert result.exit_code == 0
    assert '{"sleptMs": 50}' in result.stdout


def test_wait_for_a_task_whose_dependency_failed_is_a_failure(rota):
    rota("submit", "fail", "--agent", "sub12", "--id", "sub-doomed", "--wait")
    result = rota("submit", "echo", "--agent", "sub12", "--depends-on", "sub-doomed", "--wait")
    assert result.exit_code == 1
    assert "dependency_failed: dependency sub-doomed failed" in result.stdout


def test_wait_cut_short_says_how_to_look_again(capsys):
    with pytest.raises(ServerUnreachable) as caught, found_later("rota get t1"):
        raise ServerUnreachable("gone")
    assert "`rota get t1`" in caught.value.hint
    with pytest.raises(KeyboardInterrupt), found_later("rota get t1"):
        raise KeyboardInterrupt
    assert "`rota get t1`" in capsys.readouterr().err


def test_the_rarer_options_of_a_retry_and_of_an_interruption(submitted):
    words = ("--retry-multiplier", "3", "--retry-jitter", "500ms", "--on-interrupt", "fail")
    task = submitted("wait-here", "--agent", "sub1", *words)
    assert (task["retry"]["multiplier"], task["retry"]["jitterMs"]) == (3.0, 500)
    assert (task["maxAttempts"], task["onInterrupt"]) == (4, "fail")


def test_a_task_that_nobody_runs_is_said_to_wait_for_a_worker(rota, submitted):
    submitted("wait-here", "--agent", "sub-lonely")
    assert "waits for a worker" in rota("list", "--agent", "sub-lonely").stdout


def test_a_param_is_json_where_it_can_be_and_text_where_that_is_asked(submitted):
    words = ("--param", "n=1", "--param", "name=one", "--param-str", "zip=01")
    task = submitted("wait-here", "--agent", "sub2", *words, "--param-str", "yes=true")
    assert task["params"] == {"n": 1, "name": "one", "zip": "01", "yes": "true"}
    both = submitted("wait-here", "--agent", "sub2", "--params", '{"a": 1}', "--param-str", "a=2")
    assert both["params"] == {"a": "2"}


def test_to_depend_on_another_agents_task_is_not_advised_to_be_tried_again():
    error = RequestError(
        "field 'dependsOn': there is no task 't' of this token's agents",
        code="missing_dependency",
        details={"taskId": "t"},
    )
    assert hint_for(error) == "ask with a --token that is for that task's agent as well"

"""How a server is stopped at a terminal, and what it says with --json-logs."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest
from support.server_process import ServerFailed, ServerProcess

from rota.client.sync_client import JsonClient
from rota.errors import ShuttingDown

PATIENT = {"server": {"grace_s": 60}}


def running(process: ServerProcess, count: int) -> list[str]:
    """Have so many attempts run that take long."""
    client = JsonClient(process.url)
    tasks = [client.submit("sleep", "a", params={"ms": 60_000})["taskId"] for _ in range(count)]
    for task in tasks:
        while client.get(task)["state"] != "running":
            time.sleep(0.01)
    return tasks


def test_the_first_ctrl_c_says_what_it_waits_for_and_the_second_ends_at_once(tmp_path):
    process = ServerProcess(tmp_path / "data", config=PATIENT).start()
    tasks = running(process, 3)
    os.kill(process.pid, signal.SIGINT)
    process.wait_printed("waiting up to 60 s for 3 running attempts; press Ctrl-C again")
    assert process.stop(signal.SIGINT) == 130
    assert "ended at once" in process.output()
    assert "Traceback" not in process.output()
    with process.start():
        client = JsonClient(process.url)
        kinds = [event["kind"] for event in client.task_events(tasks[0])]
        assert "attempt_interrupted" in kinds
        for task in tasks:
            client.cancel(task)


def test_one_attempt_is_one_and_none_is_not_waited_for(tmp_path):
    process = ServerProcess(tmp_path / "data", config=PATIENT).start()
    (task,) = running(process, 1)
    os.kill(process.pid, signal.SIGINT)
    process.wait_printed("for 1 running attempt;")
    assert process.stop(signal.SIGINT) == 130
    process.start()
    JsonClient(process.url).cancel(task)
    assert process.stop(signal.SIGINT) == 0
    assert "stopping\n" in process.output()
    assert "stopped in good order" in process.output()


def test_a_second_sigterm_does_not_cut_a_stop_short(tmp_path):
    process = ServerProcess(tmp_path / "data", config={"server": {"grace_s": 0.3}}).start()
    running(process, 1)
    os.kill(process.pid, signal.SIGTERM)
    process.wait_printed("waiting up to 0.3 s")
    assert process.stop(signal.SIGTERM) == 0


def json_lines(text: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in text.splitlines()]


def test_with_json_logs_every_line_is_json_from_the_first_to_the_last(tmp_path):
    process = ServerProcess(tmp_path / "data", config=PATIENT, args=("--json-logs",)).start()
    (task,) = running(process, 1)
    os.kill(process.pid, signal.SIGINT)
    process.wait_printed("press Ctrl-C again")
    assert process.stop(signal.SIGINT) == 130
    lines = json_lines(process.output())
    assert "listening on http://" in lines[0]["message"]
    assert "ended at once" in lines[-1]["message"]
    process.start()
    JsonClient(process.url).cancel(task)
    process.stop()
    assert json_lines(process.output())[-1]["message"] == "stopped in good order"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"server": {"onEvent": ["no_such_module:hear"]}}, "no_such_module cannot be imported"),
        ({"scheduler": {"workerCount": "two"}}, "scheduler.workerCount"),
    ],
)
def test_with_json_logs_what_keeps_it_from_starting_is_json(tmp_path, config, said):
    process = ServerProcess(tmp_path / "data", config=config, args=("--json-logs",))
    with pytest.raises(ServerFailed) as failed:
        process.start()
    (line,) = json_lines(failed.value.output)
    assert (failed.value.returncode, line["level"]) == (1, "error")
    assert said in line["message"]


def test_a_server_that_stops_says_so_to_whoever_connects_until_it_is_drained(tmp_path):
    process = ServerProcess(tmp_path / "data", config=PATIENT).start()
    (task,) = running(process, 1)
    os.kill(process.pid, signal.SIGTERM)
    process.wait_printed("waiting up to 60 s for 1 running attempt")
    for _ in range(2):  # each on a connection of its own
        with JsonClient(process.url, retries=0) as client:
            with pytest.raises(ShuttingDown):
                client.submit("echo", "a")
            assert client.get(task)["state"] == "running"
    assert process.stop(signal.SIGINT) == 130


def test_with_log_level_debug_requests_and_grants_are_logged(tmp_path):
    process = ServerProcess(tmp_path / "data", args=("--log-level", "debug")).start()
    with JsonClient(process.url) as client:
        done = client.submit("echo", "ann")["taskId"]
        client.wait(done, 10)
        lent = client.submit("greet", "ann")["taskId"]
        client.lease("w1", actions=["greet"])
    process.stop()
    said = process.output()
    assert "POST /v1/tasks by local: 202" in said
    assert f"attempt 1 of task {done} (ann) starts" in said
    assert f"attempt 1 of task {lent} (ann) is lent to worker w1" in said

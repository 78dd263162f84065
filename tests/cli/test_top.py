"""`rota top`: one frame, one object, and a view in a terminal that outlives its server."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console
from support.server_process import ServerProcess
from support.terminal import Terminal

from rota.cli.top_frame import Look, Page, frame, shown_ms

BOUNDS = [10, 100, 1000]
NONE = {"count": 0, "sum_ms": 0.0, "buckets": [0, 0, 0, 0]}


def look(
    at_s: float = 1.0,
    done: int = 0,
    buckets: tuple[int, ...] = (0, 0, 0, 0),
    agents: int = 1,
    workers: list[dict[str, Any]] | None = None,
) -> Look:
    counts = dict.fromkeys(("submitted", "dispatched", "completed", "failed", "retried"), done)
    row = {
        "tasks_created": done,
        "tasks_completed": done,
        "tasks_failed": 0,
        "average_latency": 1500.0,
        "worker_heartbeat_delay": None,
        "error_rate": 0.25,
    }
    times = {"count": sum(buckets), "sum_ms": 5.0 * sum(buckets), "buckets": list(buckets)}
    figures = {**row, "agents": {"agent-0": row}, "wait": times, "run": NONE, "bounds_ms": BOUNDS}
    stats = {
        "queue": {"waiting": 1234, "inflight": 20, "agents": 3},
        "callbacks": {"pending": 0},
        "total": counts,
        "figures": figures,
    }
    busy = [
        {"agentId": f"agent-{n}", "waiting": 9, "inflight": 1, "paused": n == 1}
        for n in range(agents)
    ]
    return Look(at_s, "12:00:00Z", stats, {"paused": False}, busy, workers)


def drawn(now: Look, before: Look | None = None, **page: Any) -> list[str]:
    out = io.StringIO()
    width = page.pop("width", 80)
    console = Console(file=out, width=width, highlight=False, markup=False)
    console.print(frame(now, before, Page("rota top", width, **page)))
    return out.getvalue().splitlines()


def test_one_frame_is_printed_for_a_pipe(rota, client):
    client.wait(client.submit("echo", "top1")["taskId"], 10)
    for words in (("top",), ("top", "--once")):
        shown = rota(*words)
        assert shown.exit_code == 0
        assert {"queue", "per", "wait", "run", "agent", "top1"} <= set(shown.stdout.split())


def test_json_has_all_that_a_frame_is_made_of(rota):
    told = json.loads(rota("top", "--json").stdout)
    assert set(told) >= {"stats", "scheduler", "agents"}
    assert "figures" in told["stats"]


def test_a_server_that_is_not_there_is_complained_about(typed):
    result = typed("top", "--once", env={"ROTA_URL": "http://127.0.0.1:9"})
    assert result.exit_code == 1
    assert "cannot reach" in result.stderr


def test_rates_waits_and_runs_are_those_between_two_looks():
    lines = drawn(look(3.0, 300, (10, 90, 0, 4)), look(1.0, 100, (10, 0, 0, 0)))
    assert "submitted 100" in lines[2]
    assert "p50 <100 ms" in lines[3]
    assert "p99 >1 s" in lines[3]
    assert "avg 5 ms  of 94" in lines[3]
    assert "p50 -" in lines[4]


def test_a_first_look_has_no_rates():
    lines = drawn(look(done=3, buckets=(3, 0, 0, 0)))
    assert "submitted -" in lines[2]
    assert "of 3" in lines[3]


def test_whatever_is_shown_fits_the_terminal():
    workers = [
        {"workerId": "host-" + "9" * 90, "holds": 2, "waiting": True, "heartbeatDelayMs": 12_000,
         "lastSeen": "2026-11-18T09:10:53Z"},
        *({"workerId": f"w{n}", "holds": 0, "waiting": False} for n in range(30)),
    ]  # fmt: skip
    for width, height in ((80, 24), (120, 40), (60, 16)):
        lines = drawn(look(agents=50, workers=workers), width=width, height=height, lost="x" * 200)
        assert max(map(len, lines)) <= width
        assert len(lines) <= height, (width, height)
        text = "\n".join(lines)
        assert "more agents" in text
        assert "more workers" in text
        assert "09:10:53" in text


def test_paused_agents_are_marked_and_workers_left_out_where_there_are_none():
    assert any("agent-1 (paused)" in line for line in drawn(look(agents=2)))
    assert not any("worker" in line for line in drawn(look()))
    assert any("none has come yet" in line for line in drawn(look(workers=[])))


def test_times_are_written_in_the_unit_they_are_read_in():
    values = (None, 0.25, 12, 1500, 119_000, 600_000, 7_200_000)
    told = ["-", "0.2 ms", "12 ms", "1.5 s", "119 s", "10 min", "2 h"]
    assert [shown_ms(value) for value in values] == told


@pytest.mark.parametrize("is_key", [True, False])
def test_a_terminal_is_drawn_again_until_q_or_ctrl_c_ends_it_quietly(server, is_key):
    with Terminal(80, "top", "--interval", "0.1", url=server.url) as terminal:
        terminal.until("queue")
        terminal.until("queue")
        if is_key:
            terminal.press("q")
        else:
            terminal.interrupt()
        assert terminal.ended() == 0


def test_a_server_that_restarts_is_waited_for(tmp_path):
    with ServerProcess(tmp_path / "first") as process:
        port = process.port
    with (
        ServerProcess(tmp_path / "data", args=("--port", str(port))) as process,
        Terminal(80, "top", "--interval", "0.1", url=process.url) as terminal,
    ):
        terminal.until("queue")
        process.kill()
        terminal.until("will ask again")
        process.start()
        terminal.until("submitted 0.0")
        terminal.press("q")
        assert terminal.ended() == 0

"""`rota bench`: against a given server, and against one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from support.server_process import REPOSITORY


def test_bench_of_a_given_server(rota, server):
    words = ("--url", server.url, "--tasks", "60", "--connections", "4")
    result = rota("bench", *words, "--json")
    assert result.exit_code == 0
    figures = json.loads(result.stdout)
    assert (figures["tasks"], figures["unfinished"]) == (60, 0)
    assert figures["submissionsPerSecond"] > 0
    assert figures["tasksPerSecond"] > 0
    for name in ("dispatchMs", "dispatchAtRestMs"):
        assert 0 <= figures[name]["p50"] <= figures[name]["p99"] <= figures[name]["max"]


def test_bench_starts_a_server_of_its_own_and_leaves_nothing_behind(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "rota", "bench", "--tasks", "40"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "TMPDIR": str(tmp_path)},
    )
    assert "submissions/s" in done.stdout
    assert "p99" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_bench_of_no_server_says_so(typed):
    result = typed("bench", "--url", "http://127.0.0.1:1")
    assert result.exit_code == 1
    assert "cannot reach" in result.stderr

"""A real server whose wall clock is set: +1 h for two seconds, then right again, then kill -9.

Nobody but root can set a machine's clock, so the server is started with a `sitecustomize` that adds
what a file says to `time.time`; the steady clock is the machine's.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import Client, until
from support.kill_harness import config
from support.server_process import REPOSITORY, ServerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SITE = """
import time
from pathlib import Path

real, path = time.time, Path(__file__).with_name("ahead")
time.time = lambda: real() + float(path.read_text())
"""
ONCE_MORE = {"kind": "fixed", "baseMs": 1000, "maxAttempts": 2}


class Told(Client):
    """Talks to the server, and sets its clock."""

    def __init__(self, site: Path) -> None:
        self._ahead = site / "ahead"
        self.set_clock(0)

    def set_clock(self, ahead_s: float) -> None:
        """Set the clock (by a rename: the server reads the file at any time)."""
        fresh = self._ahead.with_suffix(".new")
        fresh.write_text(str(ahead_s))
        fresh.replace(self._ahead)

    def ended(self, task_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get(f"/v1/tasks/{task_id}?waitMs=10000").json
        assert found["state"] in ("succeeded", "failed"), found
        return found


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with a clock that can be set."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(SITE)
    return folder


@pytest.fixture
def server(tmp_path: Path, site: Path) -> Iterator[ServerProcess]:
    """A server with that clock."""
    path = os.pathsep.join((str(site), str(REPOSITORY)))
    made = ServerProcess(tmp_path / "data", config(), {"PYTHONPATH": path})
    yield made
    if made.returncode is None:
        made.kill()


def check_in_time(rota: Told) -> None:
    began = time.monotonic()
    delayed = rota.submit_native(delayMs=1000)
    failed = rota.submit_native(action="fail", retry=ONCE_MORE)
    slow = rota.submit_native(action="sleep", params={"ms": 8000}, timeoutMs=3000)
    soon = (datetime.now(UTC) + timedelta(seconds=60)).isoformat()
    assert rota.ended(rota.submit_native(deadline=soon))["state"] == "succeeded"
    assert rota.ended(delayed)["state"] == "succeeded"
    assert rota.ended(failed)["attempt"] == 2
    assert time.monotonic() - began < 2.5
    assert rota.ended(slow)["error"]["code"] == "timeout"
    assert 2.9 < time.monotonic() - began < 4.5


@pytest.mark.parametrize("ahead_s", [3600, -3600])
def test_a_clock_that_was_wrong_for_two_seconds_leaves_no_trace(
    server: ServerProcess, site: Path, ahead_s: int
) -> None:
    rota = Told(site)
    server.start()
    rota.port = server.port
    running = rota.submit_native(action="sleep", params={"ms": 8000}, timeoutMs=3000)
    began = time.monotonic()
    rota.set_clock(ahead_s)
    until(lambda: "clock_steps" in rota.get("/health").json, within_s=2)
    rota.submit_native()
    rota.set_clock(0)
    until(lambda: len(rota.get("/health").json["clock_steps"]) == 2, within_s=2)
    assert rota.ended(running)["error"]["code"] == "timeout"
    assert 2.9 < time.monotonic() - began < 4.5
    check_in_time(rota)
    rota.set_clock(ahead_s)
    until(lambda: len(rota.get("/health").json["clock_steps"]) == 3, within_s=2)
    rota.submit_native()
    assert server.output().count("the clock was set") == 3
    server.kill()
    rota.set_clock(0)
    server.start()
    rota.port = server.port
    check_in_time(rota)
    assert server.stop() == 0, server.output()
    assert ("the clock was set back" in server.output()) == (ahead_s > 0)

"""What strangers cause cannot fill the process's log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rota.actors.log_rate import LogRate

if TYPE_CHECKING:
    import pytest


def test_so_many_lines_in_a_span_and_a_count_of_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    rate = LogRate(3, 60.0, lambda: now[0])
    logger = logging.getLogger("rota.test")
    with caplog.at_level(logging.WARNING, logger="rota.test"):
        for n in range(10_000):
            rate.warn(logger, "no %d", n)
        assert caplog.messages == ["no 0", "no 1", "no 2"]
        now[0] = 60.0
        rate.warn(logger, "no %d", 7)
        rate.warn(logger, "no %d", 8)
    left_out = " (9997 lines like this one were left out before it)"
    assert caplog.messages[3:] == [f"no 7{left_out}", "no 8"]


def test_lines_about_one_leave_room_for_lines_about_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rate = LogRate(10, 60.0, lambda: 0.0)
    log = logging.getLogger("rota.test")
    with caplog.at_level(logging.WARNING, logger="rota.test"):
        for owner in ("noisy", "quiet"):
            for _ in range(100):
                rate.warn(log, "%s", owner, owner=owner)
    said = [message.split()[0] for message in caplog.messages]
    assert (said.count("noisy"), said.count("quiet")) == (5, 2)

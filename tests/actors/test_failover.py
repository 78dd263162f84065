"""The phases of a shard whose log fails: which there are, and what leads from one to another."""

from __future__ import annotations

from typing import Any

import pytest

from rota.actors.failover import MOVES, Failover, LogNews, Phase
from rota.clock import ManualClock
from rota.errors import LogCorrupt, LogUnusable
from rota.eventlog.memory_store import MemoryLog
from rota.projections.state import State


class Loop:
    """A host and a committer's thread in one: what is to be done is done by hand."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.waiting: list[tuple[int, Any]] = []

    def call_threadsafe(self, what: Any, *args: Any) -> None:
        what(*args)

    def call_at(self, at_us: int, what: Any) -> None:
        self.waiting.append((at_us, what))

    def run(self, what: Any) -> None:
        what()

    def wake(self) -> int:
        """Do what is due next; give how long that took in milliseconds."""
        at, what = self.waiting.pop(0)
        took = at - self.clock.now_us()
        self.clock.move_to(at)
        what()
        return took // 1000


class Shaky(MemoryLog):
    """A log that fails as often as it is told to."""

    broken: Exception | None = None
    unreadable: Exception | None = None

    def reopen(self) -> Any:
        if self.broken is not None:
            raise self.broken
        return super().reopen()

    def head(self) -> Any:
        if self.unreadable is not None:
            raise self.unreadable
        return super().head()


class Shown:
    """What the shard is told."""

    def __init__(self) -> None:
        self.loop, self.log = Loop(), Shaky()
        self.told: list[str] = []
        self.failover = Failover(
            self.log,
            self.loop,  # type: ignore[arg-type]
            show=lambda _: self.told.append("show"),
            resume=lambda *_: self.told.append("resume"),
            give_up=lambda error: self.told.append(f"give up: {error.message}"),
        )

    def fail(self, acknowledged: int = 0) -> None:
        error = LogUnusable("Input/output error")
        self.failover.begin(self.loop, error, acknowledged, State())  # type: ignore[arg-type]


@pytest.fixture
def shown() -> Shown:
    return Shown()


def test_every_phase_but_the_last_can_be_left_and_all_can_be_reached() -> None:
    assert {source for source, _ in MOVES} == set(Phase) - {Phase.GIVEN_UP}
    assert set(MOVES.values()) == set(Phase)
    assert {source for source, news in MOVES if news is LogNews.LOST} == set(Phase) - {
        Phase.GIVEN_UP
    }
    assert all(news is not LogNews.FAILED or source is Phase.RUNNING for source, news in MOVES)


def test_a_log_that_accepts_writes_again_is_gone_on_with_at_once(shown: Shown) -> None:
    shown.fail()
    assert (shown.failover.phase, shown.failover.reason) == (Phase.RUNNING, "")
    assert shown.told == ["resume"]


def test_a_log_that_can_only_be_read_is_shown_and_tried_ever_more_rarely(shown: Shown) -> None:
    shown.log.broken = LogUnusable("No space left on device")
    shown.fail()
    assert (shown.failover.phase, shown.told) == (Phase.READ_ONLY, ["show"])
    assert shown.failover.is_readable
    assert [shown.loop.wake() for _ in range(5)] == [500, 1000, 2000, 4000, 5000]
    assert (shown.failover.phase, shown.told) == (Phase.READ_ONLY, ["show"])
    shown.log.broken = None
    shown.loop.wake()
    assert (shown.failover.phase, shown.told) == (Phase.RUNNING, ["show", "resume"])


def test_while_nothing_can_be_read_whoever_wants_to_waits(shown: Shown) -> None:
    heard: list[str] = []
    shown.log.broken = shown.log.unreadable = LogUnusable("Input/output error")
    shown.fail()
    assert (shown.failover.phase, shown.told) == (Phase.REBUILDING, [])
    assert not shown.failover.is_readable
    shown.failover.when_readable(lambda: heard.append("readable"))
    shown.loop.wake()
    assert heard == []
    shown.log.unreadable = None
    shown.loop.wake()
    assert (shown.failover.phase, heard) == (Phase.READ_ONLY, ["readable"])


def test_a_log_that_lost_what_was_acknowledged_is_given_up_for_good(shown: Shown) -> None:
    heard: list[str] = []
    shown.log.broken = shown.log.unreadable = LogUnusable("Input/output error")
    shown.fail(acknowledged=7)
    shown.failover.when_readable(lambda: heard.append("woken"))
    shown.log.broken = shown.log.unreadable = None
    shown.loop.wake()
    assert shown.told == ["give up: the log ends at 0, but 7 was acknowledged"]
    assert (shown.failover.phase, heard) == (Phase.GIVEN_UP, ["woken"])
    assert not shown.failover.is_readable
    shown.failover.lose(LogCorrupt(1, "again"))
    assert len(shown.told) == 1
    assert not shown.loop.waiting

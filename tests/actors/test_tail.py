"""The tail holds what became durable, in order, within its bounds; the log has the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.actors import tail as tails
from rota.actors.tail import Tail
from rota.domain import events as e
from rota.domain.events import Record
from rota.eventlog.chain import extend
from rota.eventlog.codec import KINDS, decode, encode, subject_of
from rota.eventlog.heading import heading_of
from rota.eventlog.memory_store import MemoryLog
from rota.eventlog.port import Stored

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = st.text(alphabet='ab"\\é\u2028\n', min_size=0, max_size=6)
EVENTS: tuple[Callable[[str, str], e.Event], ...] = (
    lambda task, agent: e.TaskStarted(task, agent, 1),
    lambda task, agent: e.TaskSucceeded(task, agent, 1, {"task": agent, "kind": task}),
    lambda _, agent: e.AgentPaused(agent, "because"),
    lambda task, _: e.BatchFinished(task, 1, 0, 0),
    lambda _, __: e.ServerStopped("asked"),
)


class Feeding:
    """A log, and a tail that is told of it or not."""

    def __init__(self, **bounds: int) -> None:
        self.log = MemoryLog()
        self.epoch = self.log.claim()
        self.tail = Tail(**bounds)
        self.tail.last = 0

    def append(self, count: int, size: int = 1) -> list[Stored]:
        """Make records durable, and tell nobody."""
        made: list[Stored] = []
        seq, digest = self.log.head()
        for n in range(count):
            event = e.TaskLogged(f"t{(seq + n) % 3}", "ann", ["x" * size])
            body = encode(Record(seq + n + 1, 1, event))
            digest = extend(digest, body)
            made.append(Stored(seq + n + 1, digest, body, subject_of(event)))
        self.log.append(made, seq, self.epoch)
        return made

    def add(self, count: int, size: int = 1) -> None:
        """Make records durable, and feed the tail."""
        self.tail.add(self.append(count, size))

    def page(self, after: int) -> list[tails.Entry]:
        """Give the next records, from memory or from the log."""
        if self.tail.holds(after):
            return self.tail.page(after)
        return self.tail.read(self.log, after, None)[0]

    def read(self, after: int) -> list[int]:
        """Read everything after a place."""
        found: list[int] = []
        while page := self.page(after):
            found += [entry.seq for entry in page]
            after = found[-1]
        return found


@settings(deadline=None)
@given(st.sampled_from(EVENTS), NAMES, NAMES, st.sampled_from(["", "ops"]))
def test_a_heading_is_what_the_whole_record_says(
    make: Callable[[str, str], e.Event], task: str, agent: str, by: str
) -> None:
    body = encode(Record(7, 8, make(task, agent), by, 3))
    event = decode(body).event
    plan = getattr(event, "plan", None)
    project = getattr(event, "project", None) or (plan.project if plan is not None else None)
    expected = (KINDS[type(event)], subject_of(event), getattr(event, "agent", None), project)
    assert heading_of(body) == expected


def test_nothing_is_kept_while_nobody_reads() -> None:
    feeding = Feeding()
    feeding.add(5)
    with feeding.tail.reading():
        assert feeding.tail.last == 5
        assert not feeding.tail.holds(4)
        feeding.add(2)
        assert feeding.tail.holds(5)
        assert feeding.read(0) == list(range(1, 8))
    assert not feeding.tail.holds(5)


@pytest.mark.parametrize(
    ("bounds", "size", "kept"), [({"records_max": 4}, 1, 4), ({"bytes_max": 1000}, 300, 2)]
)
def test_it_is_bounded_by_count_and_by_bytes(bounds: dict[str, int], size: int, kept: int) -> None:
    feeding = Feeding(**bounds)
    with feeding.tail.reading():
        for _ in range(20):
            feeding.add(3, size)
        assert feeding.tail.holds(60 - kept)
        assert not feeding.tail.holds(60 - kept - 1)
        assert feeding.read(0) == list(range(1, 61))
        feeding.add(1, 10_000)
        assert feeding.read(58) == [59, 60, 61]


def test_a_page_is_bounded_from_memory_and_from_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "PAGE_BYTES", 1000)
    feeding = Feeding(records_max=6)
    with feeding.tail.reading():
        feeding.add(12, 400)
        for after in (0, 3, 6, 9):
            assert [entry.seq for entry in feeding.page(after)] == [after + 1, after + 2]


def test_what_is_not_reported_durable_is_not_shown() -> None:
    feeding = Feeding()
    with feeding.tail.reading():
        feeding.add(2)
        late = feeding.append(3)
        assert feeding.read(0) == [1, 2]
        assert [entry.seq for entry in feeding.tail.read(feeding.log, 0, "t0")[0]] == [1]
        feeding.tail.add(late)
        assert feeding.read(0) == [1, 2, 3, 4, 5]


def test_records_that_the_log_alone_knew_of_are_found_there() -> None:
    """A commit that failed and was there nevertheless, as the reopened log shows."""
    feeding = Feeding()
    with feeding.tail.reading():
        feeding.add(2)
        feeding.append(3)
        feeding.add(1)
        assert not feeding.tail.holds(2)
        assert feeding.read(1) == [2, 3, 4, 5, 6]


def test_the_records_of_a_task_are_looked_through_to_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tails, "PAGE_RECORDS", 2)
    feeding = Feeding()
    feeding.add(10)
    found: list[int] = []
    after = 0
    while after < 10:
        page, after = feeding.tail.read(feeding.log, after, "t1")
        found += [entry.seq for entry in page]
    assert found == [2, 5, 8]

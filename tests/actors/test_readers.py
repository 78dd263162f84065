"""The threads that read the log: what goes first, what is not read, and when somebody is refused."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest

from rota.actors import readers
from rota.actors.readers import Readers
from rota.errors import StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WAIT_S = 10.0


class Desk:
    """Readers, and a loop that only takes note of what it is told."""

    def __init__(self) -> None:
        self.told: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self.read: list[str] = []
        self.begun = threading.Semaphore(0)
        self.go = threading.Event()
        self.readers = Readers(lambda what, value: what(value))

    def fetch(
        self, name: str, *, hangs: bool = False, by: str = "", **how: Callable[[], bool]
    ) -> None:
        def read() -> str:
            self.read.append(name)
            self.begun.release()
            if hangs:
                assert self.go.wait(WAIT_S)
            return name

        def done(value: str) -> None:
            self.told.put(("done", value))

        def failed(error: BaseException) -> None:
            self.told.put(("failed", error))

        readers.asked_by.set(by)
        self.readers.fetch(read, done, failed, **how)

    def hang_all_that_show(self) -> None:
        for n in range(readers.READERS_MAX - readers.DECIDING_ONLY):
            self.fetch(f"hangs {n}", hangs=True, by=f"{n}", is_wanted=yes)
            assert self.begun.acquire(timeout=WAIT_S)

    def heard(self, count: int = 1) -> list[tuple[str, Any]]:
        return [self.told.get(timeout=WAIT_S) for _ in range(count)]


def yes() -> bool:
    return True


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.go.set()


def test_many_slow_reads_for_showing_do_not_hold_up_a_decision(desk: Desk) -> None:
    desk.hang_all_that_show()
    for n in range(500):
        desk.fetch(f"shown {n}", is_wanted=yes)
    for n in range(20):
        desk.fetch(f"decides {n}")
        assert desk.heard() == [("done", f"decides {n}")]
    assert not any(name.startswith("shown") for name in desk.read)
    desk.go.set()
    assert len(desk.heard(503)) == 503


def test_what_decides_goes_before_what_shows(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "READERS_MAX", 1)
    monkeypatch.setattr(readers, "DECIDING_ONLY", 0)
    desk.hang_all_that_show()
    desk.fetch("shown", is_wanted=yes)
    desk.fetch("decides")
    desk.go.set()
    desk.heard(3)
    assert desk.read == ["hangs 0", "decides", "shown"]


def test_what_nobody_waits_for_any_more_is_not_read(desk: Desk) -> None:
    desk.hang_all_that_show()
    is_there = [True]
    for n in range(100):
        desk.fetch(f"left {n}", is_wanted=lambda: is_there[0])
    desk.fetch("stayed", is_wanted=yes)
    is_there[0] = False
    desk.go.set()
    heard = desk.heard(4)
    assert ("done", "stayed") in heard
    assert not any(name.startswith("left") for name in desk.read)
    assert desk.told.empty()


def test_each_kind_has_a_bound_of_its_own(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "WAITING_MAX", 2)
    desk.hang_all_that_show()
    desk.fetch("hangs, too", hangs=True)
    assert desk.begun.acquire(timeout=WAIT_S)
    for n in range(2):
        desk.fetch(f"shown {n}", by=f"{n}", is_wanted=yes)
        desk.fetch(f"decides {n}")
    desk.fetch("one more", is_wanted=yes)
    ((how, error),) = desk.heard()
    assert how == "failed"
    assert isinstance(error, StorageUnavailable)
    assert error.retryable
    desk.fetch("one more")
    assert isinstance(desk.heard()[0][1], StorageUnavailable)
    desk.go.set()
    assert {how for how, _ in desk.heard(8)} == {"done"}
    assert "one more" not in desk.read


def test_those_who_have_left_take_no_room(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "WAITING_MAX", 2)
    desk.hang_all_that_show()
    is_there = [True]
    for n in range(2):
        desk.fetch(f"left {n}", by=f"{n}", is_wanted=lambda: is_there[0])
    is_there[0] = False
    desk.fetch("came later", is_wanted=yes)
    desk.go.set()
    assert ("done", "came later") in desk.heard(4)


def test_callers_are_read_for_in_turns(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "READERS_MAX", 1)
    monkeypatch.setattr(readers, "DECIDING_ONLY", 0)
    desk.hang_all_that_show()
    for n in range(100):
        desk.fetch(f"many {n}", by="many", is_wanted=yes)
    for n in range(2):
        desk.fetch(f"few {n}", by="few", is_wanted=yes)
    desk.go.set()
    desk.heard(103)
    assert desk.read[1:5] == ["many 0", "few 0", "many 1", "few 1"]


def test_reads_of_one_caller_that_hang_hold_up_nobody_else(desk: Desk) -> None:
    for n in range(readers.READERS_MAX):
        desk.fetch(f"hangs {n}", hangs=True, by="slow", is_wanted=yes)
    for n in range(20):
        desk.fetch(f"{n}", by="other", is_wanted=yes)
        assert desk.heard() == [("done", f"{n}")]
    desk.go.set()
    desk.heard(readers.READERS_MAX)


def test_a_caller_whose_queue_is_full_keeps_nobody_else_out(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "WAITING_MAX", 4)
    desk.hang_all_that_show()
    for n in range(2):
        desk.fetch(f"many {n}", by="many", is_wanted=yes)
    desk.fetch("one more", by="many", is_wanted=yes)
    assert isinstance(desk.heard()[0][1], StorageUnavailable)
    desk.fetch("few", by="few", is_wanted=yes)
    desk.go.set()
    assert {how for how, _ in desk.heard(6)} == {"done"}
    assert "one more" not in desk.read


def test_threads_end_when_there_is_nothing_to_read_and_begin_anew(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "IDLE_S", 0.01)
    for n in range(50):
        desk.fetch(f"{n}", **({"is_wanted": yes} if n % 2 else {}))
        assert desk.heard() == [("done", f"{n}")]
        if n % 10 == 0:
            for thread in threading.enumerate():
                if thread.name == "rota-reader":
                    thread.join(WAIT_S)

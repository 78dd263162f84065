"""What is kept of log lines and reports of progress, told as given, when, then."""

from __future__ import annotations

from typing import Any

import pytest
from support.builders import Given, assigned, cancelled, given, started, submitted, succeeded

from rota.domain import events as e
from rota.domain.notes import FULL, LINE_CHARS_MAX, LINES_MAX, REPORTS_MAX, decide_notes
from rota.errors import Conflict

RUNNING = (submitted(), assigned(), started())


def logged(*lines: str, level: str = "info", attempt: int = 1) -> e.TaskLogged:
    """Lines of the first attempt."""
    return e.TaskLogged("t1", "a1", list(lines), level, attempt)


def progressed(progress: Any) -> e.TaskProgressed:
    """A report of the first attempt."""
    return e.TaskProgressed("t1", "a1", progress, 1)


def many(count: int) -> list[e.Event]:
    """So many lines, a hundred at a time."""
    return [logged(*["x"] * min(100, count - at)) for at in range(0, count, 100)]


def noted(story: Given, *lines: str, progress: Any = None, strict: bool = False) -> list[e.Event]:
    """What is kept of a note."""
    return [*decide_notes(story.task, lines, "info", progress, strict=strict)]


def test_lines_and_progress_are_kept_with_the_attempt_they_belong_to() -> None:
    story = given(*RUNNING)
    assert noted(story, "one", "two", progress=0.5) == [logged("one", "two"), progressed(0.5)]
    assert decide_notes(story.task, ["careful"], "warning", None) == [
        logged("careful", level="warning")
    ]


def test_a_task_that_waits_may_be_noted_too() -> None:
    assert noted(given(submitted()), "soon", strict=True) == [logged("soon", attempt=0)]


@pytest.mark.parametrize("progress", [0, 0.0, "", [], {}, False])
def test_a_report_may_be_of_anything_but_nothing(progress: Any) -> None:
    assert noted(given(*RUNNING), progress=progress) == [progressed(progress)]
    assert noted(given(*RUNNING)) == []


def test_a_long_line_is_cut() -> None:
    [event] = noted(given(*RUNNING), "x" * (LINE_CHARS_MAX + 1), "y" * LINE_CHARS_MAX)
    assert event == logged("x" * LINE_CHARS_MAX, "y" * LINE_CHARS_MAX)


def test_the_last_line_there_is_room_for_says_that_there_is_no_more() -> None:
    almost = given(*RUNNING, *many(LINES_MAX - 2))
    assert noted(almost, "fits") == [logged("fits")]
    assert noted(almost, "fits", "does not") == [logged("fits", FULL)]
    assert noted(almost, *["many"] * 50) == [logged("many", FULL)]
    assert noted(given(*RUNNING, *many(LINES_MAX - 1)), "one") == [logged(FULL)]


def test_what_comes_after_the_last_line_is_dropped() -> None:
    full = given(*RUNNING, *many(LINES_MAX))
    assert noted(full, "one too many") == []
    assert noted(full, "one too many", progress=1) == [progressed(1)]


def test_however_lines_come_in_a_task_keeps_so_many_and_no_more() -> None:
    for size in (1, 7, LINES_MAX - 1, LINES_MAX, LINES_MAX + 1):
        story = given(*RUNNING)
        kept: list[str] = []
        for _ in range(LINES_MAX // size + 2):
            for event in noted(story, *["x"] * size):
                assert isinstance(event, e.TaskLogged)
                kept += event.lines
                story.state.apply(e.Record(story.state.seq + 1, story.now, event))
        assert len(kept) == LINES_MAX
        assert kept[-1] == FULL
        assert kept.count(FULL) == 1


def test_reports_are_bounded_too() -> None:
    almost = given(*RUNNING, *[progressed(n) for n in range(REPORTS_MAX - 1)])
    assert noted(almost, progress="last") == [progressed("last")]
    assert noted(given(*RUNNING, *[progressed(n) for n in range(REPORTS_MAX)]), progress=1) == []


def test_somebody_outside_is_told_when_nothing_was_kept() -> None:
    full = given(*RUNNING, *many(LINES_MAX))
    with pytest.raises(Conflict, match="the task's log is full") as caught:
        noted(full, "one too many", strict=True)
    assert (caught.value.code, caught.value.details) == ("log_full", {"taskId": "t1"})
    assert noted(full, progress=1, strict=True) == [progressed(1)]


@pytest.mark.parametrize("end", [succeeded(), cancelled(was="running")])
def test_somebody_outside_cannot_note_a_task_that_has_ended(end: e.Event) -> None:
    with pytest.raises(Conflict, match="task is already"):
        noted(given(*RUNNING, end), "too late", strict=True)

"""What is known of projects: kept in snapshots of one instant, and bounded by count and by bytes."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any

from support.builders import START_US, assigned, fold, records_of, started

from rota.actors import snapshotter
from rota.domain import events as e
from rota.domain.plan import Plan
from rota.domain.project_parts import DONE_KEPT, ERROR_CHARS_KEPT, RUNS_KEPT
from rota.eventlog.chain import GENESIS
from rota.projections.state import State

if TYPE_CHECKING:
    import pytest


def item(name: str, project: str = "p", **more: Any) -> e.ProjectTaskAdded:
    request = {"agent": project, "action": "echo", "params": {"z": 1, "a": [name]}, **more}
    return e.ProjectTaskAdded(project, project, name, request)


def test_a_snapshot_in_the_making_has_the_lists_of_its_instant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshotter, "SLICE_ITEMS", 2)
    monkeypatch.setattr(snapshotter, "SLICE_BYTES", 60)
    before = [item(f"t{n}", project) for project in "pq" for n in range(5)]
    before = [each._replace(item=f"{each.project}-{each.item}") for each in before]
    state, then = fold(records_of(before)), fold(records_of(before)).digest()
    making = snapshotter.Snapshotter(state, GENESIS)
    assert making.slice() is None
    changes = (
        e.ProjectTaskEdited("q", "q", "q-t4", {"agent": "q", "action": "sleep"}),
        e.ProjectTaskMoved("q", "q", "q-t4", "q-t0"),
        e.ProjectTaskRemoved("p", "p", "p-t4"),
        e.ClockStepped(START_US, START_US - 3_600_000_000),
        e.ProjectDeleted("p"),
    )
    for seq, event in enumerate(changes, start=state.seq + 1):
        state.apply(e.Record(seq, START_US, event))
    while (made := making.slice()) is None:
        pass
    assert State.load(made.blob).digest() == then


def test_so_many_runs_and_done_tasks_are_kept_and_so_much_of_their_errors() -> None:
    story: list[e.Event] = []
    for n in range(DONE_KEPT + 5):
        task, run = f"t{n}", f"run-{n}"
        plan = Plan(project="p", run=run)
        story += [
            item(task), e.RunQueued(run, "p", "single"), e.RunStarted(run, "p"),
            e.RunTaskSelected(run, "p", task),
            e.TaskSubmitted(task, "agent-1", "echo", "builtin", 1, plan=plan),
            assigned(task), started(task), e.TaskFailed(task, "agent-1", 1, "bad", "x" * 4000),
            e.RunEnded(run, "p", "failed", "task_failed", 0, "x" * 4000),
        ]  # fmt: skip
    state = fold(records_of(story))
    project = state.projects.by_id["p"]
    assert (len(project.runs), len(project.done)) == (RUNS_KEPT, DONE_KEPT)
    assert len(state.projects.names) == RUNS_KEPT
    errors = [*(run.error for run in project.runs), *(done.error for done in project.done)]
    assert {len(error or "") for error in errors} == {ERROR_CHARS_KEPT}
    assert (state.projects.items.held, state.projects.bytes.held, project.bytes) == (0, 0, 0)


def test_the_bytes_of_each_list_are_counted_and_outlive_a_snapshot() -> None:
    story = [item("a"), item("b"), item("c"), e.ProjectTaskRemoved("agent-1", "p", "c", "")]
    more = [e.RunQueued("run-1", "p", "single"), e.RunStarted("run-1", "p")]
    state = fold(records_of([*story, *more, e.RunTaskSelected("run-1", "p", "a")]))
    project = state.projects.by_id["p"]
    assert project.taken is not None
    assert project.bytes == project.taken.size + sum(each.size for each in project.items) > 0
    loaded = State.load(state.dump())
    assert loaded.projects.by_id["p"].bytes == loaded.projects.bytes.held == project.bytes


def test_a_task_on_a_list_takes_hardly_more_memory_than_its_bytes_count() -> None:
    records = records_of([item(f"t{n}") for n in range(1000)])
    state = fold(records[:1])
    tracemalloc.start()
    try:
        for record in records[1:]:
            state.apply(record)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken / 999 < state.projects.bytes.held / 1000 + 1000

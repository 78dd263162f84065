"""Bugs planted in projects, each of which the simulator must find.

Each function breaks one of their promises, in the way a hurried change could: one run at a time,
each task once, chosen when its turn comes, a stop that ends, figures that are true.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.planted import Plant, finds

from rota.actors import projects as actor
from rota.actors import settling
from rota.actors.consequences import Consequences
from rota.actors.killing import Killing
from rota.domain import events as e
from rota.domain import project as runs
from rota.domain.project_parts import Figures, Project
from rota.projections.projects import Projects

if TYPE_CHECKING:
    import pytest


def nothing(*_args: Any, **_more: Any) -> None:
    """Do nothing, instead of what should be done."""


def a_project_is_started_twice(patch: pytest.MonkeyPatch) -> None:
    def lax(project: Any, name: str, mode: str, run: str, *more: Any) -> tuple[e.RunQueued]:
        runs.known(project)
        return (e.RunQueued(run, name, mode, *more[:2]),)

    patch.setattr(actor, "decide_run", lax)


def a_task_stays_on_its_list_when_it_is_selected(patch: pytest.MonkeyPatch) -> None:
    on_selected = Projects.on_selected

    def keeps(self: Projects, record: Any) -> None:
        project = self.by_id[record.event.project]
        items = list(project.items)
        on_selected(self, record)
        project.items = items

    patch.setattr(Projects, "on_selected", keeps)


def the_last_of_a_list_comes_first(patch: pytest.MonkeyPatch) -> None:
    decide_next = runs.decide_next

    def last(project: Project, *args: Any) -> Any:
        project.items.reverse()
        try:
            return decide_next(project, *args)
        finally:
            project.items.reverse()

    patch.setattr(actor, "decide_next", last)


def a_loop_goes_on_after_a_failure(patch: pytest.MonkeyPatch) -> None:
    why_over = runs._why_over

    def forgiving(run: Any) -> Any:
        run.fate = None
        return why_over(run)

    patch.setattr(runs, "_why_over", forgiving)


def a_stop_is_not_heeded(patch: pytest.MonkeyPatch) -> None:
    why_over = runs._why_over

    def deaf(run: Any) -> Any:
        stop, run.stop = run.stop, None
        end = why_over(run)
        run.stop = stop
        return end

    patch.setattr(runs, "_why_over", deaf)


def a_stop_leaves_a_task_that_has_not_begun(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(runs, "_wind_up", lambda *_, **_more: ())
    patch.setattr(runs, "decide_stopped", lambda *_, **_more: ())


def what_a_stop_takes_back_is_lost(patch: pytest.MonkeyPatch) -> None:
    hold = runs.decide_hold
    patch.setattr(runs, "decide_hold", lambda *args: hold(*args)[:1])


def nobody_hears_of_the_end_of_a_project_s_task(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Consequences, "_look_at_project", nothing)


def a_kill_frees_its_slot_before_it_is_gone(patch: pytest.MonkeyPatch) -> None:
    cut_off = Killing._cut_off

    def hasty(self: Killing, task: str, token: int, *rest: Any) -> None:
        cut_off(self, task, token, *rest)
        self._journal.state.projects.killing.setdefault(task, "")
        found = self._journal.state.tasks.get(task)
        if found is not None:
            self._journal.record(e.TaskCancelled(found.id, found.agent, "running", "", None))

    patch.setattr(Killing, "_cut_off", hasty)


def nobody_hears_that_a_kill_is_gone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Killing, "_gone", nothing)


def what_is_being_killed_runs_again(patch: pytest.MonkeyPatch) -> None:
    """It is let go at once when its attempt failed, and when it was interrupted."""
    patch.setattr(actor.ProjectsActor, "_end_killed", nothing)
    patch.setattr(settling, "decide_stopped", lambda *_: ())
    patch.setattr(runs, "decide_stopped", lambda *_, **_more: ())


def a_run_waits_for_ever_for_its_turn(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Consequences, "_room_for_runs", nothing)


def more_projects_run_than_may(patch: pytest.MonkeyPatch) -> None:
    def greedy(self: Any) -> None:
        for run, project in list(self._projects.waiting.items()):
            self._journal.record(e.RunStarted(run, project))
            self._look(project)

    patch.setattr(actor.ProjectsActor, "_start_runs", greedy)


def an_ended_run_is_counted_twice(patch: pytest.MonkeyPatch) -> None:
    on_ended = Figures.on_ended

    def twice(self: Figures, run: Any) -> None:
        on_ended(self, run)
        if run.reason == "empty":
            on_ended(self, run)

    patch.setattr(Figures, "on_ended", twice)


def a_project_that_runs_is_deleted(patch: pytest.MonkeyPatch) -> None:
    def lax(project: Any, name: str, reason: str, *_more: Any) -> e.ProjectDeleted:
        return e.ProjectDeleted(runs.known(project).id, reason)

    patch.setattr(actor, "decide_deletion", lax)


PLANTED: list[Plant] = [
    a_project_is_started_twice,
    a_task_stays_on_its_list_when_it_is_selected,
    the_last_of_a_list_comes_first,
    a_loop_goes_on_after_a_failure,
    a_stop_is_not_heeded,
    a_stop_leaves_a_task_that_has_not_begun,
    what_a_stop_takes_back_is_lost,
    nobody_hears_of_the_end_of_a_project_s_task,
    a_kill_frees_its_slot_before_it_is_gone,
    nobody_hears_that_a_kill_is_gone,
    what_is_being_killed_runs_again,
    a_run_waits_for_ever_for_its_turn,
    more_projects_run_than_may,
    an_ended_run_is_counted_twice,
    a_project_that_runs_is_deleted,
]

test_the_simulator_finds_the_bug = finds(PLANTED)

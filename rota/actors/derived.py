"""What a success makes: the task that follows it by the rules in force, to be recorded with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.domain.admission import has_bytes_enough
from rota.domain.derived import Place, decide_follow_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.actors.new_ids import NewIds
    from rota.domain.events import Event, TaskSucceeded
    from rota.domain.task import Task
    from rota.projections.state import State


def place_in(state: State, ids: NewIds, now: int) -> Place:
    """Give what a task of rota's own needs from outside."""
    waiting = state.backlog
    is_full = has_bytes_enough(waiting, state.control.limits)
    return Place(lambda: ids.draw("native"), waiting.total, now, is_full, waiting)


def follow_ups(
    task: Task, event: TaskSucceeded, state: State, ids: NewIds, now: int
) -> Sequence[Event]:
    rules = state.control.rules
    return decide_follow_up(task, event, rules, place_in(state, ids, now)) if rules.types else ()

"""Projects in the random histories of builders.py: each move is one that a decide function grants."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rota.domain import events as e
from rota.domain.derived import Place
from rota.domain.intake import Request, Rules
from rota.domain.plan import Plan
from rota.domain.project import decide_cut, decide_next, decide_run, decide_stop
from rota.domain.project_lists import (
    decide_additions,
    decide_creation,
    decide_deletion,
    decide_edit,
    decide_move,
    decide_removal,
)
from rota.errors import RequestError

if TYPE_CHECKING:
    from random import Random

NAMES = ("p", "q", "r")


def play_projects(play: Any, dice: Random) -> None:
    """Make a move with one project, or go on with what its run is at."""
    projects = play.state.projects
    name = dice.choice(NAMES)
    project = projects.get(name)
    items = [item.id for item in project.items] if project is not None else []
    some = dice.choice(items or ["nobody"])
    request = Request(name, dice.choice(["echo", "sleep"]), params={"n": dice.randrange(9)})
    request = request._replace(plan=Plan(idempotency=dice.choice([None, "k"]), digest="d"))
    room = projects.room(1000)
    fresh = f"item-{play.state.seq}"
    before = dice.choice([None, some if items else None])
    steps = [
        lambda: decide_additions(project, name, [(fresh, request)], before, room),
        lambda: decide_additions(project, name, [(fresh, request)], before, room),
        lambda: [decide_creation(project, name, "dice", room)],
        lambda: [decide_edit(project, name, some, request, room)],
        lambda: [decide_move(project, name, some, dice.choice([None, 0, 1, some]))],
        lambda: [decide_removal(project, name, some, "dice")],
        lambda: [decide_deletion(project, name, "dice")] if dice.random() < 0.3 else [],
        lambda: decide_run(project, name, dice.choice(["single", "loop"]), f"run-{fresh}"),
        lambda: decide_run(project, name, "loop", f"run-{fresh}", dice.choice([None, some])),
        lambda: _stop(play, project, dice),
    ]
    with suppress(RequestError):
        play.record(*[each for each in dice.choice(steps)() if each is not None], by="dice")
    for run, owner in list(projects.waiting.items()):
        play.record(e.RunStarted(run, owner))
    _go_on(play)


def _stop(play: Any, project: Any, dice: Random) -> tuple[e.Event, ...]:
    if project is None:
        return ()
    force = dice.random() < 0.5
    kills = [
        task.id
        for task in play.state.slots.held()
        if task.plan and task.plan.project == project.id and task.state.value == "running"
    ]
    return decide_stop(project, "dice", force=force, kills=kills if dice.random() < 0.8 else ())


def _go_on(play: Any) -> None:
    """Do what is due about every run, and let what is cut off be gone."""
    state = play.state
    for task_id in list(state.projects.killing):
        task = state.tasks.get(task_id)
        play.record(decide_cut(task, "gone"))
    for name in state.projects.live():
        project = state.projects.get(name)
        while (run := project.run) is not None:
            task = state.tasks.get(run.task) if run.task is not None else None
            place = Place(lambda: f"back-{state.seq}", state.backlog.total, play._at)
            events = decide_next(project, task, Rules(), place, state.tasks.get)
            if not events:
                break
            play.record(*events)

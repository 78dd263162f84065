"""Tasks that rota submits itself: what follows a success, and what a workflow escalates to.

Each is recorded together with the fact that causes it, so there is exactly one of it, whatever
crashes. A queue that is full does not refuse it: it was promised by what came before. If its params
cannot be filled in it is born all the same and fails at once with `bad_params`, a dead letter that
somebody can revive with better ones; the fact that caused it stands. So does one with large params
while what waits has all the bytes that it may have: else one rule could fill the memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from rota.domain import events as e
from rota.domain.admission import BYTES_ENOUGH, check_requirements, submitted
from rota.domain.commands import PULL
from rota.domain.intake import Request, Rules, take_in
from rota.domain.placeholders import AtHand
from rota.domain.plan import Plan
from rota.domain.shares import share_of
from rota.errors import InvalidRequest, QueueFull

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rota.domain.admission import Required
    from rota.domain.task import Task

BAD_PARAMS, FOLLOW_DEPTH = "bad_params", "follow_depth"
FOLLOW_DEPTH_MAX = 10
"""So many tasks follow one another at most, should reloads of the rules make a circle."""

DERIVED_BYTES_MAX = 64 << 10
"""Params of so many bytes have room in every queue; larger ones only below `maxQueueBytes`."""


class FollowUp(NamedTuple):
    """The rule of a type: what follows each success of it.

    If it `joins` it counts towards the workflow of what it follows; else it only carries its id.
    """

    type: str
    agent: str | None = None
    params: dict[str, Any] | None = None
    priority: int | None = None
    joins: bool | None = None


class Place(NamedTuple):
    """What a new task needs from outside: an id, its place in the queue, the time.

    `is_full` says that what waits has all the bytes that it may have, `labels` which sets of labels
    it requires.
    """

    new_id: Callable[[], str]
    waiting: int
    now: int
    is_full: bool = False
    labels: Required | None = None


def decide_follow_up(
    task: Task, event: e.TaskSucceeded, rules: Rules, place: Place
) -> tuple[e.TaskSubmitted | e.TaskFailed, ...]:
    """Give the task that follows a success, if its type has a rule for that."""
    plan = task.plan
    is_follow_up = plan is not None and plan.follows is not None
    written = rules.follow_up_of(task.action, is_follow_up=is_follow_up)
    if written is None:
        return ()
    rule = FollowUp(**written)
    depth = (plan.follow_depth or 0 if plan is not None else 0) + 1
    said = {
        "result": event.result,
        "task": {
            "id": task.id,
            "agent": task.agent,
            "type": task.action,
            "attempt": event.attempt,
            "params": task.params or {},
        },
    }
    workflow = plan.workflow if plan is not None else None
    counts = rule.joins and plan is not None and plan.joined is not None
    request = Request(
        rule.agent or task.agent,
        rule.type,
        params=rule.params,
        priority=rule.priority,
        plan=Plan(
            workflow=workflow,
            follows=task.id,
            follow_depth=depth,
            uncounted=None if workflow is None or counts else True,
        ),
    )
    derived = decide_derived(request, said, rules, place)
    if depth <= FOLLOW_DEPTH_MAX or len(derived) > 1:
        return derived
    (born,) = derived
    why = f"{FOLLOW_DEPTH_MAX} tasks follow one another already; the rules may lead in a circle"
    return (born, e.TaskFailed(born.task, born.agent, 0, FOLLOW_DEPTH, why))


def decide_derived(
    request: Request, said: Mapping[str, Any], rules: Rules, place: Place
) -> tuple[e.TaskSubmitted | e.TaskFailed, ...]:
    """Give a task of rota's own with what is `said` in its params, or one that fails for them."""
    wrong = ""
    try:
        if request.params:
            filled = AtHand(said).fill_in(request.params)
            _check_size(filled, place)
            request = request._replace(params=filled)
    except InvalidRequest as error:
        wrong = error.message
    return decide_born(request, rules, place, wrong)


def decide_born(
    request: Request, rules: Rules, place: Place, wrong: str = ""
) -> tuple[e.TaskSubmitted | e.TaskFailed, ...]:
    """Give a task that was promised; it fails at once if something is `wrong` with it.

    What was fine when it was asked for may be no more: the rules of its type have changed, or the
    clock was set back.
    """
    code = BAD_PARAMS
    try:
        command = take_in(request, rules, place.now)
        if place.labels is not None:
            check_requirements(place.labels, (command.plan,), share_of(request.by, request.agent))
    except QueueFull as error:
        code, wrong = error.code, error.message
    except InvalidRequest as error:
        wrong = wrong or error.message
        command = take_in(_bare(request, rules), Rules(), place.now)
    event = submitted(command, place.new_id(), place.waiting + 1, at=place.now)
    if not wrong:
        return (event,)
    return (event, e.TaskFailed(event.task, event.agent, 0, code, wrong))


def _bare(request: Request, rules: Rules) -> Request:
    """Leave out what a rule, or the moment, may speak against."""
    executor = rules.executor_for(request.action)
    plan = request.plan._replace(not_before=None, delay_ms=None)
    if executor != PULL:
        plan = plan._replace(requires=None)
    return request._replace(executor=executor, deadline=None, plan=plan)


def _check_size(params: dict[str, Any], place: Place) -> None:
    if place.is_full and len(orjson.dumps(params)) > DERIVED_BYTES_MAX:
        msg = f"params are larger than {DERIVED_BYTES_MAX} bytes, and {BYTES_ENOUGH}"
        raise InvalidRequest(msg)


def circle_of(follows: Mapping[str, str]) -> list[str] | None:
    """Give types that follow each other in a circle, or a row that is too long; None if none do.

    `follows` names, for each type with a rule, the type that follows it.
    """
    for start in follows:
        walked = [start]
        while (after := follows.get(walked[-1])) is not None:
            walked.append(after)
            if after in walked[:-1] or len(walked) > FOLLOW_DEPTH_MAX + 1:
                return walked
    return None

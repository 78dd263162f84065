"""What a firing makes: a task, a workflow or a run of a project, in the record of the firing.

A queue that is full does not refuse what the calendar asks for: it was promised when the schedule
was made. That stays bounded, because what a schedule made has ended before it makes more, and what
all of them make at once fits into the queues (`Room` in schedule.py); the firing says that the
queue was full. What somebody asks for is refused. What cannot be submitted for another reason (the
rules of its type have changed, there are too many workflows, the project is no more) is refused
with that, and the moment is skipped. Params may say `{{schedule.name}}` and `{{schedule.moment}}`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rota.domain import admission
from rota.domain.intake import take_in, take_in_batch
from rota.domain.placeholders import Filling, names_in
from rota.domain.project import decide_run
from rota.domain.schedule import PROJECT, TASK, WORKFLOW, owner_of
from rota.domain.stored import read_request, read_workflow
from rota.domain.workflow import check_live, check_members
from rota.errors import InvalidRequest, QueueFull

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rota.domain.admission import WaitingCounts
    from rota.domain.commands import Limits
    from rota.domain.dependencies import WaitsOf
    from rota.domain.events import Event
    from rota.domain.intake import BatchRequest, Request, Rules
    from rota.domain.project_parts import Project

SAID = ("name", "moment")
_ROOT = "schedule"


class Around(NamedTuple):
    """What a firing needs of the shard: ids, the rules, what waits, and the time.

    `position` is how many tasks wait, without the one that is cancelled for this; `live_flows` and
    `flow_tasks` count the workflows that go on and their tasks. `find` gives a project. A firing
    that somebody asked for `minds_limits`; one of the calendar does not.
    """

    new_task: Callable[[], str]
    new_workflow: Callable[[], str]
    new_run: Callable[[], str]
    find: Callable[[str], Project | None]
    rules: Rules
    limits: Limits
    waiting: WaitingCounts
    position: int
    live_flows: int
    flow_tasks: int
    now: int
    minds_limits: bool = False


class Made(NamedTuple):
    """What a firing makes, and the id of it; `reason` says that it went into a full queue."""

    subject: str
    events: tuple[Event, ...]
    reason: str = ""


class _Words(Filling):
    """Fills in what is said of the schedule; other names are left for their tasks' parents."""

    def __init__(self, said: dict[str, str]) -> None:
        super().__init__()
        self._said = said

    def value_of(self, name: str) -> tuple[bool, Any]:
        root, _, rest = name.partition(".")
        if root != _ROOT or rest not in self._said:
            return False, None
        self.spend(len(self._said[rest]))
        return True, self._said[rest]


class _Nobody:
    """A graph in which nobody waits: a workflow of a schedule depends on itself alone."""

    @staticmethod
    def waits_for(ids: Iterable[str], parents: Iterable[str]) -> WaitsOf:
        del ids, parents
        return lambda _: ()


def decide_target(target: dict[str, Any], said: dict[str, str], by: str, around: Around) -> Made:
    """Give what a schedule makes now. Raises a RequestError if it cannot be."""
    if TASK in target:
        return _task(read_request(target[TASK], by), said, around)
    if WORKFLOW in target:
        return _workflow(read_workflow(target[WORKFLOW], by), said, around)
    project, run = target[PROJECT], around.new_run()
    return Made(run, decide_run(around.find(project["id"]), project["id"], project["mode"], run))


def _task(request: Request, said: dict[str, str], around: Around) -> Made:
    command = take_in(_told(request, said), around.rules, around.now)
    admission.check_requirements(
        around.waiting, (command.plan,), owner_of(request.by, (request.agent,))
    )
    event = admission.submitted(command, around.new_task(), around.position + 1, at=around.now)
    return Made(event.task, (event,), _fullness(around, (event.agent,), request.by))


def _workflow(batch: BatchRequest, said: dict[str, str], around: Around) -> Made:
    batch = batch._replace(tasks=tuple([_told(each, said) for each in batch.tasks]))
    command = take_in_batch(batch, around.rules, around.now)
    check_live(around.live_flows)
    check_members(around.flow_tasks + len(command.tasks))
    plans, agents = [task.plan for task in command.tasks], [task.agent for task in command.tasks]
    admission.check_requirements(around.waiting, plans, owner_of(batch.by, agents))
    workflow, ids = around.new_workflow(), _several(around.new_task, len(command.tasks))
    tasks, _ = admission.decide_batch(
        command, workflow, ids, waiting=around.position, find=_nothing, graph=_Nobody(),
        at=around.now,
    )  # fmt: skip
    events = (admission.submitted_batch(command, workflow, ids), *tasks)
    return Made(workflow, events, _fullness(around, agents, batch.by))


def _fullness(around: Around, agents: Sequence[str], by: str) -> str:
    full = admission.why_full(around.waiting, around.limits, agents, "native", by)
    if full and around.minds_limits:
        limits = around.limits
        details = {"maxQueue": limits.queued, "maxPerAgent": limits.queued_per_agent}
        raise QueueFull(full, details=details)
    return f"{full.removeprefix('rejected: ')}; it was let in all the same" if full else ""


def _several(new_id: Callable[[], str], count: int) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < count:
        found[new_id()] = None
    return list(found)


def _nothing(_: str) -> None:
    return None


def _told(request: Request, said: dict[str, str]) -> Request:
    """Fill in what is said of the schedule, and name it in the task."""
    plan = request.plan._replace(schedule=said["name"])
    params = _Words(said).fill_in(request.params) if request.params else request.params
    return request._replace(params=params, plan=plan)


# -- what may be kept to be made later -----------------------------------------------------------


def check_task(request: Request, field: str = "task") -> None:
    """Refuse in a stored task what holds only once, or for one moment. Raises InvalidRequest."""
    plan = request.plan
    wrong = {
        "taskId": request.wanted_id,
        "deadline": request.deadline,
        "notBefore": plan.not_before,
        "workflowId": plan.workflow,
        "idempotencyKey": plan.idempotency,
        "dedup": request.dedup,
    }
    for name, value in wrong.items():
        if value is not None:
            raise _bad(f"{field}.{name}", "is for one task, and a schedule makes many")
    for name in names_in(request.params):
        root, _, rest = name.partition(".")
        if root == _ROOT and rest not in SAID:
            known = " and ".join(f"{{{{{_ROOT}.{each}}}}}" for each in SAID)
            problem = f"nothing stands for '{{{{{name[:100]}}}}}'; there are {known}"
            raise _bad(f"{field}.params", problem)


def check_alone(request: Request) -> None:
    """Refuse dependencies of a task that comes alone. Raises InvalidRequest."""
    check_task(request)
    if request.depends:
        raise _bad("task.dependsOn", "is for tasks of one workflow; schedule that")


def check_workflow(batch: BatchRequest, rules: Rules) -> None:
    """Refuse a workflow that could not be made each time. Raises InvalidRequest."""
    for name, value in (("idempotencyKey", batch.idempotency), ("workflowId", batch.wanted_id)):
        if value is not None:
            raise _bad(f"workflow.{name}", "is for one workflow, and a schedule makes many")
    for at, request in enumerate(batch.tasks):
        check_task(request, f"workflow.tasks.{at}")
        for each in request.depends:
            if isinstance(each, str) and not each.startswith("ref:"):
                problem = "names a task outside; use an index or ref:name of this workflow"
                raise _bad(f"workflow.tasks.{at}.dependsOn", problem)
    command = take_in_batch(batch, rules, 0)
    ids = [f"#{n}" for n in range(len(command.tasks))]
    admission.decide_batch(command, "", ids, waiting=0, find=_nothing, graph=_Nobody())


def _bad(field: str, problem: str) -> InvalidRequest:
    return InvalidRequest(f"field '{field}': {problem}", details={"field": field})

"""Decide: accept or reject a submission.

Only waiting tasks count toward the queue caps; tasks of a document that knows no cap per agent are
bound by the global one alone, of which tokens have shares; all callers have shares of the bytes. A
rejection is a fact like any other: it is recorded, listed, and tells the client which queue was
full. `position` is the place in the queue over all agents at the moment of submission. A batch is
admitted whole or not at all.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Protocol

from rota.domain import events as e
from rota.domain.commands import SETTINGS
from rota.domain.dependencies import Items, Prospects, check_cycles, decide_dependencies, resolve
from rota.domain.intake import NATIVE
from rota.domain.plan import NO_PLAN
from rota.domain.shares import may_take, share_of
from rota.domain.tokens import LOCAL, ROTA
from rota.errors import Conflict, InvalidRequest, QueueFull, Unprocessable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rota.domain.commands import Dedup, Flow, Limits, SubmitBatch, SubmitTask
    from rota.domain.dependencies import Find, WaitsOf
    from rota.domain.plan import Plan

GLOBAL_FULL = "rejected: global queue full"
AGENT_FULL = "rejected: agent queue full"
BYTES_ENOUGH = "what waits and runs has as many bytes as maxQueueBytes allows"
BYTES_FULL = f"rejected: global queue full: {BYTES_ENOUGH}"
SHARE_FULL = f"{GLOBAL_FULL}: your share of maxQueueSize waits"
BYTES_SHARE_FULL = f"{GLOBAL_FULL}: what waits and runs of yours has your share of maxQueueBytes"
PAUSES_MAX = 10_000
"""How many agents are paused at most."""
TYPE_PAUSES_MAX = 1_000
"""How many types are: those are shown all at once."""
NO_AGENT_CAP = frozenset({"browseros"})
"""The dialects whose documents know no cap per agent; a task's own is in its record."""
REQUIREMENTS_MAX = 256
"""How many sets of labels waiting tasks require at most: workers wait in lines for each.

Callers have shares (domain/shares.py); a set that others require already takes none.
"""
KEYS_MAX = 1_000_000
"""How many idempotency and dedup keys are held at most."""


class WaitingCounts(Protocol):
    """How many tasks wait, and how many bytes all take that have not ended."""

    required: dict[str, int]

    @property
    def total(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    def of_agent(self, agent: str) -> int: ...

    def of_owner(self, owner: str) -> int: ...

    def bytes_of(self, owner: str) -> int: ...

    def sets_of(self, owner: str) -> int: ...


class Required(Protocol):
    """Which sets of labels waiting tasks require, and how many do; how many sets a caller's do."""

    @property
    def required(self) -> Mapping[str, int]: ...

    def sets_of(self, owner: str) -> int: ...


class Graph(Protocol):
    """Who waits for whom already."""

    def waits_for(self, ids: Iterable[str], parents: Iterable[str]) -> WaitsOf:
        """Give the way to follow edges, if they can lead from `parents` to the new `ids`."""
        ...


def check_can_fit(limits: Limits, agents: Sequence[str], dialect: str) -> None:
    """Refuse a batch that would not fit into empty queues either. Raises Unprocessable."""
    if not agents:
        return
    agent, most = Counter(agents).most_common(1)[0]
    if len(agents) > limits.queued:
        of, cap, name = f"{len(agents)} tasks", limits.queued, SETTINGS["queued"]
    elif most > limits.queued_per_agent and dialect not in NO_AGENT_CAP:
        of = f"{most} tasks of agent '{agent}'"
        cap, name = limits.queued_per_agent, SETTINGS["queued_per_agent"]
    else:
        return
    msg = f"a batch with {of} can never fit: at most {cap} may wait ({name})"
    details = {"size": len(agents), "limit": name, "max": cap}
    hint = f"raise scheduler.{name}, or submit smaller batches"
    raise Unprocessable(msg, code="batch_too_large_for_queue", details=details, hint=hint)


def why_full(
    waiting: WaitingCounts,
    limits: Limits,
    agents: Iterable[str],
    dialect: str = "",
    by: str = ROTA,
) -> str | None:
    """Say which queue has no room for one more task of each of `agents`, if any."""
    return _why_full(waiting, limits, Counter(agents), dialect, by)


def _why_full(
    waiting: WaitingCounts, limits: Limits, wanted: Mapping[str, int], dialect: str, by: str
) -> str | None:
    """Say which queue is full. A token has a share of `maxQueueSize`; an agent has `maxPerAgent`.

    So without tokens agents may fill a queue of a few, as PinchTab's document has it.
    """
    total, owner = sum(wanted.values()), share_of(by, min(wanted, default=""))
    if waiting.total + total > limits.queued:
        return GLOBAL_FULL
    for agent, count in wanted.items() if dialect not in NO_AGENT_CAP else ():
        if waiting.of_agent(agent) + count > limits.queued_per_agent:
            return AGENT_FULL
    is_token = by not in (LOCAL, ROTA)
    if is_token and not may_take(waiting.of_owner(owner), waiting.total, total, limits.queued):
        return SHARE_FULL
    if has_bytes_enough(waiting, limits):
        return BYTES_FULL
    own, most = waiting.bytes_of(owner), limits.queued_bytes
    return None if not most or may_take(own, waiting.bytes, 1, most) else BYTES_SHARE_FULL


def has_bytes_enough(waiting: WaitingCounts, limits: Limits) -> bool:
    """Whether what waits and runs has all the bytes that it may have; one more is let in before."""
    return 0 < limits.queued_bytes <= waiting.bytes


def decide_submission(
    waiting: WaitingCounts,
    limits: Limits,
    command: SubmitTask,
    task_id: str,
    *,
    at: int = 0,
    depends: dict[str, str] | None = None,
    prospects: Prospects | None = None,
) -> e.TaskSubmitted | e.TaskRejected:
    full = _why_full(waiting, limits, {command.agent: 1}, command.dialect, command.by)
    if full is not None:
        return rejected(command, task_id, full)
    return submitted(
        command, task_id, waiting.total + 1, at=at, depends=depends, prospects=prospects
    )


def submitted(
    command: SubmitTask,
    task_id: str,
    position: int,
    *,
    at: int = 0,
    depends: dict[str, str] | None = None,
    prospects: Prospects | None = None,
    batch: str | None = None,
    parallelism: int | None = None,
) -> e.TaskSubmitted:
    plan, dedup = command.plan, command.dedup
    if plan is not NO_PLAN or depends or batch is not None or dedup is not None:
        plan = _filled(plan, at, depends, batch, parallelism, dedup)
    return e.TaskSubmitted(
        task_id,
        command.agent,
        command.action,
        command.executor,
        position,
        command.priority,
        command.params,
        command.dialect,
        command.tab,
        command.ref,
        command.callback,
        command.deadline,
        command.timeout_ms,
        command.on_interrupt,
        list(prospects.waits) if prospects is not None and prospects.waits else None,
        None if plan == NO_PLAN else plan,
    )


def _filled(
    plan: Plan,
    at: int,
    depends: dict[str, str] | None,
    batch: str | None,
    parallelism: int | None,
    dedup: Dedup | None,
) -> Plan:
    """Add to a plan what only admission knows."""
    return plan._replace(
        batch=batch,
        parallelism=parallelism,
        depends=depends,
        not_before=plan.not_before if plan.delay_ms is None else at + plan.delay_ms * 1000,
        digest=plan.digest if plan.idempotency is not None else None,
        dedup=dedup.key if dedup is not None else None,
        dedup_until=at + dedup.ttl_us if dedup is not None and dedup.ttl_us else None,
    )


def decide_batch(
    batch: SubmitBatch,
    batch_id: str,
    ids: Sequence[str],
    *,
    waiting: int,
    find: Find,
    graph: Graph,
    at: int = 0,
) -> tuple[list[e.TaskSubmitted], list[Prospects]]:
    """Write down the tasks of a batch for which there is room. Raises InvalidRequest."""
    items = Items(ids, [command.ref for command in batch.tasks])
    depends = [resolve(command.depends, items) for command in batch.tasks]
    find = cache(find)
    known = frozenset(ids)
    for command in batch.tasks:
        items.check_prefixed(command.depends, lambda each: each in known or find(each) is not None)
    labels = {
        task_id: items.label(task_id, n, is_own=command.wanted_id is not None)
        for n, (task_id, command) in enumerate(zip(ids, batch.tasks, strict=True))
    }
    parents = {each for names in depends for each in names.values()} - known
    edges = {i: names.values() for i, names in zip(ids, depends, strict=True)}
    check_cycles(edges, graph.waits_for(ids, parents), lambda each: labels.get(each, each))
    events, prospects = [], []
    is_flow = batch.flow is not None
    for n, command in enumerate(batch.tasks):
        found = decide_dependencies(depends[n], command.on_missing, find, known)
        prospects.append(found)
        events.append(
            submitted(
                _member(command, batch_id) if is_flow else command,
                ids[n],
                waiting + n + 1,
                at=at,
                depends=depends[n] or None,
                prospects=found,
                batch=None if is_flow else batch_id,
                parallelism=batch.parallelism,
            )
        )
    return events, prospects


def _member(command: SubmitTask, workflow: str) -> SubmitTask:
    return command._replace(plan=command.plan._replace(workflow=workflow))


def submitted_batch(
    batch: SubmitBatch, batch_id: str, ids: list[str]
) -> e.BatchSubmitted | e.WorkflowSubmitted:
    if batch.flow is not None:
        return _submitted_flow(batch, batch_id, batch.flow)
    return e.BatchSubmitted(
        batch_id,
        ids,
        batch.dialect,
        batch.parallelism,
        batch.callback,
        batch.idempotency,
        batch.digest if batch.idempotency is not None else None,
    )


def _submitted_flow(batch: SubmitBatch, workflow: str, flow: Flow) -> e.WorkflowSubmitted:
    return e.WorkflowSubmitted(
        workflow,
        len(batch.tasks),
        flow.name,
        flow.is_open or None,
        flow.failure,
        flow.on_failure,
        flow.escalate,
        batch.callback,
        batch.idempotency,
        batch.digest if batch.idempotency is not None else None,
        batch.dialect if batch.dialect != NATIVE else None,
    )


def rejected(command: SubmitTask, task_id: str, error: str) -> e.TaskRejected:
    """Write down that a task found no room, and nothing of what it was to do."""
    return e.TaskRejected(
        task=task_id,
        agent=command.agent,
        action=command.action,
        code="queue_full",
        error=error,
        priority=command.priority,
        dialect=command.dialect,
    )


def check_ahead(deadline: int | None, now: int) -> None:
    """Refuse a deadline that has passed. Raises InvalidRequest."""
    if deadline is not None and deadline <= now:
        msg = "field 'deadline': is in the past"
        raise InvalidRequest(msg, details={"field": "deadline"})


def check_same(key: str, digest: str | None, known: str | None) -> None:
    """Refuse another request under a known idempotency key. Raises Unprocessable."""
    if digest != known:
        msg = f"idempotency key '{key}' was used for a different request"
        raise Unprocessable(msg, code="idempotency_conflict", details={"idempotencyKey": key})


def check_keys(held: int) -> None:
    """Refuse a new key when too many are held. Raises QueueFull."""
    if held >= KEYS_MAX:
        msg = f"{KEYS_MAX} idempotency and dedup keys are held already"
        raise QueueFull(msg, code="too_many_keys", details={"max": KEYS_MAX})


def check_requirements(waiting: Required, plans: Iterable[Plan], owner: str) -> None:
    """Refuse sets of labels that no waiting task requires when too many do. Raises QueueFull."""
    wanted = {"\n".join(plan.requires) for plan in plans if plan.requires}
    wanted -= waiting.required.keys()
    own, total = waiting.sets_of(owner), len(waiting.required)
    if wanted and not may_take(own, total, len(wanted), REQUIREMENTS_MAX):
        msg = f"waiting tasks require {REQUIREMENTS_MAX} different sets of labels already"
        msg += ", or yours as many as may"
        details = {"field": "requires", "max": REQUIREMENTS_MAX}
        raise QueueFull(msg, code="too_many_requirements", details=details)


def check_pauses(paused: int, *, of_types: bool = False) -> None:
    """Refuse one more pause when too many are held. Raises QueueFull."""
    most = TYPE_PAUSES_MAX if of_types else PAUSES_MAX
    if paused >= most:
        msg = f"{most} are paused already; resume some, or pause the scheduler"
        raise QueueFull(msg, code="too_many_pauses", details={"max": most})


def duplicate(key: str, task_id: str) -> Conflict:
    """Refuse a task whose dedup key is taken."""
    msg = f"a task with the dedup key '{key}' exists already"
    return Conflict(msg, code="duplicate", details={"taskId": task_id, "dedupKey": key})

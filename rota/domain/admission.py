"""Decide: accept or reject a submission.

Only waiting tasks count toward the queue caps. A rejection is a fact like any other: it is
recorded, listed, and tells the client which queue was full. `position` is the place in the queue
over all agents at the moment of submission.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rota.domain import events as e

if TYPE_CHECKING:
    from rota.domain.commands import Limits, SubmitTask

GLOBAL_FULL = "rejected: global queue full"
AGENT_FULL = "rejected: agent queue full"


class WaitingCounts(Protocol):
    """How many tasks wait."""

    total: int

    def of_agent(self, agent: str) -> int:
        """Count the agent's waiting tasks."""
        ...


def decide_submission(
    waiting: WaitingCounts, limits: Limits, command: SubmitTask, task_id: str
) -> e.TaskSubmitted | e.TaskRejected:
    """Admit the task, or say which queue is full."""
    if waiting.total >= limits.queued:
        return _rejected(command, task_id, GLOBAL_FULL)
    if waiting.of_agent(command.agent) >= limits.queued_per_agent:
        return _rejected(command, task_id, AGENT_FULL)
    return e.TaskSubmitted(
        task_id,
        command.agent,
        command.action,
        command.executor,
        waiting.total + 1,
        command.priority,
        command.params,
        command.dialect,
        command.tab,
        command.ref,
        command.callback,
        command.deadline,
        command.timeout_ms,
        command.on_interrupt,
    )


def _rejected(command: SubmitTask, task_id: str, error: str) -> e.TaskRejected:
    return e.TaskRejected(
        task=task_id,
        agent=command.agent,
        action=command.action,
        code="queue_full",
        error=error,
        priority=command.priority,
        params=command.params,
        dialect=command.dialect,
        tab=command.tab,
        ref=command.ref,
        callback=command.callback,
        deadline=command.deadline,
    )

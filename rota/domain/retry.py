"""When to try again: the policy, its curves, and which errors are worth another attempt.

The n-th retry waits `min(curve(n) + jitter, maxMs)`: exponential `base * multiplier^(n-1)`,
quadratic `base * n^2`, linear `base * n`, fixed `base`; jitter is drawn between 0 and `jitterMs` by
the caller. An executor's `Retry-After` lengthens the wait, past `maxMs` if need be; a worker's
`retryAfterMs` is the wait, longer or shorter. `retryOn` names classes of errors: `timeout`,
`connection`, `status:503`, `status:5xx`, `code:NAME`; without it every error is tried again but
those that no repetition can mend. An executor's own word that it is no use trying again is taken;
that it is, only where `retryOn` does not say otherwise. A worker that asks for another attempt at a
task without a policy gets what is usual (`ASKED_FOR`), which the task then keeps for this life.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rota.domain import events as e

if TYPE_CHECKING:
    from rota.domain.commands import Outcome
    from rota.domain.task import Task

RETRY_AFTER_S_MAX = 3600.0
ATTEMPTS = 4
"""How many attempts a policy has that does not say."""

HOPELESS = frozenset(
    {
        "bad_params",
        "bad_result",
        "deadline_exceeded",
        "no_executor",
        "result_too_deep",
        "result_too_large",
        "stream_too_large",
        "tab_invalid",
        "tab_required",
        "unknown_action",
    }
)
"""Codes of errors that the same attempt would only meet again."""


class RetryPolicy(NamedTuple):
    """How often and when to try again; written into events as a dict of what differs."""

    kind: str = "exponential"
    base_ms: int = 1000
    multiplier: float = 2.0
    jitter_ms: int = 0
    max_ms: int = 60_000
    max_attempts: int = 1
    retry_on: tuple[str, ...] | list[str] | None = None

    def delay_us(self, retry: int, draw: float) -> int:
        """Give the pause before the `retry`-th retry; `draw` is from 0 to 1."""
        if self.kind == "exponential":
            ms = self.base_ms * self.multiplier ** (retry - 1)
        elif self.kind == "quadratic":
            ms = float(self.base_ms * retry * retry)
        elif self.kind == "linear":
            ms = float(self.base_ms * retry)
        else:
            ms = float(self.base_ms)
        return round(min(ms + draw * self.jitter_ms, self.max_ms) * 1000)

    def covers(self, outcome: Outcome) -> bool:
        """Whether an attempt that ended so is worth another."""
        if outcome.retryable is False:
            return False
        if self.retry_on is None:
            return outcome.retryable is True or outcome.code not in HOPELESS
        return not classes_of(outcome.code, outcome.details).isdisjoint(self.retry_on)

    def to_dict(self) -> dict[str, Any]:
        default = RetryPolicy()
        return {
            name: value for name, value in self._asdict().items() if value != getattr(default, name)
        }


ASKED_FOR = RetryPolicy(max_attempts=ATTEMPTS)
"""The policy of a task without one, whose worker asks for another attempt."""


def classes_of(code: str, details: dict[str, Any] | None) -> set[str]:
    """Name the classes of an error that `retryOn` can mean."""
    names = {code, f"code:{code}"}
    details = details or {}
    status = details.get("status")
    if isinstance(status, int):
        names |= {f"status:{status}", f"status:{status // 100}xx"}
    if isinstance(details.get("code"), str):
        names.add(f"code:{details['code']}")
    return names


def decide_failure(
    task: Task, outcome: Outcome, now: int, draw: float
) -> e.AttemptFailed | e.TaskFailed:
    policy = policy_of(task)
    if policy is None and task.worker is not None:
        asks = outcome.retryable is True or outcome.retry_after_s is not None
        policy = ASKED_FOR if asks else None
    head = (task.id, task.agent, task.attempt, outcome.code, outcome.error)
    if policy is not None:
        spent = task.attempt - task.spent_before
        if spent < policy.max_attempts and policy.covers(outcome):
            pause_us = policy.delay_us(spent, draw)
            if outcome.retry_after_s is not None:
                asked_us = round(min(outcome.retry_after_s, RETRY_AFTER_S_MAX) * 1_000_000)
                pause_us = asked_us if task.worker is not None else max(pause_us, asked_us)
            return e.AttemptFailed(*head, now + pause_us, outcome.details)
    return e.TaskFailed(*head, outcome.details)


def policy_of(task: Task) -> RetryPolicy | None:
    """Give the policy of a task; one without that is tried again has what its worker asked for."""
    given = task.plan.retry if task.plan is not None else None
    if given is not None:
        return RetryPolicy(**given)
    return ASKED_FOR if task.retries else None

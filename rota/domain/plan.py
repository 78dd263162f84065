"""The table of a task's wishes: what it can ask for beyond the plain, one line each.

A `Plan` travels whole from the request over the submitted event to the task, None for most tasks.
On disk its fields lie among the event's own, in this order (rota.eventlog.codec); in a snapshot it
is a list. So a new wish is a new last line: it is asked for in a body, recorded, kept and shown
under the name that its `Wish` gives it. Whoever gives it a meaning reads `task.plan`.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple, get_type_hints

TIMEOUT_MS_MAX = 24 * 3600 * 1000
DEADLINE_S_MAX = 366 * 24 * 3600


class Wish(NamedTuple):
    """How clients know a field of the plan: natively, in bodies, views and /openapi.json.

    `says` is what it means, for those who ask for it by this very value; without, it comes about in
    another way and is only shown. Numbers are bounded by `low` and `high`, and so is how many texts
    a list has; a text is a key.
    """

    name: str
    says: str = ""
    low: int | None = None
    high: int | None = None
    is_shown: bool = True


class Plan(NamedTuple):
    """What a task asks for beyond the plain.

    `depends` maps the names the task knows its parents under to their ids; `retry` is a
    `RetryPolicy` written out; the keys are as the client gave them, `digest` is of the body, to
    tell a repeat under the same idempotency key from another request. With a `delay_ms`,
    `not_before` is so long after the submission; without, it is a moment that the client named.
    The batch, its bound, the parents and what holds the dedup key are filled in at admission.
    `follows` is the task whose success made this one, the `follow_depth`-th in a row;
    `run` is the run of a `project` that selected it, `schedule` the schedule that made it. One that
    is `uncounted` carries the id of its workflow, and does not count towards it. `declared_for` is
    the agent, or `*`, for whom a worker declared how many may be in flight at once.
    """

    key: Annotated[str | None, Wish("key", "tasks of one key share maxPerKey slots")] = None
    batch: Annotated[str | None, Wish("batchId")] = None
    parallelism: int | None = None
    depends: dict[str, str] | None = None
    retry: dict[str, Any] | None = None
    queue_timeout_ms: Annotated[
        int | None,
        Wish(
            "queueTimeoutMs", "how long it may be ready without being dispatched", 1, TIMEOUT_MS_MAX
        ),
    ] = None
    not_before: int | None = None
    preempt: Annotated[bool | None, Wish("preempt", "may take the place of a less urgent task")] = (
        None
    )
    idempotency: Annotated[str | None, Wish("idempotencyKey")] = None
    digest: str | None = None
    dedup: Annotated[str | None, Wish("dedupKey")] = None
    dedup_until: int | None = None
    delay_ms: Annotated[
        int | None,
        Wish("delayMs", "as notBefore, but from now", 0, DEADLINE_S_MAX * 1000, is_shown=False),
    ] = None
    requires: Annotated[
        list[str] | None, Wish("requires", "only workers with all of these labels get it", 1, 8)
    ] = None
    workflow: Annotated[
        str | None, Wish("workflowId", "the workflow that it joins, which has not ended")
    ] = None
    follows: Annotated[str | None, Wish("followsTaskId")] = None
    follow_depth: int | None = None
    project: Annotated[str | None, Wish("projectId")] = None
    run: Annotated[str | None, Wish("runId")] = None
    schedule: Annotated[str | None, Wish("schedule")] = None
    uncounted: bool | None = None
    declared_for: str | None = None

    @property
    def joined(self) -> str | None:
        """Give the workflow that the task counts towards."""
        return None if self.uncounted else self.workflow


NO_PLAN = Plan()


def shown_in(plan: type[Any]) -> dict[str, str]:
    """Give the fields of a plan that are shown as they are, and their names in views."""
    return {field: wish.name for field, (_, wish) in wishes_of(plan).items() if wish.is_shown}


def asked_in(plan: type[Any]) -> dict[str, str]:
    """Give the fields of a plan that are asked for by their value, and their names in bodies."""
    return {field: wish.name for field, (_, wish) in wishes_of(plan).items() if wish.says}


def wishes_of(plan: type[Any]) -> dict[str, tuple[Any, Wish]]:
    """Give the type and the wish of each field of a plan that clients know."""
    hints = get_type_hints(plan, include_extras=True)
    return {
        name: (hint.__origin__, hint.__metadata__[0])
        for name, hint in hints.items()
        if hasattr(hint, "__metadata__")
    }

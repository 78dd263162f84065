"""Many tasks at once, chosen by a filter; and another priority for one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from rota.client.faces import asks
from rota.client.fields import Filters
from rota.client.models import Changed, TaskState
from rota.client.paths import path_of, said
from rota.client.steps import Call
from rota.client.words import wire

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rota.client.fields import LiveState, Priority

BULK_WAIT_S = 600.0
"""How much longer than others an answer about many tasks may take."""


class BulkCalls:
    """/v1/tasks/cancel, /retry and /reprioritise.

    The filters of all of them: `agent`, `action`, `batch_id`, `workflow_id`, `key`, `older_than_s`
    since the submission, `created_before`. Without any, `everything` must be asked for. With
    `dry_run` nothing is changed; at most `limit` tasks are. The answer says how many were
    `matched`, `changed` and, by code, `refused`, and whether there may be `more`. If no answer
    comes, the same again goes on where it was.
    """

    @asks(Changed)
    def cancel_many(
        self,
        /,
        *,
        state: LiveState | Sequence[LiveState] | None = None,
        reason: str | None = None,
        **filters: Unpack[Filters],
    ) -> Call:
        """Cancel all tasks that the filters name, of those that have not ended."""
        return _bulk("cancel", {"state": _states(state), "reason": reason}, filters)

    @asks(Changed)
    def retry_many(self, /, *, code: str | None = None, **filters: Unpack[Filters]) -> Call:
        """Give all failed tasks that the filters name new lives; `code` is that of their error."""
        return _bulk("retry", {"code": code}, filters)

    @asks(Changed)
    def reprioritise_many(
        self,
        /,
        priority: Priority,
        *,
        state: LiveState | Sequence[LiveState] | None = None,
        **filters: Unpack[Filters],
    ) -> Call:
        """Give all tasks that the filters name another priority, of those that have not ended."""
        return _bulk("reprioritise", {"priority": priority, "state": _states(state)}, filters)

    @asks(TaskState)
    def reprioritise(self, task_id: str, priority: Priority) -> Call:
        """Give a task another priority. Raises NotFound, or Conflict if it has ended."""
        path = path_of("tasks", task_id, "reprioritise")
        return Call("POST", path, body={"priority": priority}, is_safe=True)


def _states(state: str | Sequence[str] | None) -> str | list[str] | None:
    return state if state is None or isinstance(state, str) else list(state)


def _bulk(how: str, fields: dict[str, Any], filters: Mapping[str, Any]) -> Call:
    """Describe one of them."""
    meant = dict(filters)
    named = {**fields, "type": meant.pop("action", None)}
    body = said({**named, **wire(meant, Filters)})
    return Call("POST", f"/v1/tasks/{how}", body=body, wait_s=BULK_WAIT_S)

"""Batches: tasks that go in together, are looked at together, and cancelled together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.client.faces import asks
from rota.client.paths import new_key, path_of, said
from rota.client.steps import Call, Json

if TYPE_CHECKING:
    from collections.abc import Iterable


class BatchCalls:
    """/v1/batches."""

    retries: int

    @asks
    def submit_batch(self, tasks: Iterable[Json], /, **fields: Any) -> Call:
        """Submit tasks together, all of them or none.

        A task is a body as of `submit`, which may name its `ref` for others' dependsOn; `fields`
        are the batch's: agentId, parallelism, callbackUrl, idempotencyKey (made for you, if
        `retries` is not 0).
        """
        return graph_call("/v1/batches", tasks, fields, self.retries)

    @asks
    def get_batch(self, batch_id: str) -> Call:
        """Give one batch, with how many of its tasks are in which state. Raises NotFound."""
        return Call("GET", path_of("batches", batch_id), is_safe=True)

    @asks
    def cancel_batch(self, batch_id: str, reason: str = "") -> Call:
        """Cancel what has not ended of a batch. Raises NotFound, or Conflict if all has."""
        return Call("POST", path_of("batches", batch_id, "cancel"), body={"reason": reason})


def graph_call(path: str, tasks: Iterable[Json], fields: Json, retries: int) -> Call:
    """Describe the submission of tasks that may depend on each other."""
    body = said(fields)
    if retries:
        body.setdefault("idempotencyKey", new_key())
    is_safe = "idempotencyKey" in body
    return Call("POST", path, body={**body, "tasks": list(tasks)}, is_safe=is_safe)

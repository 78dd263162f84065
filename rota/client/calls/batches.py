"""Batches: tasks that go in together, are looked at together, and cancelled together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from rota.client.faces import asks
from rota.client.fields import BatchBody
from rota.client.models import Batch, CancelledBatch, SubmittedBatch
from rota.client.paths import keyed_body, path_of
from rota.client.steps import Call

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rota.client.fields import BatchFields, GraphTask


class BatchCalls:
    """/v1/batches."""

    retries: int

    @asks(SubmittedBatch)
    def submit_batch(self, tasks: Iterable[GraphTask], /, **fields: Unpack[BatchFields]) -> Call:
        """Submit tasks together, all of them or none.

        A task has the fields of `submit`, and may name its `ref` for others' depends_on. The
        batch's own are agent (for tasks that name none), parallelism, callback_url and
        idempotency_key (made for you, if `retries` is not 0).
        """
        return graph_call("/v1/batches", tasks, fields, BatchBody, self.retries)

    @asks(Batch)
    def get_batch(self, batch_id: str) -> Call:
        """Give one batch, with how many of its tasks are in which state. Raises NotFound."""
        return Call("GET", path_of("batches", batch_id), is_safe=True)

    @asks(CancelledBatch)
    def cancel_batch(self, batch_id: str, reason: str = "") -> Call:
        """Cancel what has not ended of a batch. Raises NotFound, or Conflict if all has."""
        return Call("POST", path_of("batches", batch_id, "cancel"), body={"reason": reason})


def graph_call(
    path: str, tasks: Iterable[GraphTask], fields: Mapping[str, Any], shape: Any, retries: int
) -> Call:
    """Describe the submission of tasks that may depend on each other."""
    body = keyed_body({**fields, "tasks": list(tasks)}, shape, retries)
    return Call("POST", path, body=body, is_safe="idempotencyKey" in body)

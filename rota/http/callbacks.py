"""Carries callbacks out: renders a task or a batch in its dialect, and has it sent once.

What may be called, and how, are the sender's rules (`executors/callback.py`); whose turn it is,
and what a failure means, are the WebhookActor's.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rota.domain.packed import written
from rota.domain.task import Task
from rota.domain.workflow import Escalation, Workflow
from rota.http import views
from rota.http.dialects import automechanica, browsermanager, browseros, pinchtab
from rota.http.flow_views import flow_view

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rota.domain.batch import Batch
    from rota.domain.delivery import DeliveryReport
    from rota.executors.callback import CallbackSender

    Rendered = tuple[dict[str, str], bytes]


def _native(task: Task) -> Rendered:
    headers = {"X-Rota-Event": f"task.{task.state.value}", "X-Rota-Task-Id": task.id}
    return headers, written(views.native(task))


def _native_batch(batch: Batch, tasks: Sequence[Task]) -> Rendered:
    view = views.batch_view(batch, tasks)
    headers = {"X-Rota-Event": "batch.finished", "X-Rota-Batch-Id": batch.id}
    return headers, written(view)


def _flow(flow: Workflow, tasks: Sequence[Task], *, is_escalation: bool = False) -> Rendered:
    what = "escalated" if is_escalation else flow.state
    if flow.dialect == automechanica.NAME:
        return automechanica.workflow_callback(flow, tasks, what)
    headers = {"X-Rota-Event": f"workflow.{what}", "X-Rota-Workflow-Id": flow.id}
    return headers, written(flow_view(flow, tasks))


_TASKS: dict[str, Callable[[Task], Rendered]] = {
    "native": _native,
    pinchtab.NAME: pinchtab.callback,
    browseros.NAME: browseros.callback,
    browsermanager.NAME: browsermanager.callback,
    automechanica.NAME: automechanica.callback,
}
_BATCHES: dict[str, Callable[[Batch, Sequence[Task]], Rendered]] = {
    "native": _native_batch,
    browseros.NAME: browseros.batch_callback,
}


def render(subject: Task | Batch | Escalation, tasks: Sequence[Task]) -> Rendered:
    """Give the headers and the body of the callback of a task, or of a batch and its tasks."""
    if isinstance(subject, Escalation):
        return _flow(subject.workflow, tasks, is_escalation=True)
    if isinstance(subject, Workflow):
        return _flow(subject, tasks)
    if isinstance(subject, Task):
        return _TASKS.get(subject.dialect, _native)(subject)
    return _BATCHES.get(subject.dialect, _native_batch)(subject, tasks)


class HttpCourier:
    """A `Courier` over HTTP."""

    def __init__(self, sender: CallbackSender, more: Mapping[str, str] | None = None) -> None:
        """Send with `sender`; `more` are headers to send."""
        self._sender = sender
        self._more = more or {}
        self._under_way: set[asyncio.Task[None]] = set()

    def deliver(
        self,
        subject: Task | Batch | Escalation,
        tasks: Sequence[Task],
        delivery_id: str,
        done: Callable[[DeliveryReport], None],
    ) -> None:
        url = subject.callback or ""
        headers, body = render(subject, tasks)
        headers.update(self._more)

        async def send() -> None:
            done(await self._sender.send(url, delivery_id=delivery_id, headers=headers, body=body))

        task = asyncio.get_running_loop().create_task(send())
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def close(self) -> None:
        """Cut off what is being sent; it is sent again after the next start."""
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        await self._sender.close()

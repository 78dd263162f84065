"""Carries callbacks out: renders a task or a batch in its dialect and sends it once.

The renderers come from whoever puts the server together; the sender keeps the rules of what may
be called and how.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rota.domain.delivery import DeliveryReport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rota.domain.batch import Batch
    from rota.domain.task import Task
    from rota.executors.callback import CallbackSender

    Render = Callable[[Task | Batch], tuple[dict[str, str], bytes]]


class HttpCourier:
    """A `Courier` over HTTP."""

    def __init__(self, sender: CallbackSender, renderers: Mapping[str, Render]) -> None:
        """Send with `sender` what the task's dialect renders."""
        self._sender = sender
        self._renderers = renderers
        self._tasks: set[asyncio.Task[None]] = set()

    def deliver(
        self, subject: Task | Batch, delivery_id: str, done: Callable[[DeliveryReport], None]
    ) -> None:
        """Start one try; `done` is called when it has ended."""
        render = self._renderers.get(subject.dialect, self._renderers["native"])
        headers, body = render(subject)
        url = subject.callback or ""
        running = asyncio.get_running_loop().create_task(
            self._send(url, delivery_id, headers, body, done)
        )
        self._tasks.add(running)
        running.add_done_callback(self._tasks.discard)

    async def _send(
        self,
        url: str,
        delivery_id: str,
        headers: dict[str, str],
        body: bytes,
        done: Callable[[DeliveryReport], None],
    ) -> None:
        outcome = await self._sender.send(url, delivery_id=delivery_id, headers=headers, body=body)
        done(
            DeliveryReport(
                outcome.ok,
                outcome.status,
                outcome.error,
                outcome.retry_after_s,
                final=outcome.gone or outcome.refused,
                duration_ms=outcome.duration_ms,
            )
        )

    async def close(self) -> None:
        """Cut off what is being sent; it is sent again after the next start."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._sender.close()

"""Real shards on the running loop, over a log that a test brings: no server, no HTTP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from support.wishes import made

from rota.actors import messages as m
from rota.actors.host import AsyncioHost, ThreadLine
from rota.actors.system import Shard
from rota.clock import SystemClock
from rota.domain.commands import Limits
from rota.domain.intake import Request
from rota.executors.runner import AsyncRunner

if TYPE_CHECKING:
    from collections.abc import Callable

ROOM = Limits(queued=10**6, queued_per_agent=10**6, inflight=100, inflight_per_agent=100, push=100)


class Answer:
    """A reply that can be awaited."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def ok(self, value: Any) -> None:
        self.future.set_result(value)

    def fail(self, error: Exception) -> None:
        self.future.set_exception(error)


async def submit(shard: Shard, agent: str = "a1", **fields: Any) -> str:
    """Submit an echo and give its id, once it is durable."""
    answer = Answer()
    command = made(Request, agent, "echo", "builtin", **fields)
    shard.admission.tell(m.SubmitTasks((command,), answer))
    [admitted] = await asyncio.wait_for(answer.future, 5)
    return str(admitted.task)


async def until(condition: Callable[[], bool], words: str) -> None:
    """Let the loop turn until the condition holds."""
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.002)
    assert condition(), words


async def stop(shard: Shard) -> None:
    """Stop in good order."""
    done = asyncio.Event()
    shard.finish(done.set)
    await asyncio.wait_for(done.wait(), 10)
    shard.close()


def build(log: Any, **options: Any) -> Shard:
    """Make a shard on the running loop."""
    host = AsyncioHost(SystemClock())
    runner = AsyncRunner({})
    courier: Any = None
    return Shard(log, host, limits=ROOM, line=ThreadLine, runner=runner, courier=courier, **options)

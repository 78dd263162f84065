"""ws /ws/jobs/{jobId}: every transition of a job, pushed as it becomes durable.

The first message is the job as it is; then comes one for each transition, from the log, so none is
left out. After the last the server closes. A client that only listens is pinged.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiohttp import WSMsgType, web

from rota.clock import rfc3339
from rota.domain import events as e
from rota.domain.fold import TASK_EVENTS
from rota.domain.packed import written
from rota.domain.task import TERMINAL
from rota.eventlog.codec import kind_of
from rota.http.dialects.browsermanager import view
from rota.http.problems import HttpProblem

if TYPE_CHECKING:
    from rota.domain.events import Event, Record
    from rota.domain.task import Task
    from rota.http.call import Call

HEARTBEAT_S = 20.0
MESSAGE_BYTES_MAX = 4096
PAYLOAD_BYTES_PUSHED = 16 << 10
PUSHED = (*(each for each in TASK_EVENTS if each is not e.TaskReprioritised), e.TaskProgressed)


async def watch(call: Call) -> Any:
    """GET /ws/jobs/{id}, upgraded."""
    job_id = call.params["id"]
    share = call.caller.share_for((await call.sight.task(job_id)).agent)
    socket = web.WebSocketResponse(heartbeat=HEARTBEAT_S, max_msg_size=MESSAGE_BYTES_MAX)
    if not socket.can_prepare(call.request).ok:
        msg = "this path speaks WebSocket: connect to it with ws://"
        raise HttpProblem(426, "upgrade_required", msg)
    with call.namespace.watches.on(share, job_id) as changed, call.staying(share, changed.set):
        await socket.prepare(call.request)
        listening = asyncio.ensure_future(_listen(socket))
        listening.add_done_callback(lambda _: changed.set())
        try:
            await _push(call, socket, job_id, changed, listening)
        except ConnectionError:
            pass  # the client has left
        finally:
            listening.cancel()
            await socket.close()
    return socket


async def _listen(socket: web.WebSocketResponse) -> None:
    """Read whatever the client says, until it leaves."""
    async for message in socket:
        if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
            return


async def _push(
    call: Call,
    socket: web.WebSocketResponse,
    job_id: str,
    changed: asyncio.Event,
    listening: asyncio.Future[None],
) -> None:
    job = await call.sight.followed(job_id)
    # each watcher would hold a copy of them
    job.task.params_json = (await call.sight.task(job_id)).params_json
    await _send(socket, "job.snapshot", job.task, job.seq, None)
    while job.task.state not in TERMINAL and not call.must_end and not listening.done():
        await changed.wait()
        changed.clear()
        if not call.is_welcome:
            return
        async for record in call.sight.news_of(job):
            if isinstance(record.event, PUSHED):
                await _send(socket, "job.transition", job.task, job.seq, record)


async def _send(
    socket: web.WebSocketResponse, what: str, task: Task, seq: int, record: Record[Event] | None
) -> None:
    shown = view(task)
    if len(task.params_json or b"") > PAYLOAD_BYTES_PUSHED:
        shown.pop("payload", None)  # each watcher would hold a copy of it
    body: dict[str, Any] = {"type": what, "jobId": task.id, "status": shown["status"], "seq": seq}
    if record is not None:
        body["event"] = kind_of(type(record.event))
        body["timestamp"] = rfc3339(record.at)
    await socket.send_str(written({**body, "data": shown}).decode())

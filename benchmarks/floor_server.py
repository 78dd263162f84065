"""The floor: an aiohttp + uvloop server that parses the same body and answers, storing nothing."""

import asyncio

import orjson
import uvloop
from aiohttp import web

ANSWER = {
    "taskId": "tsk_00000000",
    "state": "ready",
    "position": 1,
    "createdAt": "2026-01-01T00:00:00Z",
}


async def submit(request):
    orjson.loads(await request.read())
    return web.Response(body=orjson.dumps(ANSWER), status=202, content_type="application/json")


async def main():
    app = web.Application()
    app.router.add_post("/v1/tasks", submit)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


uvloop.run(main())

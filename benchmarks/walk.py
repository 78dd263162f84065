"""How far does a task walk? A native one, from POST to delivered callback, through the modules.

A server runs in this process, with an executor and a receiver beside it on the same loop. After a
few tasks to warm up, one is watched by `sys.setprofile`, in the loop's thread and the committer's:
every call of a function of rota/ is a step, and a step into another module than the last (of the
same thread) is a change; what an actor receives is a message. Prints the modules in the order in
which they were met first.

    python benchmarks/walk.py [--steps]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import threading
from pathlib import Path

import aiohttp
from aiohttp import web

import rota
from rota.config import parse_settings

try:
    from rota.server import Server
except ImportError:  # as it was called before
    from rota.http.server import Server

HOME = str(Path(rota.__file__).parent) + "/"
WARM_UP = 3
SETTLE_S = 0.3
"""After the receiver has answered: until the delivery is recorded and durable."""


class Walk:
    """The steps of what is watched, each thread's on their own."""

    def __init__(self):
        self.on = False
        self.calls = {}
        self.changes = 0
        self.messages = 0
        self.steps = []
        self._at = threading.local()

    def see(self, frame, event, _arg):
        """Take a step; what is not rota's, and what a class or module body does, is none."""
        if not self.on or event != "call":
            return
        file = frame.f_code.co_filename
        if not file.startswith(HOME) or frame.f_code.co_name == "<module>":
            return
        module = file.removeprefix(HOME)
        self.calls[module] = self.calls.get(module, 0) + 1
        self.messages += frame.f_code.co_name == "on_receive"
        if getattr(self._at, "module", None) != module:
            self._at.module = module
            self.changes += 1
            self.steps.append((module, frame.f_code.co_qualname))


class Outside:
    """The executor and the receiver."""

    def __init__(self):
        self.called_back = asyncio.Event()

    async def run(self, request):
        await request.read()
        return web.json_response({"done": True})

    async def hear(self, request):
        await request.read()
        self.called_back.set()
        return web.Response()

    async def start(self):
        app = web.Application()
        app.router.add_post("/run", self.run)
        app.router.add_post("/hook", self.hear)
        self.runner = web.AppRunner(app)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{self.runner.addresses[0][1]}"


async def walk(folder):
    """Let a few tasks live, and watch the last."""
    outside = Outside()
    url = await outside.start()
    settings = parse_settings(
        {
            "server": {"port": 0, "dataDir": folder},
            "executors": {"worker": {"kind": "http", "url": f"{url}/run"}},
            "types": {"work": {"executor": "worker"}},
            "webhooks": {"allowHosts": ["127.0.0.1"]},
        }
    )
    seen = Walk()
    threading.setprofile(seen.see)
    server = Server(settings)
    await server.start()
    sys.setprofile(seen.see)
    body = {"action": "work", "agentId": "ann", "params": {"n": 1}, "callbackUrl": f"{url}/hook"}
    async with aiohttp.ClientSession() as client:
        for n in range(WARM_UP + 1):
            seen.on = n == WARM_UP
            outside.called_back.clear()
            async with client.post(f"http://127.0.0.1:{server.port}/v1/tasks", json=body) as answer:
                assert answer.status == 202, await answer.text()
            await asyncio.wait_for(outside.called_back.wait(), 10)
            await asyncio.sleep(SETTLE_S)
    seen.on = False
    sys.setprofile(None)
    threading.setprofile(None)
    await server.stop(1.0)
    await outside.runner.cleanup()
    return seen


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", action="store_true", help="print every change of module")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        seen = asyncio.run(walk(folder))
    for module, what in seen.steps if args.steps else ():
        print(f"  {module:36} {what}")
    if not args.steps:
        for module, calls in seen.calls.items():
            print(f"  {module:36} {calls:4} calls")
    calls = sum(seen.calls.values())
    print(
        f"{len(seen.calls)} modules, {seen.changes} changes of module, {calls} calls, "
        f"{seen.messages} messages"
    )


if __name__ == "__main__":
    main()

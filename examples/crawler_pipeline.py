"""A crawler as a batch: fetch pages, count their words, sum up; results flow by {{name}}.

It starts a small site of its own on loopback, one worker for all three types of tasks, submits the
batch, and prints what the last task found.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import aiohttp
from aiohttp import web

from rota.client import Context, GraphTask, Retry, RotaClient, Worker

PAGES = {
    "/one": "<h1>Rotas</h1> A rota says whose turn it is.",
    "/two": "<h1>Turns</h1> Whose turn it is, is written down.",
    "/three": "<h1>Logs</h1> The log keeps every turn.",
}
worker = Worker(concurrency=4)


@worker.task("fetch", agent="crawler", timeout=30, concurrency=4)
async def fetch(ctx: Context, url: str) -> dict[str, Any]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        if response.status >= 500:
            raise Retry(f"{url} answered {response.status}", after=0.1)
        body = await response.text()
    ctx.log(f"{len(body)} characters from {url}")
    return {"url": url, "body": body}


@worker.task("count_words", agent="crawler")
def count_words(page: dict[str, Any]) -> dict[str, int]:
    words = re.findall(r"[a-z]+", re.sub(r"<[^>]+>", " ", page["body"]).lower())
    return {word: words.count(word) for word in sorted(set(words))}


@worker.task("sum_up", agent="crawler")
def sum_up(counts: list[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for count in counts:
        for word, times in count.items():
            total[word] = total.get(word, 0) + times
    return dict(sorted(total.items(), key=lambda item: (-item[1], item[0]))[:3])


def pipeline(site: str) -> list[GraphTask]:
    """Write the tasks of the batch: a fetch and a count for each page, and one sum of all."""
    tasks: list[GraphTask] = []
    for n, path in enumerate(PAGES):
        fetched, counted = f"fetch{n}", f"count{n}"
        params = {"url": site + path}
        tasks += [
            {
                "action": "fetch",
                "ref": fetched,
                "params": params,
                "retry": {"max_attempts": 5, "kind": "fixed", "base_s": 0.1},
            },
            {
                "action": "count_words",
                "ref": counted,
                "depends_on": [f"ref:{fetched}"],
                "params": {"page": "{{" + fetched + "}}"},
            },
        ]
    names = [f"count{n}" for n in range(len(PAGES))]
    return [
        *tasks,
        {
            "action": "sum_up",
            "depends_on": [f"ref:{name}" for name in names],
            "params": {"counts": ["{{" + name + "}}" for name in names]},
        },
    ]


async def serve_site() -> tuple[web.AppRunner, str]:
    """Start the site; its first page is out of order once."""
    asked: set[str] = set()

    async def show(request: web.Request) -> web.Response:
        if request.path == "/one" and request.path not in asked:
            asked.add(request.path)
            raise web.HTTPServiceUnavailable
        return web.Response(text=PAGES[request.path], content_type="text/html")

    app = web.Application()
    app.router.add_get("/{page}", show)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    return runner, f"http://{host}:{port}"


async def main() -> None:
    runner, site = await serve_site()
    working = asyncio.create_task(worker.run(signals=False))
    async with RotaClient() as rota:
        batch = await rota.submit_batch(pipeline(site), agent="crawler")
        end = await rota.wait_batch(batch.batch_id, timeout_s=60)
        found = await rota.result(batch.tasks[-1].task_id)
    print(end.state, end.counts.get("succeeded"), "tasks; most used words:", found)
    worker.stop()
    await working
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())

"""A worker against a real server: what its functions get, say and give."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager

import pytest
from pydantic import BaseModel

from rota.client import Context, Fail, Retry, RotaClient, Worker
from rota.client.client import AsyncJsonClient
from rota.client.functions import Function
from rota.client.keeping import Held, Keeper
from rota.client.models import TaskError
from rota.client.trade import wish_of
from rota.errors import ConfigError

AGAIN = {"max_attempts": 3, "kind": "fixed", "base_s": 0.001}


@asynccontextmanager
async def working(worker):
    """Run a worker beside the test; stop it at the end."""
    run = asyncio.create_task(worker.run(signals=False))
    async with RotaClient(worker.url) as rota:
        try:
            yield rota
        finally:
            worker.stop()
            await asyncio.wait_for(run, 30)


async def ends(rota, action, agent, **fields):
    task = await rota.submit(action, agent, **fields)
    return await rota.wait(task.task_id, 20)


def test_functions_take_params_as_they_like(server):
    worker = Worker(server.url)

    class Part(BaseModel):
        name: str
        count: int = 1

    @worker.task("by_name", agent="params")
    async def by_name(a: int, b: int = 2):
        return a + b

    @worker.task("whole", agent="params")
    def whole(params, ctx):
        return {**params, "attempt": ctx.attempt, "thread": threading.current_thread().name}

    @worker.task("model", agent="params")
    def model(part: Part, context: Context):
        assert context.token > 0
        return part

    async def story():
        async with working(worker) as rota:
            assert (await ends(rota, "by_name", "params", params={"a": 1})).result == 3
            done = (await ends(rota, "whole", "params", params={"x": 1})).result
            assert (done["x"], done["attempt"]) == (1, 1)
            assert done["thread"].startswith("rota-")
            done = await ends(rota, "model", "params", params={"name": "bolt"})
            assert done.result == {"name": "bolt", "count": 1}
            for action, params in (
                ("model", {"count": 1}),
                ("by_name", {}),
                ("by_name", {"a": 1, "c": 1}),
            ):
                task = await ends(rota, action, "params", params=params, retry=AGAIN)
                assert (task.state, task.error.code) == ("failed", "bad_params")
                assert task.attempt == 1

    asyncio.run(story())


def test_what_a_function_raises_is_what_the_task_says(server):
    worker = Worker(server.url)

    @worker.task("retry", agent="raises")
    async def retry(ctx):
        if ctx.attempt < 3:
            raise Retry("not yet", after=0.01)
        return ctx.attempt

    @worker.task("refuse", agent="raises")
    def refuse():
        raise Fail("no such part", code="no_part", details={"part": 7})

    @worker.task("bug", agent="raises")
    def bug():
        return {}["missing"]

    @worker.task("exit", agent="raises")
    async def leave():
        raise SystemExit(3)

    @worker.task("object", agent="raises")
    async def thing():
        return object()

    async def story():
        async with working(worker) as rota:
            assert (await ends(rota, "retry", "raises", retry=AGAIN)).result == 3
            assert (await ends(rota, "retry", "raises")).result == 3
            task = await ends(rota, "retry", "raises", retry={"max_attempts": 1})
            assert (task.state, task.attempt) == ("failed", 1)
            task = await ends(rota, "refuse", "raises", retry=AGAIN)
            assert (task.error.code, task.attempt) == ("no_part", 1)
            task = await ends(rota, "bug", "raises")
            assert task.error == TaskError(code="KeyError", message="KeyError: 'missing'")
            lines = [line async for line in rota.iter_logs(task.task_id)]
            assert lines[0].message.startswith("Traceback")
            assert {line.level for line in lines} == {"error"}
            assert "functions.py" not in str(lines)
            assert (await ends(rota, "exit", "raises")).error.code == "SystemExit"
            task = await ends(rota, "object", "raises", retry=AGAIN)
            assert (task.error.code, task.attempt) == ("bad_result", 1)

    asyncio.run(story())


def test_logs_and_progress_are_told_before_the_end(server):
    worker = Worker(server.url)
    go_on = threading.Event()

    @worker.task("talk", agent="talks")
    def talk(ctx):
        ctx.log("one", "two\nthree")
        ctx.progress({"done": 1})
        assert go_on.wait(20)
        ctx.log("four", level="warning")

    async def story():
        async with working(worker) as rota:
            head = (await rota.head()).seq
            task = (await rota.submit("talk", "talks")).task_id
            async for event in rota.stream(after=head, task_id=task, kinds=("task_progressed",)):
                assert event.data["progress"] == {"done": 1}
                break
            assert (await rota.get(task)).state == "running"
            go_on.set()
            assert (await rota.wait(task, 20)).state == "succeeded"
            lines = [(line.level, line.message) async for line in rota.iter_logs(task)]
            told = [("info", "one"), ("info", "two"), ("info", "three"), ("warning", "four")]
            assert lines == told

    asyncio.run(story())


def test_a_cancel_stops_async_and_plain_functions(server):
    worker = Worker(server.url, lease_s=1.0)
    seen = {}
    began = threading.Semaphore(0)

    @worker.task("wait", agent="cancels")
    async def wait(ctx):
        began.release()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen["async"] = ctx.cancelled
            raise

    @worker.task("block", agent="cancels")
    def block(ctx):
        began.release()
        seen["plain"] = ctx.sleep(60)

    async def story():
        async with working(worker) as rota:
            made = [(await rota.submit(name, "cancels")).task_id for name in ("wait", "block")]
            for _ in made:
                await asyncio.to_thread(began.acquire)
            for task in made:
                await rota.cancel(task)
            for _ in range(2000):
                if len(seen) == 2:
                    break
                await asyncio.sleep(0.01)
            assert seen == {"async": True, "plain": True}
            states = [(await rota.get(task)).state for task in made]
            assert states == ["cancelled", "cancelled"]

    asyncio.run(story())


def test_a_lease_is_kept_for_longer_than_it_is_long(server):
    worker = Worker(server.url, lease_s=1.0)

    @worker.task("long", agent="keeps")
    async def long_one():
        await asyncio.sleep(2.5)
        return "kept"

    async def story():
        async with working(worker) as rota:
            task = await ends(rota, "long", "keeps")
            assert (task.result, task.attempt) == ("kept", 1)

    asyncio.run(story())


def test_stopping_finishes_what_it_can_and_gives_back_the_rest(server):
    worker = Worker(server.url, concurrency=2, prefetch=1, grace_s=0.3)
    began = asyncio.Queue()

    @worker.task("short", agent="stops")
    async def short(ctx):
        began.put_nowait(ctx)
        await asyncio.sleep(0.05)
        return "finished"

    @worker.task("endless", agent="stops")
    async def endless(ctx):
        began.put_nowait(ctx)
        await asyncio.sleep(60)

    async def story():
        async with RotaClient(server.url) as rota:
            await rota.pause(agent="stops")
            names = ("endless", "short", "endless")
            made = [(await rota.submit(name, "stops")).task_id for name in names]
            await rota.resume(agent="stops")
            async with working(worker):
                await began.get()
                await began.get()
            tasks = [await rota.get(task) for task in made]
            assert [task.state for task in tasks] == ["ready", "succeeded", "ready"]
            assert [task.attempt for task in tasks][1] == 1
            for task in made:
                if task != made[1]:
                    await rota.cancel(task)

    asyncio.run(story())


def test_a_worker_is_lent_nothing_that_no_function_serves(server):
    worker = Worker(server.url)

    @worker.task("one", agent="serves-a")
    async def one():
        return 1

    @worker.task("two", agent="serves-b")
    async def two():
        return 2

    async def story():
        async with RotaClient(server.url) as rota:
            odd = (await rota.submit("two", "serves-a")).task_id
            async with working(worker):
                assert (await ends(rota, "one", "serves-a")).result == 1
                assert (await ends(rota, "two", "serves-b")).result == 2
            events = (await rota.events(task_id=odd)).events
            assert [event.kind for event in events] == ["task_submitted"]
            await rota.cancel(odd)

    asyncio.run(story())


def test_a_worker_asks_for_the_pairs_that_it_serves_in_few_filters():
    served = {("ann", "fit"), ("bob", "fit"), ("cid", "fit"), ("cid", "weld"), (None, "any")}
    wish = wish_of({*served, ("ann", "any")}, [], 30, start=True)
    assert wish["wants"] == [
        {"types": ["any"]},
        *sorted(
            [
                {"agents": ["ann", "bob"], "types": ["fit"]},
                {"agents": ["cid"], "types": ["fit", "weld"]},
            ],
            key=lambda each: each["agents"],
        ),
    ]
    many = wish_of({(f"a{n:03}", "fit") for n in range(250)}, [], 30, start=True)["wants"]
    assert [len(each["agents"]) for each in many] == [100, 100, 50]


def test_a_batch_of_short_tasks_is_settled_in_lots(server):
    worker = Worker(server.url, concurrency=64)

    @worker.task("tiny", agent="many")
    async def tiny(n: int):
        return n

    async def story():
        async with working(worker) as rota:
            items = [{"action": "tiny", "params": {"n": n}} for n in range(100)]
            batch = await rota.submit_batch(items, agent="many")
            end = await rota.wait_batch(batch.batch_id, 60)
            assert end.counts["succeeded"] == 100

    asyncio.run(story())


def test_a_large_result_fails_its_task_and_no_other(server):
    worker = Worker(server.url)

    @worker.task("huge", agent="sizes")
    async def huge(size: int):
        return "x" * size

    async def story():
        async with working(worker) as rota:
            big = await rota.submit("huge", "sizes", params={"size": 5 << 20})
            small = await ends(rota, "huge", "sizes", params={"size": 5})
            assert small.result == "xxxxx"
            task = await rota.wait(big.task_id, 20)
            assert (task.state, task.error.code) == ("failed", "bad_result")

    asyncio.run(story())


def test_mistakes_are_told_at_once(server):
    with pytest.raises(ConfigError):
        Worker(concurrency=0)
    worker = Worker(server.url)
    with pytest.raises(ConfigError):
        asyncio.run(worker.run())

    @worker.task("x")
    async def first(): ...

    with pytest.raises(ConfigError):

        @worker.task("x")
        async def second(): ...

    with pytest.raises(ConfigError):

        @worker.task("y")
        async def third(a, /): ...


def test_an_attempt_that_ends_during_its_heartbeat_is_not_reported_as_lost(server):
    lost = []

    class Late(AsyncJsonClient):
        """Sends each heartbeat after the task is done."""

        async def heartbeat(self, lease_id, token, **told):
            await self.complete(lease_id, token)
            keeper.remove(held)
            return await super().heartbeat(lease_id, token, **told)

    async def story():
        nonlocal keeper, held
        async with RotaClient(server.url) as rota, Late(server.url) as late:
            await rota.submit("quick", "late")
            (lease,) = (await late.lease("w-late", agents=["late"]))["leases"]
            keeper = Keeper(late, 30.0, lambda held, reason, said: lost.append(reason))
            ctx = Context(lease, loop=asyncio.get_running_loop(), on_note=lambda: None)
            held = Held(lease, ctx, Function(story, {}))
            keeper.add(held)
            assert await keeper.beat(held)

    keeper = held = None
    asyncio.run(story())
    assert lost == []


def test_a_cancel_reaches_plain_functions_at_once_while_all_places_are_taken(server):
    worker = Worker(server.url, concurrency=2, lease_s=600)  # no other heartbeat within the test
    begun, ended = threading.Semaphore(0), set()

    @worker.task("dig", agent="pushed")
    def dig(ctx):
        begun.release()
        ctx.sleep(60)
        ended.add(ctx.task_id)

    async def story():
        async with working(worker) as rota:
            for _ in range(2):
                tasks = [(await rota.submit("dig", "pushed")).task_id for _ in range(2)]
                for _ in tasks:
                    assert await asyncio.to_thread(begun.acquire, timeout=20)
                for each in tasks:
                    await rota.cancel(each)
                    async with asyncio.timeout(20):
                        while each not in ended:
                            await asyncio.sleep(0.001)

    asyncio.run(story())


def test_one_heartbeat_waits_for_a_worker_and_holds_up_no_shutdown(server):
    worker = Worker(server.url, concurrency=3)
    begun = threading.Semaphore(0)

    @worker.task("dig", agent="listens")
    def dig(ctx):
        begun.release()
        ctx.sleep(60)

    class Counted(AsyncJsonClient):
        waiting = most = 0

    async def story():
        heartbeat = AsyncJsonClient.heartbeat

        async def counted(self, *args, **fields):
            waits = fields.get("wait_s", 0) > 0
            Counted.waiting += waits
            Counted.most = max(Counted.most, Counted.waiting)
            try:
                return await heartbeat(self, *args, **fields)
            finally:
                Counted.waiting -= waits

        AsyncJsonClient.heartbeat = counted
        try:
            async with working(worker) as rota:
                tasks = [(await rota.submit("dig", "listens")).task_id for _ in range(3)]
                for _ in tasks:
                    assert await asyncio.to_thread(begun.acquire, timeout=20)
                async with asyncio.timeout(20):
                    while not Counted.waiting:
                        await asyncio.sleep(0.001)
                for each in tasks:
                    await rota.cancel(each)
                async with asyncio.timeout(20):
                    while worker._running:
                        await asyncio.sleep(0.001)
        finally:
            AsyncJsonClient.heartbeat = heartbeat
        assert (Counted.waiting, Counted.most) == (0, 1)

    asyncio.run(story())


@pytest.mark.parametrize("is_plain", [True, False])
def test_what_a_force_stop_cuts_off_is_given_back_when_it_has_stopped(server, is_plain):
    worker = Worker(server.url, concurrency=1, prefetch=1, lease_s=600)
    agent, begun = f"cut-{is_plain}", threading.Semaphore(0)

    def dig(ctx):
        begun.release()
        ctx.sleep(60)
        raise Fail("cut off")

    async def dig_async():
        begun.release()
        await asyncio.sleep(60)

    worker.task("dig", agent=agent)(dig if is_plain else dig_async)

    async def story():
        async with working(worker) as rota:
            projects = [f"{agent}-{name}" for name in ("runs", "waits")]
            for project in projects:
                task = (await rota.add_to_project(project, "dig", agent=agent)).task_id
                await rota.run_project(project)
                async with asyncio.timeout(20):  # in the worker's hands, running or not begun
                    while (await rota.get(task)).state not in ("assigned", "running"):
                        await asyncio.sleep(0.001)
            assert await asyncio.to_thread(begun.acquire, timeout=20)
            for project in reversed(projects):
                stopped = await rota.force_stop_project(project)
                assert (stopped.success, stopped.still_running) == (True, [])

    asyncio.run(story())


@pytest.mark.parametrize("is_plain", [True, False])
@pytest.mark.parametrize("end", ["returns", "raises"])
def test_what_comes_of_a_function_that_was_told_to_stop_does_not_count(server, is_plain, end):
    agent, begun = f"obeys-{is_plain}-{end}", threading.Semaphore(0)

    def half_done():
        if end == "raises":
            raise Fail("interrupted")
        return {"pages": 1}

    def crawl(ctx):
        begun.release()
        assert ctx.sleep(60)
        return half_done()

    async def crawl_async():
        begun.release()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return half_done()

    def made():
        worker = Worker(server.url, concurrency=1, lease_s=600, grace_s=0)
        worker.task("crawl", agent=agent)(crawl if is_plain else crawl_async)
        return worker

    async def story():
        async with RotaClient(server.url) as rota:
            alone = (await rota.submit("crawl", agent)).task_id
            async with working(made()):  # the worker's own end tells it to stop
                assert await asyncio.to_thread(begun.acquire, timeout=20)
            assert (await rota.get(alone)).state == "ready"
            await rota.cancel(alone)
            item = (await rota.add_to_project(agent, "crawl", agent=agent)).task_id
            await rota.run_project(agent)
            async with working(made()):
                assert await asyncio.to_thread(begun.acquire, timeout=20)
                stopped = await rota.force_stop_project(agent)
            assert (stopped.success, stopped.still_running) == (True, [])
            task = await rota.get(item)
            assert (task.state, task.error.code, task.result) == ("failed", "force_stopped", None)

    asyncio.run(story())


def test_what_is_declared_beside_a_function_holds_before_it_takes_anything(server):
    worker = Worker(server.url)
    go_on = threading.Event()

    @worker.task("declared", agent="declares", retry={"base_s": 0}, timeout=20, concurrency=1)
    def flaky(ctx):
        if ctx.attempt < 4:
            raise ValueError("not yet")
        assert go_on.wait(20)

    async def story():
        for _ in range(2):
            async with working(worker) as rota:
                while not (
                    rows := [t for t in (await rota.types())["types"] if t["type"] == "declared"]
                ):
                    await asyncio.sleep(0.01)
        [row] = rows[0]["declared"]
        assert (row["agentId"], row["timeoutMs"], row["maxConcurrent"]) == ("declares", 20_000, 1)
        async with RotaClient(server.url) as rota:
            events = [e async for e in rota.iter_events(kinds=("type_declared",))]
        assert len([e for e in events if e.agent == "declares"]) == 1
        go_on.set()
        async with working(worker) as rota:
            tasks = [await ends(rota, "declared", "declares") for _ in range(2)]
            assert [(t.state, t.attempt, t.timeout_s) for t in tasks] == [("succeeded", 4, 20)] * 2

    asyncio.run(story())


def test_a_declaration_that_is_refused_does_not_stop_a_worker(server, caplog):
    worker = Worker(server.url)

    @worker.task("over", agent="declares", timeout=10_000_000)
    def over():
        return 1

    @worker.task("beside", agent="declares", timeout=20)
    def beside():
        return 2

    async def story():
        async with working(worker) as rota:
            assert (await ends(rota, "over", "declares")).result == 1
            assert (await ends(rota, "beside", "declares")).timeout_s == 20

    asyncio.run(story())
    said = "what is declared of type over does not hold: field 'timeout_s': must be at most"
    assert said in caplog.text

"""What acceptance tests do to a real server: load it, kill it, and audit what it left behind.

`Ledger` keeps what clients were promised (202s, acknowledged cancels, ends that were shown).
`Load` makes concurrent clients keep it. `Audit` folds the log event by event with counters of its
own and holds it to the promises: legal moves, one end for each task, caps never exceeded, attempt
numbers that interruptions do not spend. `compare` holds a live server's answers to that fold.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections import Counter
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson
from support.receivers import OK, answer, receiving
from support.server_process import REPOSITORY, ServerProcess

from rota.actors.recovery import rebuild
from rota.clock import SystemClock
from rota.domain import events as e
from rota.domain.commands import PULL
from rota.domain.fold import TASK_EVENTS
from rota.domain.moves import MOVES
from rota.domain.packed import written
from rota.domain.task import IN_FLIGHT, READY, REJECTED, TERMINAL, WAITING, TaskState
from rota.eventlog.chain import GENESIS
from rota.eventlog.codec import decode, kind_of
from rota.eventlog.lmdb_store import LmdbLog
from rota.eventlog.replay import stored
from rota.http import views
from rota.projections.control import limits_from
from rota.projections.state import State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from pathlib import Path

    from support.receivers import Receiver

    from rota.domain.commands import Limits

REQUEST_S = 10.0
END_S = 30.0
STEP_S = 0.01
CLOCK_SLACK_US = 50_000
AGENTS = 5
BORN: dict[type[Any], TaskState] = {e.TaskSubmitted: READY, e.TaskRejected: REJECTED}
GONE = (aiohttp.ClientError, ConnectionError, TimeoutError, asyncio.IncompleteReadError)


def config(**scheduler: Any) -> dict[str, Any]:
    """Give a configuration with limits so small that a load reaches all of them."""
    limits = {
        "maxInflight": 8,
        "maxPerAgentInflight": 3,
        "workerCount": 6,
        "maxQueueSize": 60,
        "maxPerAgent": 20,
        "resultTTLSec": 300,
    }
    return {
        "server": {"snapshot_every_events": 300, "grace_s": 3},
        "scheduler": {**limits, **scheduler},
        "webhooks": {"allow_hosts": ["127.0.0.1"], "timeout_ms": 3000},
    }


# -- what was promised ---------------------------------------------------------------------------


class Ledger:
    """What clients were told, and may rely on."""

    def __init__(self) -> None:
        self.acknowledged: set[str] = set()
        self.cancelled: set[str] = set()
        self.seen_ended: dict[str, tuple[str, str]] = {}
        self.with_callback: set[str] = set()
        self.refused = 0
        self.surprises: list[str] = []


# -- the log, held to its promises ---------------------------------------------------------------


def open_log(folder: Path) -> LmdbLog:
    """Open a log for reading, beside a server that may be writing it."""
    return LmdbLog(folder, readonly=True)


class Audit:
    """The log of one folder, folded event by event as far as it was read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = State()
        self.digest = GENESIS
        self.ends: Counter[str] = Counter()
        self.phase: dict[str, TaskState] = {}
        self.kinds: Counter[str] = Counter()
        self.history: list[tuple[int, str, str | None]] = []
        self.limits: Limits | None = None
        self.peak_inflight = 0
        self._about: dict[str, e.TaskSubmitted | e.TaskRejected] = {}
        self._spent: dict[str, int] = {}
        self._in: dict[str, Counter[str]] = {
            name: Counter() for name in ("waiting", "inflight", "push", "total")
        }

    @property
    def seq(self) -> int:
        """How far the log was read."""
        return self.state.seq

    @property
    def waiting(self) -> int:
        """How many tasks wait."""
        return self._in["total"]["waiting"]

    @property
    def inflight(self) -> int:
        """How many tasks are in flight."""
        return self._in["total"]["inflight"]

    def unfinished_push(self) -> list[str]:
        """Name the tasks that rota runs itself and that have not ended."""
        return [
            task
            for task, phase in self.phase.items()
            if phase not in TERMINAL and self._is_push(task)
        ]

    def advance(
        self, until_seq: int | None = None, watch: Callable[[e.Record], None] | None = None
    ) -> int:
        """Read on, checking every record; give how many were new."""
        log = open_log(self.folder)
        try:
            if self.seq:
                [last] = log.read(self.seq - 1, 1)
                assert last.digest == self.digest, "the history before was rewritten"
            before = self.seq
            for item in stored(log, self.seq, until_seq):
                record = decode(item.body)
                self._check(record)
                self.digest = item.digest
                self.state.apply(record)
                if watch is not None:
                    watch(record)
            return self.seq - before
        finally:
            log.close()

    def check_snapshots(self) -> int:
        """A snapshot plus its tail is the same as the whole replay; give the snapshot's seq."""
        log = open_log(self.folder)
        try:
            state = rebuild(log, until_seq=self.seq)
            assert state.seq == self.seq
            assert state.digest() == self.state.digest(), "snapshot + tail is not the full replay"
            return state.snapshot_seq
        finally:
            log.close()

    def check_promises(self, ledger: Ledger) -> None:
        """Nothing that a client was told is taken back."""
        assert not ledger.surprises, ledger.surprises[:5]
        lost = sorted(ledger.acknowledged - set(self.phase))
        assert not lost, f"{len(lost)} acknowledged tasks are lost, such as {lost[:3]}"
        for task in sorted(ledger.cancelled):
            assert self.phase[task] is TaskState.CANCELLED, f"{task}: {self.phase[task]}"
        for task, (state, where) in ledger.seen_ended.items():
            now = self.phase[task]
            assert now == state, f"{task} was {state} by the answer to {where}, and is now {now}"

    def check_all_ended(self) -> None:
        """Every task that rota runs itself has exactly one end."""
        assert not self.unfinished_push(), self.unfinished_push()[:5]
        for task, phase in self.phase.items():
            assert self.ends[task] == (phase in TERMINAL), (task, phase, self.ends[task])

    # -- one record

    def _is_push(self, task: str) -> bool:
        return getattr(self._about[task], "executor", PULL) != PULL

    def _check(self, record: e.Record) -> None:
        event: Any = record.event
        where = f"record {record.seq}, {event}"
        assert record.seq == self.seq + 1, where
        assert record.at >= self.state.at, f"{where}: time went back"
        assert not isinstance(event, e.ActorFailed), where
        kind = kind_of(type(event))
        task = getattr(event, "task", None)
        self.kinds[kind] += 1
        self.history.append((record.seq, kind, task))
        if isinstance(event, e.ServerStarted | e.ConfigChanged):
            self.limits = limits_from(event.settings)
        elif isinstance(event, TASK_EVENTS):
            self._move(event, where)

    def _move(self, event: Any, where: str) -> None:
        task, fact = event.task, type(event)
        before = self.phase.get(task)
        moves = MOVES[before] if before is not None else BORN
        assert fact in moves, f"{where}: illegal in state {before}"
        after = moves[fact]
        if before is None:
            self._about[task] = event
            self._admit(event, where)
        self._count_attempts(event, where)
        self._shift(task, before, after)
        self.phase[task] = after
        if after in TERMINAL:
            self.ends[task] += 1
            assert self.ends[task] == 1, f"{where}: a second end"
        if isinstance(event, e.TaskAssigned):
            self._check_caps(event.agent, where)

    def _admit(self, event: Any, where: str) -> None:
        assert self.limits is not None, f"{where}: before any server started"
        waiting = self._in["waiting"][event.agent]
        full = self.waiting >= self.limits.queued or waiting >= self.limits.queued_per_agent
        assert full == isinstance(event, e.TaskRejected), f"{where}: {self.waiting}, {waiting}"

    def _count_attempts(self, event: Any, where: str) -> None:
        spent = self._spent.get(event.task, 0)
        if isinstance(event, e.TaskAssigned):
            assert event.attempt == spent + 1, f"{where}: {spent} attempts were spent"
            self._spent[event.task] = event.attempt
        elif isinstance(event, e.AttemptInterrupted):
            assert event.attempt == spent, where
            self._spent[event.task] = spent - 1

    def _shift(self, task: str, before: TaskState | None, after: TaskState) -> None:
        agent = self._about[task].agent
        for states, name in ((WAITING, "waiting"), (IN_FLIGHT, "inflight")):
            step = (after in states) - (before in states)
            self._in[name][agent] += step
            self._in["total"][name] += step
            if name == "inflight" and self._is_push(task):
                self._in["push"]["all"] += step
        assert self._in["waiting"][agent] >= 0
        assert self._in["inflight"][agent] >= 0

    def _check_caps(self, agent: str, where: str) -> None:
        assert self.limits is not None
        counts, limits = self._in, self.limits
        assert self.inflight <= limits.inflight, f"{where}: {self.inflight} in flight"
        mine = counts["inflight"][agent]
        assert mine <= limits.inflight_per_agent, f"{where}: {mine} of {agent} in flight"
        assert counts["push"]["all"] <= limits.push, f"{where}: {counts['push']} pushed"
        self.peak_inflight = max(self.peak_inflight, self.inflight)


@cache
def has_verify_command() -> bool:
    """Whether `rota verify` exists."""
    return rota("verify", "--help").returncode == 0


def rota(*words: str) -> subprocess.CompletedProcess[str]:
    """Run `rota` with these words."""
    return subprocess.run(
        [sys.executable, "-m", "rota", *words],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def verify(folder: Path) -> None:
    """Let `rota verify` judge the folder."""
    if has_verify_command():
        done = rota("verify", "--data-dir", str(folder))
        assert done.returncode == 0, done.stdout + done.stderr


# -- a live server, held to its log --------------------------------------------------------------


async def get(session: aiohttp.ClientSession, url: str) -> Any:
    """GET JSON."""
    async with session.get(url) as response:
        body = await response.read()
        assert response.status == 200, (response.status, body[:300])
        return orjson.loads(body)


async def post(
    session: aiohttp.ClientSession, url: str, body: Any | None = None
) -> tuple[int, dict[str, Any]]:
    """POST JSON; give the status and the answer."""
    async with session.post(url, json=body) as response:
        return response.status, orjson.loads(await response.read())


async def submit(session: aiohttp.ClientSession, url: str, **fields: Any) -> str:
    """Submit a task that must be accepted; give its id."""
    body = {"agentId": "a1", "action": "echo", **fields}
    status, said = await post(session, f"{url}/v1/tasks", body)
    assert status == 202, said
    return str(said["taskId"])


async def until_state(
    session: aiohttp.ClientSession, url: str, task: str, *states: str, timeout_s: float = END_S
) -> dict[str, Any]:
    """Wait until a task is in one of the states; give its view."""
    async with asyncio.timeout(timeout_s):
        while True:
            view: dict[str, Any] = await get(session, f"{url}/v1/tasks/{task}")
            if view["state"] in states:
                return view
            await asyncio.sleep(STEP_S)


async def until(holds: Callable[[], bool], timeout_s: float = END_S) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(timeout_s):
        while True:
            if holds():
                return
            await asyncio.sleep(STEP_S)


async def until_quiet(session: aiohttp.ClientSession, url: str) -> set[str]:
    """Wait until only tasks that wait for a worker are left, and no callback is owed; give them."""
    stats: dict[str, Any] = {}
    try:
        async with asyncio.timeout(END_S):
            while True:
                stats = await get(session, f"{url}/v1/stats")
                if not stats["queue"]["inflight"] and not stats["callbacks"]["pending"]:
                    waiting = await all_tasks(session, url, "&state=ready")
                    if all(row["executor"] == PULL for row in waiting):
                        return {row["taskId"] for row in waiting}
                await asyncio.sleep(STEP_S)
    except TimeoutError:
        msg = f"work is left after {END_S} s: {stats}"
        raise AssertionError(msg) from None


async def compare(session: aiohttp.ClientSession, url: str, audit: Audit) -> None:
    """What the server shows is the fold of its log."""
    stats = await get(session, f"{url}/v1/stats")
    audit.advance(stats["log"]["seq"])
    state = audit.state
    assert stats["queue"]["waiting"] == state.backlog.total == audit.waiting
    assert stats["queue"]["inflight"] == state.slots.total == audit.inflight
    assert stats["queue"]["tasksInMemory"] <= len(state.tasks)
    state.forget(SystemClock().now_us())  # as the server does by its clock, between two records
    assert stats["queue"]["tasksInMemory"] >= len(state.tasks)
    for name, value in state.stats.totals.items():
        if not name.endswith("_us"):
            uncounted = stats["total"][name] - value
            assert uncounted == 0 or (name == "rejected" and uncounted > 0), name
            assert stats["sinceStart"][name] == state.stats.since_start()[name] + uncounted, name
    assert stats["callbacks"] == {
        "pending": len(state.deliveries.pending),
        "delivered": state.deliveries.delivered,
        "failedTries": state.deliveries.failed_tries,
        "abandoned": state.deliveries.abandoned,
    }
    await _compare_list(session, url, audit)


async def _compare_list(session: aiohttp.ClientSession, url: str, audit: Audit) -> None:
    """Every row of the list is as its task was at some moment while the list was read."""
    forms = {task.id: [_view(task)] for task in audit.state.tasks}
    kept_from = audit.state.at
    rows = await all_tasks(session, url)
    stats = await get(session, f"{url}/v1/stats")

    def watch(record: e.Record) -> None:
        task = audit.state.tasks.get(getattr(record.event, "task", ""))
        if task is not None:
            forms.setdefault(task.id, []).append(_view(task))

    audit.advance(stats["log"]["seq"], watch)
    now = int(datetime.now(UTC).timestamp() * 1e6) + CLOCK_SLACK_US
    shown = {row["taskId"]: row for row in rows}
    assert len(shown) == len(rows), "a task was listed twice"
    for task_id, row in shown.items():
        row.pop("waitReason", None)
        assert row in forms.get(task_id, []), (row, forms.get(task_id))
    for task in audit.state.tasks:
        if task.created_at <= kept_from and audit.state.tasks.is_kept(task, now):
            assert task.id in shown, f"{task.id} is not listed"


def _view(task: Any) -> Any:
    """Show a task as its records tell; the limit that holds it is in none of them."""
    view = orjson.loads(written(views.native(task)))
    view.pop("waitReason", None)
    return view


async def all_tasks(
    session: aiohttp.ClientSession, url: str, filters: str = ""
) -> list[dict[str, Any]]:
    """Read the whole list, page by page."""
    rows: list[dict[str, Any]] = []
    cursor = ""
    for _ in range(1000):
        page = await get(session, f"{url}/v1/tasks?limit=1000{filters}{cursor}")
        rows += page["tasks"]
        if "nextCursor" not in page:
            return rows
        cursor = f"&cursor={page['nextCursor']}"
    msg = "the list does not end"
    raise AssertionError(msg)


# -- the load ------------------------------------------------------------------------------------


class Hooks:
    """A receiver of callbacks that is down for some first tries."""

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.url = receiver.url()

    def ids(self) -> dict[str, list[str]]:
        """Give the webhook-ids that came in, by task."""
        found: dict[str, list[str]] = {}
        for request in self.receiver.requests:
            task = orjson.loads(request.body)["taskId"]
            found.setdefault(task, []).append(request.headers["webhook-id"])
        return found

    def check(self, tasks: Iterable[str]) -> None:
        """Each task's callback came at least once, always under the same id."""
        ids = self.ids()
        for task in tasks:
            assert ids.get(task), f"the callback of {task} never came"
            assert len(set(ids[task])) == 1, f"{task}: {ids[task]}"


@asynccontextmanager
async def hooks(every_nth_fails: int = 0) -> AsyncIterator[Hooks]:
    """Receive callbacks on the loopback; every n-th request is answered with 500."""
    count = 0

    async def reply(writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        fails = every_nth_fails and count % every_nth_fails == 0
        writer.write(answer(500) if fails else OK)
        await writer.drain()

    async with receiving(reply) as receiver:
        yield Hooks(receiver)


@asynccontextmanager
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    """Open a session with a limit on every request."""
    timeout = aiohttp.ClientTimeout(total=REQUEST_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        yield session


class Load:
    """Concurrent clients that submit, cancel and look, and keep what they were told."""

    def __init__(self, url: str, ledger: Ledger, dice: random.Random, callback: str) -> None:
        self._url = url
        self._ledger = ledger
        self._dice = dice
        self._callback = callback
        self._open: list[str] = []

    async def run(self, clients: int = 6) -> None:
        """Go on until the server is gone (or this is cancelled)."""
        async with client() as session:
            await asyncio.gather(*(self._one(session) for _ in range(clients)))

    async def _one(self, session: aiohttp.ClientSession) -> None:
        acts = [self._submit] * 10 + [self._batch] * 2 + [self._cancel] * 4 + [self._look] * 2
        for turn in range(100_000):
            act = self._dice.choice(acts) if turn or self._dice.random() < 0.9 else self._reload
            try:
                await act(session)
            except GONE:
                return

    def _task(self) -> dict[str, Any]:
        dice = self._dice
        action = dice.choice(["echo", "echo", "sleep", "sleep", "sleep", "fail", "browse"])
        task: dict[str, Any] = {"action": action, "priority": dice.randrange(4)}
        if action == "sleep":
            task["params"] = {"ms": dice.choice([1, 5, 20, 60])}
        if dice.random() < 0.15:
            soon = datetime.now(UTC) + timedelta(milliseconds=dice.choice([60, 200, 500]))
            task["deadline"] = soon.isoformat().replace("+00:00", "Z")
        if action == "browse":
            task["action"] = "browse" if dice.random() < 0.1 else "echo"
        return task

    async def _submit(self, session: aiohttp.ClientSession) -> None:
        dice = self._dice
        task = self._task() | {"agentId": f"agent-{dice.randrange(AGENTS)}"}
        if dice.random() < 0.1:
            task["timeoutMs"] = 15
        if dice.random() < 0.1:
            task["onInterrupt"] = "fail"
        if dice.random() < 0.1:
            task["callbackUrl"] = self._callback
        status, said = await post(session, f"{self._url}/v1/tasks", task)
        if status == 202:
            self._keep(said["taskId"], task)
        elif status == 429 and said["code"] == "queue_full":
            self._ledger.refused += 1
            await asyncio.sleep(0.005)
        elif status != 400 or said.get("details", {}).get("field") != "deadline":
            self._surprise("submit", status, said)

    async def _batch(self, session: aiohttp.ClientSession) -> None:
        dice = self._dice
        body: dict[str, Any] = {
            "agentId": f"agent-{dice.randrange(AGENTS)}",
            "tasks": [self._task() for _ in range(dice.randrange(2, 9))],
        }
        if dice.random() < 0.1:
            body["callbackUrl"] = self._callback
        status, said = await post(session, f"{self._url}/tasks/batch", body)
        if status != 202:
            if status != 400 or said.get("details", {}).get("field") != "deadline":
                self._surprise("batch", status, said)
            return
        for task, sent in zip(said["tasks"], body["tasks"], strict=True):
            if task["state"] == "queued":
                self._keep(task["taskId"], sent | {"callbackUrl": body.get("callbackUrl")})
            else:
                self._ledger.refused += 1

    def _keep(self, task: str, sent: dict[str, Any]) -> None:
        self._ledger.acknowledged.add(task)
        if sent.get("callbackUrl"):
            self._ledger.with_callback.add(task)
        self._open.append(task)
        if sent["action"] == "browse" or len(self._open) > 200:
            del self._open[0]

    def _pick(self) -> str | None:
        known = self._open or sorted(self._ledger.acknowledged)[-50:]
        return self._dice.choice(known) if known else None

    async def _cancel(self, session: aiohttp.ClientSession) -> None:
        task = self._pick()
        if task is None:
            return
        url = f"{self._url}/v1/tasks/{task}/cancel"
        status, said = await post(session, url, {"reason": "no longer wanted"})
        if status == 200:
            self._ledger.cancelled.add(task)
        elif status == 409:
            self._ledger.seen_ended[task] = (said["details"]["state"], "a cancel")
        else:
            self._surprise(f"cancel {task}", status, said)

    async def _look(self, session: aiohttp.ClientSession) -> None:
        task = self._pick()
        if task is None:
            return
        async with session.get(f"{self._url}/v1/tasks/{task}") as response:
            said = orjson.loads(await response.read())
            if response.status != 200:
                self._surprise(f"look at {task}", response.status, said)
            elif TaskState(said["state"]) in TERMINAL:
                self._ledger.seen_ended[task] = (said["state"], "a look")

    async def _reload(self, session: aiohttp.ClientSession) -> None:
        inflight, workers = self._dice.choice([(4, 6), (8, 4), (5, 12)])
        limits = {"maxInflight": inflight, "workerCount": workers}
        status, said = await post(session, f"{self._url}/v1/config/reload", {"scheduler": limits})
        if status != 200:
            self._surprise("reload", status, said)

    def _surprise(self, what: str, status: int, said: Any) -> None:
        self._ledger.surprises.append(f"{what}: {status} {said}")


# -- killing -------------------------------------------------------------------------------------


class KillRounds:
    """A server that is loaded and killed, again and again, on one folder."""

    def __init__(self, folder: Path, seed: int, target: Hooks) -> None:
        self._dice = random.Random(seed)
        self._hooks = target
        settings = config(resultTTLSec=2)
        settings["server"]["map_bytes"] = 131_072
        self.server = ServerProcess(folder, settings)
        self.audit = Audit(folder)
        self.ledger = Ledger()
        self.killed_while_starting = 0

    async def round(self) -> None:
        """Start, compare, load, kill, audit."""
        if self._dice.random() < 0.15:
            await self._kill_while_starting()
        else:
            await asyncio.to_thread(self.server.start)
            async with client() as session:
                await compare(session, self.server.url, self.audit)
            load = Load(self.server.url, self.ledger, self._dice, self._hooks.url)
            loading = asyncio.create_task(load.run())
            await asyncio.sleep(self._dice.uniform(0.03, 0.6))
            assert await asyncio.to_thread(self.server.kill) == -9, self.server.output()
            await loading
        self.check()

    async def _kill_while_starting(self) -> None:
        self.killed_while_starting += 1
        self.server.start(wait=False)
        await asyncio.sleep(self._dice.uniform(0.2, 0.9))
        await asyncio.to_thread(self.server.kill)

    def check(self) -> None:
        """Hold what lies on the disk to what was promised."""
        if (self.audit.folder / "data.mdb").exists():
            self.audit.advance()
            self.audit.check_snapshots()
        self.audit.check_promises(self.ledger)

    async def finish(self) -> None:
        """Start once more, let everything end, stop in good order, audit the whole."""
        await asyncio.to_thread(self.server.start)
        async with client() as session:
            url = self.server.url
            await compare(session, url, self.audit)
            pull = await until_quiet(session, url)
            await compare(session, url, self.audit)
        code = await asyncio.to_thread(self.server.stop)
        assert code == 0, self.server.output()
        self.check()
        self.audit.check_all_ended()
        self._hooks.check(self.ledger.with_callback - pull)
        whole = Audit(self.audit.folder)
        whole.advance()
        assert whole.state.digest() == self.audit.state.digest()


# -- dying at a named point ----------------------------------------------------------------------


@asynccontextmanager
async def serving(
    folder: Path, settings: dict[str, Any] | None = None, crash_at: str = ""
) -> AsyncIterator[ServerProcess]:
    """Run a server for a block; whatever is left of it afterwards is killed."""
    env = {"ROTA_CRASH_AT": crash_at} if crash_at else {}
    server = ServerProcess(folder, config() if settings is None else settings, env)
    try:
        await asyncio.to_thread(server.start)
        yield server
    finally:
        if server.returncode is None:
            await asyncio.to_thread(server.kill)


async def dies_at_its_point(server: ServerProcess) -> None:
    """Wait until the server has killed itself."""
    code = await asyncio.to_thread(server.wait)
    assert code == -9, (code, server.output())


async def submit_until_gone(
    session: aiohttp.ClientSession, url: str, most: int = 300, **fields: Any
) -> list[str]:
    """Submit one task after the other until the server is gone; give the acknowledged ids."""
    acknowledged = []
    for _ in range(most):
        try:
            acknowledged.append(await submit(session, url, **fields))
        except GONE:
            return acknowledged
    msg = f"the server still runs after {most} submissions"
    raise AssertionError(msg)


def audited(folder: Path, ledger: Ledger | None = None) -> Audit:
    """Audit the whole log of a folder."""
    audit = Audit(folder)
    audit.advance()
    audit.check_snapshots()
    audit.check_promises(ledger or Ledger())
    return audit

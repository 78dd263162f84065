"""What the world asks of the scheduler, drawn from the seed.

A run has a character: some make much use of dependencies, some of retries, some of nothing but
plain tasks. What a record does not tell, and the model must know, is put into a task's params
(`mode` of its dedup, `missing`) and into the details of a failure (`retryable`, `retryAfter`).
"""

from __future__ import annotations

from random import Random
from typing import Any

from support.wishes import changed, made

from rota.domain.commands import Dedup, Limits, Outcome
from rota.domain.intake import BatchRequest, Request

AGENTS = ("ann", "bob", "cyd", "dan", "eve")
ACTIONS = ("echo", "sleep", "scan", "post")
BROWSING = ("browser_start", "browser_start", "browser_stop", "browser_stop_all", "script_run")
EXECUTORS = ("builtin", "builtin", "web")
HOSTS = ("http://one.test/hook", "http://two.test/hook", "http://three.test/hook")
CURVES = ("exponential", "quadratic", "linear", "fixed")
RETRY_ON = (["timeout"], ["status:5xx"], ["code:busy", "timeout"], ["connection", "status:503"], [])
MODES = ("reject", "return", "replace")
SHAPES = ("plain", "chain", "fan", "mesh", "ring", "bad")
AGING = (0, 0, 0, 500, 10_000)
AGING_PREEMPTED = (0, 500, 500, 500, 10_000)
"""Who may pre-empt often stands behind somebody who is older: there he must be found."""
S = 1_000_000


def _place(name: str) -> str:
    """Write the placeholder of a parent's result."""
    return "{{" + name + "}}"


class Work:
    """The commands of one run."""

    def __init__(self, rng: Random) -> None:
        """Draw the run's character."""
        self.rng = rng
        self.odds = {
            "browsing": rng.choice((0.0, 0.0, 0.3, 0.8)),
            "late": rng.choice((0.0, 0.3, 0.8)),
            "repeat": rng.choice((0.0, 0.05, 0.3)),
            "deadline": rng.choice((0.0, 0.1, 0.5)),
            "timeout": rng.choice((0.0, 0.2, 0.6)),
            "callback": rng.choice((0.0, 0.2, 0.6)),
            "pull": rng.choice((0.0, 0.0, 0.3, 0.7)),
            "interrupt": rng.choice((0.0, 0.1, 0.4)),
            "fails": rng.choice((0.05, 0.3, 0.6)),
            "depends": rng.choice((0.0, 0.2, 0.6)),
            "wanted": rng.choice((0.1, 0.5)),
            "retry": rng.choice((0.0, 0.4, 0.8)),
            "queue_timeout": rng.choice((0.0, 0.0, 0.2, 0.5)),
            "not_before": rng.choice((0.0, 0.0, 0.2, 0.5)),
            "key": rng.choice((0.0, 0.0, 0.3, 0.7)),
            "idempotency": rng.choice((0.0, 0.0, 0.3)),
            "dedup": rng.choice((0.0, 0.0, 0.3)),
            "preempt": rng.choice((0.0, 0.0, 0.3)),
            "notes": rng.choice((0.0, 0.0, 0.4)),
            "clock": rng.choice((0.0, 0.0, 0.3, 0.7)),
        }
        if self.odds["browsing"]:  # a browser without a profile is held by nobody
            self.odds["key"] = self.odds["key"] or 0.3
        self._strategies = Random(str(self.odds))  # apart: what else is drawn stays the same
        self.agents = AGENTS[: rng.randint(1, len(AGENTS))]
        self.is_wide = rng.random() < 0.01
        self._jobs = 0

    def is_drawn(self, name: str) -> bool:
        """Toss for one of the odds."""
        odds = self.odds[name]
        return odds > 0 and self.rng.random() < odds

    # -- limits --------------------------------------------------------------------------------

    def limits(self) -> Limits:
        """Draw limits, mostly tight ones."""
        rng = self.rng
        wide = 1000 if self.is_wide else 0
        caps = {name: rng.randint(1, 2) for name in ("scan", "post") if rng.random() < 0.4}
        return Limits(
            queued=wide or rng.choice((5, 20, 1000, 1000, 1000, 1000)),
            queued_per_agent=wide or rng.choice((3, 8, 100, 100, 100, 100)),
            inflight=rng.choice((1, 3, 6, 20)),
            inflight_per_agent=rng.choice((1, 2, 3, 10)),
            push=rng.choice((1, 2, 4, 10)),
            result_ttl_s=rng.choice((1, 10, 300)),
            types=tuple(sorted(caps.items())),
            per_key=rng.choice((1, 1, 2)),
            aging_ms=rng.choice(AGING_PREEMPTED if self.odds["preempt"] else AGING),
            ended=rng.choice((0, 1, 5, 1000)),
            ended_bytes=rng.choice((0, 2500, 20_000)),
            browsers=rng.choice((0, 1, 2, 5)) if self.odds["browsing"] else 0,
            sticky_ms=rng.choice((0, 0, 500)),
            strategy=self._strategies.choice(("fair-fifo", "fair-fifo", "priority-fifo")),
        )

    # -- one task ------------------------------------------------------------------------------

    def task(self, now: int, recent: list[str], *, is_item: bool = False) -> Request:
        """Draw a task; as an item of a batch it has no keys of its own and no parents yet."""
        rng = self.rng
        params: dict[str, Any] = {}
        command = made(
            Request,
            rng.choice(self.agents),
            rng.choice(BROWSING if self.is_drawn("browsing") else ACTIONS),
            "pull" if self.is_drawn("pull") else rng.choice(EXECUTORS),
            priority=rng.choice((2, 2, 2, 0, 1, 3)),
            callback=rng.choice(HOSTS) if self.is_drawn("callback") else None,
            deadline=now + rng.randrange(1, 20 * S) if self.is_drawn("deadline") else None,
            timeout_ms=rng.randrange(1, 3000) if self.is_drawn("timeout") else None,
            on_interrupt="fail" if self.is_drawn("interrupt") else None,
            by="sim",
            wanted_id=self._job() if self.is_drawn("wanted") else None,
            key=rng.choice(("k1", "k2")) if self.is_drawn("key") else None,
            retry=self.policy() if self.is_drawn("retry") else None,
            queue_timeout_ms=rng.randrange(1, 8000) if self.is_drawn("queue_timeout") else None,
            not_before=now + rng.randrange(-S, 6 * S) if self.is_drawn("not_before") else None,
            preempt=self.is_drawn("preempt"),
            dialect="browseros" if rng.random() < 0.1 else "native",
        )
        if command.executor == "pull" and rng.random() < 0.2:
            command = changed(command, requires=["gpu"])
        if not is_item:
            command = self._keyed(command, params)
            if self.is_drawn("depends"):
                depends = tuple(self._parent(recent) for _ in range(rng.choice((1, 1, 2, 3))))
                params["from"] = _place(depends[0])
                command = command._replace(depends=depends)
                if rng.random() < 0.2:
                    command = changed(command, not_before=now + rng.randrange(60 * S))
        if command.plan.not_before is not None and rng.random() < 0.5:
            delay_ms = max(1, (command.plan.not_before - now) // 1000)
            command = changed(command, not_before=None, delay_ms=delay_ms)
        if rng.random() < 0.1:
            params["missing"] = "fail"
            command = command._replace(on_missing="fail")
        return command._replace(params=params or None)

    def _keyed(self, command: Request, params: dict[str, Any]) -> Request:
        rng = self.rng
        if self.is_drawn("idempotency"):
            key, digest = self._idempotency("i")
            by = rng.choice(("sim", "sim", "eva"))
            command = changed(command, idempotency=key, digest=digest, by=by)
        if self.is_drawn("dedup"):
            mode = params["mode"] = rng.choice(MODES)
            ttl_us = rng.choice((0, 0, 3 * S, 60 * S))
            command = command._replace(dedup=Dedup(rng.choice(("d1", "d2")), ttl_us, mode))
        return command

    def _idempotency(self, letter: str) -> tuple[str, str]:
        key = f"{letter}{self.rng.randrange(3)}"
        return key, f"body {key}" if self.rng.random() < 0.8 else "another body"

    def _job(self) -> str:
        """Give an id that a client may choose, near the last of them."""
        self._jobs += 1
        return self._near()

    def _near(self) -> str:
        return f"job-{max(0, self._jobs + self.rng.randrange(-5, 5))}"

    def _parent(self, recent: list[str]) -> str:
        roll = self.rng.random()
        if roll < 0.6 and recent:
            return self.rng.choice(recent)
        return self._near() if roll < 0.98 else "nobody"

    def policy(self) -> dict[str, Any]:
        """Draw a retry policy."""
        rng = self.rng
        policy = {
            "kind": rng.choice(CURVES),
            "base_ms": rng.choice((0, 50, 400, 2000)),
            "multiplier": rng.choice((1.0, 1.5, 3.0)),
            "jitter_ms": rng.choice((0, 0, 300, 4000)),
            "max_ms": rng.choice((200, 3000, 10_000)),
            "max_attempts": rng.choice((1, 2, 2, 3, 5)),
        }
        if rng.random() < 0.3:
            policy["retry_on"] = rng.choice(RETRY_ON)
        return policy

    # -- batches -------------------------------------------------------------------------------

    def batch(self, now: int, recent: list[str]) -> tuple[BatchRequest, str]:
        """Draw a batch, and say which shape its dependencies have."""
        rng = self.rng
        shape = rng.choice(SHAPES)
        tasks = [self.task(now, recent, is_item=True) for _ in range(rng.choice((1, 2, 3, 4, 7)))]
        tasks = [task._replace(dialect=tasks[0].dialect) for task in tasks]
        tasks = [self._item(task, at, len(tasks), shape, recent) for at, task in enumerate(tasks)]
        return self._together(tasks), shape

    def wide_batch(self, now: int, recent: list[str]) -> tuple[BatchRequest, str]:
        """Draw a batch of some hundred tasks: all after the first, or one after the other."""
        rng = self.rng
        shape = rng.choice(("fan", "fan", "chain"))
        size = rng.randint(100, 300) if shape == "fan" else rng.randint(20, 60)
        first = self.task(now, recent, is_item=True)._replace(wanted_id=None, deadline=None)
        rest = first._replace(callback=None, priority=2, timeout_ms=None)
        tasks = [self._item(first if not at else rest, at, size, shape, []) for at in range(size)]
        return self._together(tasks), shape

    def _together(self, tasks: list[Request]) -> BatchRequest:
        rng = self.rng
        key = digest = None
        if self.is_drawn("idempotency"):
            key, digest = self._idempotency(rng.choice("bbbi"))
        return BatchRequest(
            tuple(tasks),
            tasks[0].dialect,
            parallelism=rng.choice((None, 1, 2)),
            callback=rng.choice(HOSTS) if self.is_drawn("callback") else None,
            by="sim",
            idempotency=key,
            digest=digest,
        )

    def _item(self, task: Request, at: int, size: int, shape: str, recent: list[str]) -> Request:
        """Give an item of a batch the parents that its shape asks for."""
        rng = self.rng
        depends: list[str | int] = []
        if shape == "chain" and at:
            depends = [at - 1]
        elif shape == "fan" and at:
            depends = [rng.choice((0, "ref:r0"))]
        elif shape == "mesh":
            depends = [n for n in range(at) if rng.random() < 0.4]
        elif shape == "ring":
            depends = [(at + 1) % size]
        elif shape == "bad":
            depends = [rng.choice(("ref:nobody", size, -1))]
        if recent and rng.random() < 0.1:
            depends.append(rng.choice(recent))
        params = dict(task.params or {})
        if depends and isinstance(depends[0], str):
            params["from"] = _place(depends[0].removeprefix("ref:"))
        ref = "r0" if not at and shape == "fan" else None
        return task._replace(depends=tuple(depends), ref=ref, params=params or None)

    # -- executors -----------------------------------------------------------------------------

    def outcome(self, token: int) -> Outcome:
        """Draw what becomes of an attempt."""
        rng = self.rng
        if not self.is_drawn("fails"):
            return Outcome(ok=True, result={"n": token})
        code = rng.choice(("task_failed", "task_failed", "busy", "connection", "bad_params"))
        details: dict[str, Any] = {}
        retryable = retry_after = None
        if code == "busy":
            details["status"] = rng.choice((429, 503))
        roll = rng.random()
        if roll < 0.1:
            retryable = details["retryable"] = rng.random() < 0.5
        elif roll < 0.25:
            retry_after = details["retryAfter"] = rng.choice((0.0, 0.5, 12.5, 7200.0))
        return Outcome(
            ok=False,
            code=code,
            error="it did not work",
            details=details or None,
            retry_after_s=retry_after,
            retryable=retryable,
        )

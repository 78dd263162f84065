"""The rules of the task model, each worked out from the records alone.

A rule hears of the records it has an `on_<kind>` for, before they are folded into the model;
`on_end` comes after the fold, with the task in its last state. `at_rest` is asked when no actor
has anything to do, `settled` when nothing will ever happen again. What a submission asked for and
its record does not say (the mode of a dedup, what to do about missing parents, what an executor
said of its failure) travels in the params of the task and the details of the failure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from support.sim_model import Model, ModelTask

    from rota.domain.events import Record

S = 1_000_000
DAY_US = 24 * 3600 * S
FINAL = {"succeeded", "failed", "cancelled", "rejected"}
FLYING = {"assigned", "running"}
FELL = {"failed", "cancelled"}
SLICE_TASKS = 4
"""So many dependents are let go in one step with the end that they waited for."""
LINES_MAX, LINE_CHARS_MAX, REPORTS_MAX = 12, 80, 5
"""The bounds of a task's notes, which the simulation sets low."""


def _is_over(since: int, limit_ms: int | None, now: int) -> bool:
    return limit_ms is not None and since + limit_ms * 1000 <= now


class Rule:
    """Something that must hold."""

    def __init__(self, model: Model) -> None:
        """Judge the records of a model."""
        self.model = model
        self.violated = model.violated


class Edges(Rule):
    """Dependencies: who waits for whom, who is let go, who is doomed."""

    def on_task_submitted(self, task: ModelTask, record: Record) -> None:
        event = task.event
        state_of = self.model.state_of
        unmet = {parent for parent in task.parents if state_of(parent) != "succeeded"}
        if set(event.waits or ()) != unmet:
            self.violated(f"{task.id} waits for {event.waits}, but {sorted(unmet)} have not come")
        if any(state_of(parent) == "rejected" for parent in unmet):
            self.violated(f"{task.id} was admitted to wait for a task that was rejected")
        if (event.params or {}).get("missing") == "fail":
            coming = self.model.batches.members_of(event.batch)
            if any(not state_of(parent) and parent not in coming for parent in unmet):
                self.violated(f"{task.id} was admitted although a task it depends on is missing")
        if unmet and self._leads_back(task, unmet):
            self.violated(f"{task.id} closes a cycle of dependencies")

    def on_task_revived(self, task: ModelTask, record: Record) -> None:
        """What a failure took with it waits again for what it depends on."""
        state_of, waits = self.model.state_of, record.event.waits  # type: ignore[union-attr]
        unmet = {parent for parent in task.parents if state_of(parent) != "succeeded"}
        if task.state != "cancelled":
            if unmet or waits is not None:
                self.violated(f"{task.id} lives again before all it depends on succeeded")
            return
        self.model.seen["dependent revived"] += 1
        if not task.is_doomed:
            self.violated(f"{task.id} was cancelled by somebody, and lives again")
        if any(state_of(parent) in (*FELL, "rejected") for parent in unmet):
            self.violated(f"{task.id} lives again while what it depends on is dead")
        if set(waits or ()) != unmet:
            self.violated(f"{task.id} waits again for {waits}, not for {sorted(unmet)}")
        if not unmet:
            self.model.then.append((self._let_go_by(task), task.id))

    def _leads_back(self, task: ModelTask, unmet: set[str]) -> bool:
        ahead, seen = list(unmet), set()
        while ahead:
            at = ahead.pop()
            if at == task.id:
                return True
            other = self.model.tasks.get(at)
            if at not in seen and other is not None and other.state == "blocked":
                ahead += () if self._is_doomed(other) else other.parents
            seen.add(at)
        return False

    def _is_doomed(self, task: ModelTask) -> bool:
        """Whether a parent ended badly while the task waited, or had done so before."""
        parents = [self.model.tasks[each] for each in task.parents if each in self.model.tasks]
        return any(p.fell and (p.fell > task.waits_since or p.state in FELL) for p in parents)

    def on_task_released(self, task: ModelTask, record: Record) -> None:
        after = "project" if self.model.projects.is_held(task) else "dependencies"
        if (task.state == "blocked") != (record.event.after == after):  # type: ignore[union-attr]
            self.violated(f"{task.id} was {task.state}, and let go after {record.event}")
        if task.state == "blocked":
            self.on_task_delayed(task, record)

    def on_task_delayed(self, task: ModelTask, record: Record) -> None:
        unmet = [p for p in task.parents if self.model.state_of(p) != "succeeded"]
        if unmet:
            self.violated(f"{task.id} was let go before {unmet[0]} succeeded")

    def on_task_assigned(self, task: ModelTask, record: Record) -> None:
        for parent in task.parents:
            if self.model.state_of(parent) != "succeeded":
                self.violated(f"{task.id} was assigned before {parent} succeeded")

    def on_task_cancelled(self, task: ModelTask, record: Record) -> None:
        event: Any = record.event
        if event.code == "dependency_failed":
            self.model.seen["doomed"] += 1
            if task.state != "blocked" or not self._is_doomed(task):
                self.violated(f"{task.id} was cancelled for a dependency that did not fail")

    def on_task_succeeded(self, task: ModelTask, record: Record) -> None:
        """Whoever it lets go takes part in who gets its slot: the best of them follow at once."""
        model = self.model
        free = [
            other
            for other in model.aside.values()
            if other.state == "blocked"
            and not self._is_doomed(other)
            and {p for p in other.parents if model.state_of(p) != "succeeded"} == {task.id}
        ]
        for other in sorted(free, key=model.rank)[:SLICE_TASKS]:
            model.then.append((self._let_go_by(other), other.id))

    def _let_go_by(self, task: ModelTask) -> str:
        now = self.model.steady if task.is_delay else self.model.at
        is_early = task.not_before is not None and now < task.not_before
        return "task_delayed" if is_early else "task_released"

    def at_rest(self) -> None:
        for task in self.model.aside.values():
            if task.state == "blocked":
                states = {self.model.state_of(parent) for parent in task.parents}
                if states == {"succeeded"}:
                    self.violated(f"{task.id} is blocked although all it waited for succeeded")
                if not states.isdisjoint(("failed", "cancelled", "rejected")):
                    self.violated(f"{task.id} waits for what cannot come any more")


class Clocks(Rule):
    """Moments: delays, backoffs, deadlines, both timeouts; never early, never missed, never late.

    What is counted from something that happened goes by a time that nobody sets, what a client
    named by the wall clock.
    """

    def on_task_submitted(self, task: ModelTask, record: Record) -> None:
        event = task.event
        if task.is_delay and event.not_before != record.at + event.delay_ms * 1000:
            self.violated(f"{task.id} asked for {event.delay_ms} ms, and got {event.not_before}")

    def _at(self, is_wall: bool) -> int:  # noqa: FBT001
        return self.model.at if is_wall else self.model.steady

    def _in_time(self, task: ModelTask, what: str, due: int, *, is_wall: bool = False) -> None:
        """Judge that something happens when it is due: late only in a storm, or after a fault."""
        at = self._at(is_wall)
        if at < due:
            self.violated(f"{task.id} {what} {due - at} us too early")
        if self.model.late_from is not None and not self.model.seen["actor_failed"]:
            late_from = self.model.late_from - (0 if is_wall else self.model.shift)
            if at > max(due, late_from) + S:
                self.violated(f"{task.id} {what} {at - due} us too late")

    def _waits_for_a_moment(self, task: ModelTask) -> bool:
        return not task.charged and not task.is_delay

    def on_task_assigned(self, task: ModelTask, record: Record) -> None:
        if task.not_before is None:
            return
        has_come = not task.is_delay or task.assigned_at or task.ready_at >= task.not_before
        if self.model.stepped_back and has_come:
            return  # a moment that has come once may lie ahead again
        if self._at(not task.is_delay) < task.not_before:
            self.violated(f"{task.id} was assigned before its moment")

    def on_task_released(self, task: ModelTask, record: Record) -> None:
        if task.state == "scheduled":
            is_wall = self._waits_for_a_moment(task)
            self._in_time(task, "was let go", task.next_at, is_wall=is_wall)
            after = "backoff" if task.charged else "delay"
            if record.event.after != after:  # type: ignore[union-attr]
                self.violated(f"{task.id} was let go after a {after}, and another is told")
        elif task.not_before is not None and self._at(not task.is_delay) < task.not_before:
            self.violated(f"{task.id} was let go before its moment")
        elif task.charged and self._at(False) < task.next_at:
            self.violated(f"{task.id} was let go from its list in its backoff")

    def on_task_delayed(self, task: ModelTask, record: Record) -> None:
        until = record.event.until  # type: ignore[union-attr]
        moments = [(task.not_before, not task.is_delay)]
        if task.charged:  # put back on its list in its backoff
            moments.append((task.next_at, False))
        if not any(
            self._at(is_wall) < until - (0 if is_wall else self.model.shift) == moment
            for moment, is_wall in moments
        ):
            self.violated(f"{task.id} was delayed although its moment has come")

    def on_task_expired(self, task: ModelTask, record: Record) -> None:
        event: Any = record.event
        self.model.seen[event.clock] += 1
        due = task.event.deadline
        if event.clock == "queue_timeout":
            limit_ms = task.event.queue_timeout_ms
            due = None if limit_ms is None else task.ready_at + limit_ms * 1000
            if task.state != "ready":
                self.violated(f"{task.id} ran out of its queue timeout while it was {task.state}")
        if due is None:
            self.violated(f"{task.id} ran out of a {event.clock} that it does not have")
        else:
            is_wall = event.clock == "deadline"
            self._in_time(task, f"ran out of its {event.clock}", due, is_wall=is_wall)

    def on_attempt_failed(self, task: ModelTask, record: Record) -> None:
        event: Any = record.event
        limit_ms = task.event.timeout_ms
        if event.code == "timeout":
            self.model.seen["timeout"] += 1
            if limit_ms is None:
                self.violated(f"an attempt of {task.id} timed out that has no timeout")
            else:
                self._in_time(task, "timed out", task.assigned_at + limit_ms * 1000)
        if event.code == "deadline_exceeded":
            self.model.seen["deadline_running"] += 1
            if task.event.deadline is None or record.at < task.event.deadline:
                self.violated(f"the deadline of {task.id} came too early")

    on_task_failed = on_attempt_failed

    def overdue(self, now: int) -> None:
        """Judge a moment at which everything due should have happened."""
        steady = now - self.model.shift
        for task in self.model.tasks.values():
            if task.state in FINAL:
                continue
            event = task.event
            if event.deadline is not None and event.deadline <= now:
                self.violated(f"{task.id} is {task.state} after its deadline")
            if task.state in FLYING and _is_over(task.assigned_at, event.timeout_ms, steady):
                self.violated(f"{task.id} runs on after its timeout")
            if task.state == "ready" and _is_over(task.ready_at, event.queue_timeout_ms, steady):
                self.violated(f"{task.id} waits on after its queue timeout")
            due = now if self._waits_for_a_moment(task) else steady
            if task.state == "scheduled" and task.next_at <= due:
                self.violated(f"{task.id} is not let go although its moment has come")


class Attempts(Rule):
    """Attempts: their numbers, how many there may be, when the next one is."""

    POLICY: ClassVar[dict[str, Any]] = {
        "kind": "exponential",
        "base_ms": 1000,
        "multiplier": 2.0,
        "jitter_ms": 0,
        "max_ms": 60_000,
        "max_attempts": 1,
        "retry_on": None,
    }
    HOPELESS = frozenset({"bad_params", "unknown_action", "no_executor"})
    ASKED_US_MAX = 3600 * 1_000_000

    def on_task_assigned(self, task: ModelTask, record: Record) -> None:
        if record.event.attempt != task.attempt + 1:  # type: ignore[union-attr]
            self.violated(f"attempt {task.attempt + 1} of {task.id} was assigned as another")
        policy = self._policy(task, {"retryable": True})  # a worker may have asked for it
        if task.charged >= policy["max_attempts"]:
            self.violated(f"{task.id} gets another attempt after {task.charged}")

    def on_task_succeeded(self, task: ModelTask, record: Record) -> None:
        self._valid(task, record)

    def on_task_failed(self, task: ModelTask, record: Record) -> None:
        event: Any = record.event
        if event.code == "interrupted":
            self._interrupted(task, record)
            return
        if event.code == "max_concurrent_browsers":  # sim_browsers judges it
            return
        if event.code == "bad_params" and not event.attempt:  # sim_flows judges it
            return
        last: Any = self.model.last and self.model.last.event
        if type(last).__name__ == "AttemptInterrupted" and last.task == task.id:
            if event.attempt != last.attempt:
                self.violated(f"attempt {last.attempt} of {task.id} was cut off as another")
        else:
            self._valid(task, record)
        others = ("deadline_exceeded", "internal_fault", "force_stopped")
        if event.code not in others and self._may_retry(task, event):
            self.violated(f"{task.id} was given up although it may be tried again")

    def on_attempt_failed(self, task: ModelTask, record: Record) -> None:
        event: Any = record.event
        self._valid(task, record)
        if not self._may_retry(task, event):
            self.violated(f"{task.id} is tried again after {task.charged} attempts: {event.code}")
        policy = self._policy(task, event.details or {})
        shortest = self._wait_us(policy, task.charged, 0)
        longest = self._wait_us(policy, task.charged, policy["jitter_ms"])
        asked_s = (event.details or {}).get("retryAfter")
        if asked_s is not None:
            asked = min(round(asked_s * 1_000_000), self.ASKED_US_MAX)
            if task.event.executor == "pull":  # a worker's own number takes the pause's place
                shortest = longest = asked
            shortest, longest = max(shortest, asked), max(longest, asked)
        pause = event.next_at - record.at
        follows = self.model.projects.follows(task)
        if pause <= 0 or follows:
            self.model.then.append((follows or "task_released", task.id))
        if not shortest - 1 <= pause <= longest + 1:
            self.violated(f"{task.id} waits {pause} us, not {shortest} to {longest}")

    def on_result_refused(self, task: ModelTask, record: Record) -> None:
        if task.state in FLYING and record.cause == task.token:
            self.violated(f"a result of {task.id} was refused although its attempt is valid")

    def _valid(self, task: ModelTask, record: Record) -> None:
        if record.event.attempt != task.attempt:  # type: ignore[union-attr]
            self.violated(f"attempt {task.attempt} of {task.id} ended as another")
        if record.cause and record.cause != task.token:
            self.violated(f"{task.id} took a result of an attempt that is not valid")

    def _interrupted(self, task: ModelTask, record: Record) -> None:
        before: Any = self.model.last.event if self.model.last is not None else None
        if type(before).__name__ != "AttemptInterrupted" or before.task != task.id:
            self.violated(f"{task.id} failed by an interruption that was none")
        elif before.reason == "released":
            self.violated(f"{task.id} failed because its worker gave it back")
        elif task.event.on_interrupt != "fail" and task.interruptions < 5:
            self.violated(f"{task.id} failed after {task.interruptions} interruptions")

    def _policy(self, task: ModelTask, details: dict[str, Any]) -> dict[str, Any]:
        """Give the policy of a task; if it has none, what a worker gets that asks for a retry."""
        asks = details.get("retryable") is True or "retryAfter" in details or task.charged > 1
        if task.event.retry is None and task.event.executor == "pull" and asks:
            return {**self.POLICY, "max_attempts": 4}
        return {**self.POLICY, **(task.event.retry or {})}

    def _may_retry(self, task: ModelTask, event: Any) -> bool:
        details = event.details or {}
        policy = self._policy(task, details)
        if task.charged >= policy["max_attempts"]:
            return False
        if details.get("retryable") is False:
            return False
        if policy["retry_on"] is None:
            return "retryable" in details or event.code not in self.HOPELESS
        status = details.get("status", 0)
        classes = {
            event.code,
            f"code:{event.code}",
            f"status:{status}",
            f"status:{status // 100}xx",
        }
        return bool(classes & set(policy["retry_on"]))

    @staticmethod
    def _wait_us(policy: dict[str, Any], retry: int, jitter_ms: int) -> int:
        base = policy["base_ms"]
        if policy["kind"] == "exponential":
            for _ in range(retry - 1):
                base *= policy["multiplier"]
        elif policy["kind"] == "quadratic":
            base *= retry**2
        elif policy["kind"] == "linear":
            base *= retry
        return round(1000 * min(base + jitter_ms, policy["max_ms"]))


class Batches(Rule):
    """Batches: whole or absent, finished once for each time they are complete."""

    def __init__(self, model: Model) -> None:
        """Start with none."""
        super().__init__(model)
        self.known: dict[str, Any] = {}
        self.finished_at: dict[str, int] = {}

    def members_of(self, batch_id: str | None) -> list[str]:
        """Give the ids of the tasks of a batch."""
        return self.known[batch_id].tasks if batch_id in self.known else []

    def on_batch_submitted(self, record: Record) -> None:
        event: Any = record.event
        if event.batch in self.known or event.batch in self.model.tasks:
            self.violated(f"batch {event.batch} was born twice")
        if len(set(event.tasks)) != len(event.tasks) or not event.tasks:
            self.violated(f"batch {event.batch} counts a task twice, or has none")
        self.known[event.batch] = event
        self.model.then.extend(("task_submitted", task_id) for task_id in event.tasks)

    def on_batch_rejected(self, record: Record) -> None:
        event: Any = record.event
        model, limits = self.model, self.model.limits
        fullest = max((model.waiting_of(t.agent) for t in model.tasks.values()), default=0)
        if (
            model.has_share(record.by, event.size)
            and fullest + event.size <= limits.queued_per_agent
        ):
            self.violated(f"a batch of {event.size} was rejected although there was room for it")

    def on_task_submitted(self, task: ModelTask, record: Record) -> None:
        event = task.event
        if event.batch is None:
            return
        batch = self.known.get(event.batch)
        if batch is None or task.id not in batch.tasks or record.by != task.by:
            self.violated(f"{task.id} says it is of {event.batch}, which does not know it")
        elif event.parallelism != batch.parallelism:
            self.violated(f"{task.id} goes by another bound than its batch")

    def on_task_revived(self, task: ModelTask, record: Record) -> None:
        self.finished_at.pop(task.event.batch, None)

    def on_batch_finished(self, record: Record) -> None:
        event: Any = record.event
        states = [self.model.state_of(task_id) for task_id in self.members_of(event.batch)]
        if event.batch in self.finished_at:
            self.violated(f"batch {event.batch} was finished twice")
        if not states or not FINAL.issuperset(states):
            self.violated(f"batch {event.batch} was finished although tasks of it go on")
        counts = (event.succeeded, event.failed, event.cancelled)
        if counts != tuple(map(states.count, ("succeeded", "failed", "cancelled"))):
            self.violated(f"batch {event.batch} is said to have ended as {counts}")
        self.finished_at[event.batch] = self.model.steady

    def at_rest(self) -> None:
        for batch_id in self.known.keys() - self.finished_at.keys():
            if all(self.model.state_of(each) in FINAL for each in self.members_of(batch_id)):
                self.violated(f"batch {batch_id} is complete, and was never finished")


class Keys(Rule):
    """Idempotency and dedup keys: one key makes one task, for as long as it is held."""

    def __init__(self, model: Model) -> None:
        """Start with none held."""
        super().__init__(model)
        self.holders: dict[tuple[str, str, str], str] = {}

    def held(self, name: tuple[str, str, str], at: int, mode: str = "") -> str | None:
        """Give the task or batch that holds a key at a moment of the time that nobody sets."""
        subject = self.holders.get(name)
        if subject is None:
            return None
        task = self.model.tasks.get(subject)
        if task is None:
            finished_at = self.model.batches.finished_at.get(subject)
            until = None if finished_at is None else finished_at + DAY_US
            until = until or self.model.flows.held_until(subject)
            is_held = until is None or at < until
        elif task.state not in FINAL:
            is_held = True
        elif name[0] == "idempotency":
            is_held = at < task.ended_at + DAY_US
        else:
            until = task.event.dedup_until
            is_held = mode != "replace" and until is not None and at < until - task.shift
        return subject if is_held else None

    def on_task_submitted(self, task: ModelTask, record: Record) -> None:
        event: Any = record.event
        mode = (event.params or {}).get("mode", "")
        for name in self._names(task):
            other = self.held(name, self.model.steady, mode)
            if other is not None:
                self.violated(f"{task.id} was made under the {name[0]} key of {other}")
            self.holders[name] = task.id

    def on_task_revived(self, task: ModelTask, record: Record) -> None:
        for name in self._names(task):
            if self.held(name, self.model.steady) is None:
                self.holders[name] = task.id

    def forget_lapsed(self, subject: str) -> None:
        """Let go of the keys of one that lives again, which it held no longer."""
        for name in [name for name, holder in self.holders.items() if holder == subject]:
            if self.held(name, self.model.steady) is None:
                del self.holders[name]

    def on_batch_submitted(self, record: Record) -> None:
        event: Any = record.event
        if event.idempotency is not None:
            name = ("idempotency", record.by, event.idempotency)
            other = self.held(name, self.model.steady)
            if other is not None:
                self.violated(f"{event.batch} was made under the idempotency key of {other}")
            self.holders[name] = event.batch

    def on_task_cancelled(self, task: ModelTask, record: Record) -> None:
        event: Any = record.event
        if event.code == "replaced":
            self.model.seen["replaced"] += 1
            self.model.then.append(("task_submitted", None))
            if task.id not in [self.holders.get(name) for name in self._names(task)]:
                self.violated(f"{task.id} was replaced, but holds no key")

    @staticmethod
    def _names(task: ModelTask) -> list[tuple[str, str, str]]:
        kinds = ("idempotency", "dedup")
        given = ((kind, task.by, getattr(task.event, kind)) for kind in kinds)
        return [name for name in given if name[2] is not None]


class Callbacks(Rule):
    """Callbacks: one owed for each end, told until it is delivered or given up."""

    def __init__(self, model: Model) -> None:
        """Start with none owed."""
        super().__init__(model)
        self.owed: dict[str, list[Any]] = {}
        self.ends: dict[str, int] = {}
        self.closed: dict[str, str] = {}
        self.due: dict[str, int] = {}

    def on_end(self, task: ModelTask, record: Record) -> None:
        if task.event.callback:
            self.owe(task.id, record)

    def on_batch_finished(self, record: Record) -> None:
        event: Any = record.event
        if self.model.batches.known[event.batch].callback:
            self.owe(event.batch, record)

    def on_task_revived(self, task: ModelTask, record: Record) -> None:
        self.owed.pop(task.id, None)
        self.owed.pop(task.event.batch, None)
        if not task.event.uncounted:
            self.owed.pop(task.event.workflow, None)

    def owe(self, subject: str, record: Record) -> None:
        self.ends[subject] = record.seq
        self.due.pop(subject, None)
        self.owed[subject] = [f"dlv_{record.seq}_{subject}", 0]

    def _reported(self, record: Record) -> None:
        event: Any = record.event
        owed = self.owed.get(event.task)
        if owed is None:
            self.violated(f"a callback was reported for {event.task}, which owes none")
            return
        owed[1] += 1
        if [event.delivery, event.number] != owed:
            self.violated(f"delivery {owed} of {event.task} is told as {event}")

    def on_delivery_failed(self, record: Record) -> None:
        self._reported(record)
        self.due[record.event.task] = record.event.next_at - self.model.shift  # type: ignore[union-attr]

    def early_us(self, subject: str, now: int) -> int:
        """Say how long before it is due a callback is sent (a restarted actor sends all anew)."""
        if self.model.seen["actor_failed"]:
            return 0
        return self.due.get(subject, 0) - (now - self.model.shift)

    def on_delivery_succeeded(self, record: Record) -> None:
        self._close(record, "delivered")

    def on_delivery_abandoned(self, record: Record) -> None:
        self._close(record, "abandoned")

    def _close(self, record: Record, how: str) -> None:
        self._reported(record)
        subject = record.event.task  # type: ignore[union-attr]
        self.owed.pop(subject, None)
        self.closed[subject] = how

    def settled(self) -> None:
        for subject in self.owed:
            self.violated(f"the callback of {subject} was neither delivered nor given up")


class Notes(Rule):
    """Log lines and progress: bounded, and an executor's only while its attempt is valid."""

    def on_task_logged(self, task: ModelTask, record: Record) -> None:
        event: Any = record.event
        self._told(task, record)
        task.lines += len(event.lines)
        if not event.lines or max(map(len, event.lines)) > LINE_CHARS_MAX:
            self.violated(f"a log line of {task.id} is too long, or none")
        if task.lines > LINES_MAX:
            self.violated(f"{task.id} keeps {task.lines} log lines")

    def on_task_progressed(self, task: ModelTask, record: Record) -> None:
        self._told(task, record)
        task.reports += 1
        if task.reports > REPORTS_MAX:
            self.violated(f"{task.id} keeps {task.reports} reports of progress")

    def _told(self, task: ModelTask, record: Record) -> None:
        if record.event.attempt != task.attempt:  # type: ignore[union-attr]
            self.violated(f"a note of attempt {task.attempt} of {task.id} is told as another's")
        if record.cause and (record.cause != task.token or task.state not in FLYING):
            self.violated(f"an attempt of {task.id} that is over had its say")
        if not record.cause and task.state in FINAL:
            self.violated(f"a note was taken for {task.id}, which is {task.state}")


RULES = (Edges, Clocks, Attempts, Batches, Keys, Callbacks, Notes)

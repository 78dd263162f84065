"""Bugs planted in the task model, one at a time, each of which the simulator must find.

Dependencies, retries, clocks, keys, batches, pauses, pre-emption, revivals and notes: each function
breaks one of their promises, in the way a hurried change could.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

from support.planted import Plant, finds

from rota.actors import (
    admission,
    agent_queue,
    dependents,
    dispatcher,
    revival,
    system,
    worker_pool,
)
from rota.actors.admission import AdmissionActor
from rota.actors.consequences import Consequences
from rota.actors.dispatcher import DispatcherActor
from rota.actors.journal import Journal
from rota.actors.moments import Moments
from rota.actors.recovery import rebuild_whole
from rota.actors.runtime import body_of
from rota.actors.system import Shard
from rota.actors.timer import TimerActor
from rota.actors.worker_pool import WorkerPool
from rota.domain import admission as decide
from rota.domain import attempts, dependencies, retry
from rota.domain import events as e
from rota.domain.attempts import (
    decide_freeing,
    decide_preemption,
    decide_queue_timeout,
    decide_release,
    decide_timeout,
)
from rota.domain.caps import Caps
from rota.domain.dependencies import decide_dependencies
from rota.domain.dispatch import Turns
from rota.domain.fold import FOLDS
from rota.domain.gates import Gate
from rota.domain.notes import decide_notes
from rota.domain.retry import RetryPolicy, decide_failure
from rota.domain.standing import Line
from rota.domain.task import READY, SCHEDULED, SUCCEEDED
from rota.projections.backlog import Backlog
from rota.projections.batches import Batches
from rota.projections.graph import Graph
from rota.projections.keys import Keys
from rota.projections.slots import Slots

if TYPE_CHECKING:
    import pytest

LONG_US = 1_000_000_000


def nothing(*_args: Any, **_more: Any) -> None:
    """Do nothing, instead of what should be done."""


# -- dependencies ------------------------------------------------------------------------------


def one_parent_is_enough(patch: pytest.MonkeyPatch) -> None:
    ended = Graph.on_ended

    def hasty(self: Graph, record: e.Record, task: Any) -> None:
        if task.state is SUCCEEDED:
            for child in self.children.get(task.id, {}).values():
                child.waits = {task.id}
        ended(self, record, task)

    patch.setattr(Graph, "on_ended", hasty)


def nobody_is_doomed_by_a_parent_that_fails(patch: pytest.MonkeyPatch) -> None:
    ended = Graph.on_ended

    def kind(self: Graph, record: e.Record, task: Any) -> None:
        if task.state is SUCCEEDED:
            ended(self, record, task)

    patch.setattr(Graph, "on_ended", kind)


def nobody_is_doomed_by_a_parent_that_has_failed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(admission, "decide_doom", lambda *_: ())


def what_is_due_is_lost_at_a_start(patch: pytest.MonkeyPatch) -> None:
    go_on = Shard._go_on

    def forgetful(self: Shard, **more: Any) -> None:
        go_on(self, **more)
        body_of(self.dependents).actor_inbox.queue.clear()

    patch.setattr(Shard, "_go_on", forgetful)


def a_snapshot_forgets_what_is_due(patch: pytest.MonkeyPatch) -> None:
    load = Graph.load
    patch.setattr(Graph, "load", lambda self, _due: load(self, {}))


def a_cycle_is_accepted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(admission, "check_cycles", nothing)
    patch.setattr(decide, "check_cycles", nothing)


def a_missing_parent_is_waited_for_in_any_case(patch: pytest.MonkeyPatch) -> None:
    def patient(depends: Any, _on_missing: str, *more: Any) -> Any:
        return decide_dependencies(depends, "wait", *more)

    patch.setattr(admission, "decide_dependencies", patient)


def parents_leave_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        worker_pool, "filled_in", lambda _archive, task, _parents: (task.params or {}, [])
    )


def a_delay_ends_with_the_dependencies(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(dependents, "decide_release", lambda task, _now: decide_release(task, 1 << 62))
    patch.setattr(dependencies, "decide_freeing", lambda task, _now: decide_freeing(task, 1 << 62))


# -- retries -----------------------------------------------------------------------------------


def a_backoff_is_too_short(patch: pytest.MonkeyPatch) -> None:
    delay_us = RetryPolicy.delay_us
    patch.setattr(RetryPolicy, "delay_us", lambda *args: delay_us(*args) * 9 // 10)


def jitter_goes_beyond_the_cap(patch: pytest.MonkeyPatch) -> None:
    delay_us = RetryPolicy.delay_us

    def long(self: RetryPolicy, nth: int, draw: float) -> int:
        return delay_us(self, nth, 0) + round(draw * self.jitter_ms * 1000)

    patch.setattr(RetryPolicy, "delay_us", long)


def the_curves_start_at_zero(patch: pytest.MonkeyPatch) -> None:
    delay_us = RetryPolicy.delay_us
    patch.setattr(RetryPolicy, "delay_us", lambda self, nth, draw: delay_us(self, nth - 1, draw))


def there_is_one_attempt_too_many(patch: pytest.MonkeyPatch) -> None:
    def generous(**given: Any) -> RetryPolicy:
        return RetryPolicy(**{**given, "max_attempts": given.get("max_attempts", 1) + 1})

    patch.setattr(retry, "RetryPolicy", generous)


def everything_is_tried_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RetryPolicy, "covers", lambda _self, _outcome: True)


def a_receivers_wish_to_be_left_alone_is_ignored(patch: pytest.MonkeyPatch) -> None:
    def deaf(task: Any, outcome: Any, *more: Any) -> e.Event:
        return decide_failure(task, outcome._replace(retry_after_s=None), *more)

    patch.setattr(attempts, "decide_failure", deaf)


def a_new_life_counts_the_old_attempts(patch: pytest.MonkeyPatch) -> None:
    revived = FOLDS[e.TaskRevived]

    def tired(record: e.Record, task: Any) -> None:
        spent = task.spent_before
        revived(record, task)
        task.spent_before = spent

    patch.setitem(FOLDS, e.TaskRevived, tired)


# -- clocks ------------------------------------------------------------------------------------


def a_backoff_is_cut_short(patch: pytest.MonkeyPatch) -> None:
    def hasty(task: Any, now: int) -> e.Event | None:
        return decide_release(task, now + LONG_US)

    scheduled = Consequences._scheduled

    def at_once(self: Consequences, record: e.Record) -> None:
        task = self._of(record)
        if task is not None:
            due, task.next_at = task.next_at, record.at
            scheduled(self, record)
            task.next_at = due

    patch.setattr(agent_queue, "decide_release", hasty)
    patch.setattr(Consequences, "_scheduled", at_once)


def a_queue_timeout_goes_on_from_an_earlier_wait(patch: pytest.MonkeyPatch) -> None:
    def hasty(task: Any, _entry: int, now: int) -> e.Event | None:
        return decide_queue_timeout(task, task.entry if task else 0, now + LONG_US)

    patch.setattr(agent_queue, "decide_queue_timeout", hasty)


def a_timeout_hits_the_next_attempt(patch: pytest.MonkeyPatch) -> None:
    def hasty(task: Any, _token: int, now: int, draw: float) -> e.Event | None:
        return decide_timeout(task, task.token if task else 0, now + LONG_US, draw)

    patch.setattr(worker_pool, "decide_timeout", hasty)


def the_timer_is_early(patch: pytest.MonkeyPatch) -> None:
    tick = TimerActor.tick

    def hasty(self: TimerActor) -> None:
        self._heap = [(at - 10_000, count, message) for at, count, message in self._heap]
        tick(self)

    patch.setattr(TimerActor, "tick", hasty)


def a_start_does_not_arm_what_is_scheduled(patch: pytest.MonkeyPatch) -> None:
    moments = Moments.of
    patch.setattr(
        Moments,
        "of",
        lambda self, task: moments(self, task) if task.state is not SCHEDULED else iter(()),
    )


def a_start_does_not_arm_queue_timeouts(patch: pytest.MonkeyPatch) -> None:
    moments = Moments.of
    patch.setattr(
        Moments,
        "of",
        lambda self, task: moments(self, task) if task.state is not READY else iter(()),
    )


# -- limits, pauses, order ---------------------------------------------------------------------


def _without_cap(patch: pytest.MonkeyPatch, kind: str) -> None:
    has_room = Caps.has_room
    patch.setattr(
        Caps, "has_room", lambda self, limit: limit.startswith(kind) or has_room(self, limit)
    )


def a_key_has_no_cap(patch: pytest.MonkeyPatch) -> None:
    _without_cap(patch, "key:")


def a_batch_has_no_cap(patch: pytest.MonkeyPatch) -> None:
    _without_cap(patch, "batch:")


def a_freed_key_lets_nobody_in(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Gate, "_hear", nothing)


def who_stands_better_is_not_heard_of(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Line, "_hear", nothing)


def a_paused_type_is_served(patch: pytest.MonkeyPatch) -> None:
    init = Turns.__init__
    patch.setattr(Turns, "__init__", lambda self, *args: init(self, *args[:4]))


def a_type_that_is_resumed_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DispatcherActor, "reset", nothing)


def a_paused_scheduler_goes_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DispatcherActor, "_may_dispatch", lambda self: not self._draining)


def nobody_ages(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Backlog, "rank_of", lambda _self, task: task.priority)


def who_waits_already_does_not_age(patch: pytest.MonkeyPatch) -> None:
    def age_by(self: Backlog, aging_ms: int) -> None:
        self._aging_us = aging_ms * 1000

    patch.setattr(Backlog, "age_by", age_by)


# -- keys --------------------------------------------------------------------------------------


def idempotency_is_forgotten_at_a_start(patch: pytest.MonkeyPatch) -> None:
    def forgetful(*args: Any, **more: Any) -> Any:
        state, head = rebuild_whole(*args, **more)
        state.keys.held.clear()
        return state, head

    patch.setattr(system, "rebuild_whole", forgetful)


def a_snapshot_forgets_the_keys(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Keys, "load", nothing)


def a_key_is_free_when_its_task_ends(patch: pytest.MonkeyPatch) -> None:
    find = Keys.find

    def brief(self: Keys, name: Any, now: int) -> Any:
        held = find(self, name, now)
        return held if held is not None and not held.ends else None

    patch.setattr(Keys, "find", brief)


def another_request_passes_for_the_same(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(decide, "check_same", nothing)


def a_task_is_replaced_and_goes_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AdmissionActor, "_replaced", nothing)


def a_new_life_has_no_keys(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Keys, "on_revived", nothing)


# -- batches -----------------------------------------------------------------------------------


def a_batch_is_finished_at_every_start(patch: pytest.MonkeyPatch) -> None:
    def finish(self: AdmissionActor, batch_id: str) -> None:
        batch = self._journal.state.batches.get(batch_id)
        if batch is not None and not batch.left:
            self._journal.record(e.BatchFinished(batch_id, *batch.fates.values()))

    patch.setattr(AdmissionActor, "_finish", finish)
    patch.setattr(
        Batches, "unfinished", lambda self: [b.id for b in self.by_id.values() if not b.left]
    )


def a_batch_is_not_finished_after_a_start(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Batches, "unfinished", lambda _self: [])


def a_new_life_is_counted_as_dead(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Batches, "on_task_revived", nothing)


def a_batch_is_written_in_two_goes(patch: pytest.MonkeyPatch) -> None:
    record = Journal.record

    def twice(self: Journal, *events: e.Event, **more: Any) -> e.Record:
        if type(events[0]) is e.BatchSubmitted:
            record(self, *events[:2], **more)
            self.flush()
            events = events[2:] or (e.AgentResumed("nobody"),)
        return record(self, *events, **more)

    patch.setattr(Journal, "record", twice)


def a_batch_needs_no_room(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(decide, "why_full", nothing)


# -- pre-emption -------------------------------------------------------------------------------


def _dressed(task: Any, **changes: Any) -> Any:
    other = copy(task)
    for name, value in changes.items():
        setattr(other, name, value)
    return other


def equals_pre_empt_each_other(patch: pytest.MonkeyPatch) -> None:
    def rude(task: Any, held_by: Any, running: Any) -> Any:
        return decide_preemption(_dressed(task, priority=-1), held_by, running)

    patch.setattr(dispatcher, "decide_preemption", rude)


def other_agents_are_pre_empted(patch: pytest.MonkeyPatch) -> None:
    def everybody(self: Slots, _agent: str) -> list[Any]:
        return [task for held in self._agents.values() for task in held.values()]

    patch.setattr(Slots, "held_by", everybody)


def what_must_not_run_twice_is_pre_empted(patch: pytest.MonkeyPatch) -> None:
    def rude(task: Any, held_by: Any, running: Any) -> Any:
        running = [_dressed(other, on_interrupt=None) for other in running]
        return decide_preemption(task, held_by, running)

    patch.setattr(dispatcher, "decide_preemption", rude)


def a_victim_is_charged_an_attempt(patch: pytest.MonkeyPatch) -> None:
    interrupted = FOLDS[e.AttemptInterrupted]

    def stingy(record: e.Record, task: Any) -> None:
        interrupted(record, task)
        task.attempt += record.event.reason == "preempted"  # type: ignore[union-attr]

    patch.setitem(FOLDS, e.AttemptInterrupted, stingy)


# -- lives and notes ---------------------------------------------------------------------------


def a_cancelled_task_is_revived(patch: pytest.MonkeyPatch) -> None:
    def revive(task: Any, *_more: Any) -> e.TaskRevived:
        return e.TaskRevived(task.id, task.agent)

    patch.setattr(revival, "decide_revival", revive)


def a_new_life_needs_no_room(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(revival, "why_full", nothing)


def a_log_has_no_end(patch: pytest.MonkeyPatch) -> None:
    def endless(task: Any, *args: Any, **more: Any) -> Any:
        return decide_notes(_dressed(task, notes=None), *args, **more)

    patch.setattr(worker_pool, "decide_notes", endless)


def an_attempt_that_is_over_has_its_say(patch: pytest.MonkeyPatch) -> None:
    def note(self: WorkerPool, message: Any) -> None:
        task = self._journal.state.tasks.get(message.task)
        if task is not None:
            for event in decide_notes(task, (message.note.line or "-",), "info", None):
                self._journal.record(event, cause=message.token)

    patch.setattr(WorkerPool, "_note", note)


BUGS: list[Plant] = [
    one_parent_is_enough,
    nobody_is_doomed_by_a_parent_that_fails,
    nobody_is_doomed_by_a_parent_that_has_failed,
    what_is_due_is_lost_at_a_start,
    a_snapshot_forgets_what_is_due,
    a_cycle_is_accepted,
    a_missing_parent_is_waited_for_in_any_case,
    parents_leave_nothing,
    a_delay_ends_with_the_dependencies,
    a_backoff_is_too_short,
    jitter_goes_beyond_the_cap,
    the_curves_start_at_zero,
    there_is_one_attempt_too_many,
    everything_is_tried_again,
    a_receivers_wish_to_be_left_alone_is_ignored,
    a_new_life_counts_the_old_attempts,
    a_backoff_is_cut_short,
    a_queue_timeout_goes_on_from_an_earlier_wait,
    a_timeout_hits_the_next_attempt,
    the_timer_is_early,
    a_start_does_not_arm_what_is_scheduled,
    a_start_does_not_arm_queue_timeouts,
    a_key_has_no_cap,
    a_batch_has_no_cap,
    a_freed_key_lets_nobody_in,
    who_stands_better_is_not_heard_of,
    a_paused_type_is_served,
    a_type_that_is_resumed_is_not_looked_at,
    a_paused_scheduler_goes_on,
    nobody_ages,
    who_waits_already_does_not_age,
    idempotency_is_forgotten_at_a_start,
    a_snapshot_forgets_the_keys,
    a_key_is_free_when_its_task_ends,
    another_request_passes_for_the_same,
    a_task_is_replaced_and_goes_on,
    a_new_life_has_no_keys,
    a_batch_is_finished_at_every_start,
    a_batch_is_not_finished_after_a_start,
    a_new_life_is_counted_as_dead,
    a_batch_is_written_in_two_goes,
    a_batch_needs_no_room,
    equals_pre_empt_each_other,
    other_agents_are_pre_empted,
    what_must_not_run_twice_is_pre_empted,
    a_victim_is_charged_an_attempt,
    a_cancelled_task_is_revived,
    a_new_life_needs_no_room,
    a_log_has_no_end,
    an_attempt_that_is_over_has_its_say,
]

test_the_simulator_finds_the_bug = finds(BUGS)

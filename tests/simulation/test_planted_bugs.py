"""The simulator's own test: bugs planted one at a time, each of which it must find.

A simulator that finds nothing may be blind. Each function here breaks one promise of the
production code in the way a hurried change could; the seeds must show it.
"""

from __future__ import annotations

from heapq import heappush
from typing import TYPE_CHECKING, Any

from support.planted import Plant, finds

from rota.actors import admission, agent_queue, settling, system
from rota.actors.consequences import Consequences
from rota.actors.dispatcher import DispatcherActor
from rota.actors.journal import Journal
from rota.actors.snapshotter import Snapshotter
from rota.actors.timer import TimerActor
from rota.domain import dispatch, project, receivers
from rota.domain import events as e
from rota.domain.admission import decide_submission
from rota.domain.attempts import decide_cancel, decide_expiry, decide_result
from rota.domain.caps import Caps
from rota.domain.ordering import LaneOrder
from rota.domain.task import TERMINAL
from rota.eventlog.committer import Committed, Committer
from rota.projections.backlog import Backlog
from rota.projections.deliveries import Deliveries
from rota.projections.slots import Slots
from rota.projections.tasks import Tasks

if TYPE_CHECKING:
    import pytest


def effects_run_before_commit(patch: pytest.MonkeyPatch) -> None:
    record = Journal.record

    def hasty(self: Journal, *events: e.Event, **more: Any) -> e.Record:
        made = record(self, *events, **more)
        while self._effects:
            _, effect, value = self._effects.popleft()
            effect(value)
        return made

    patch.setattr(Journal, "record", hasty)


def answers_go_out_before_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "answer", lambda _self, reply, value: reply.ok(value))


def a_failed_commit_is_reported_as_done(patch: pytest.MonkeyPatch) -> None:
    def optimistic(self: Committer) -> None:
        records = self._drain()
        if not records or self._failed:
            return
        try:
            self._log.append(records, records[0].seq - 1, self._epoch)
        except Exception:  # noqa: BLE001 - that is the bug
            self._failed = True
        self._report(Committed(records[-1].seq, len(records)))

    patch.setattr(Committer, "_commit", optimistic)


def a_slot_is_freed_twice(patch: pytest.MonkeyPatch) -> None:
    freed = Slots.on_freed

    def twice(self: Slots, record: e.Record, *more: Any) -> None:
        freed(self, record, *more)
        if self.total and type(record.event) is e.TaskCancelled:
            self.total -= 1

    patch.setattr(Slots, "on_freed", twice)


def a_result_beats_a_cancel(patch: pytest.MonkeyPatch) -> None:
    def lenient(task: Any, attempt: int, token: int, outcome: Any, *more: Any) -> e.Event:
        if task.token == token and task.state == "cancelled" and outcome.ok:
            return e.TaskSucceeded(task.id, task.agent, attempt, outcome.result)
        return decide_result(task, attempt, token, outcome, *more)

    patch.setattr(settling, "decide_result", lenient)


def what_has_ended_is_cancelled_once_more(patch: pytest.MonkeyPatch) -> None:
    def lenient(task: Any, reason: str, *more: Any) -> e.Event:
        if task.state in TERMINAL:
            return e.TaskCancelled(task.id, task.agent, task.state.value, reason)
        return decide_cancel(task, reason, *more)

    patch.setattr(agent_queue, "decide_cancel", lenient)


def a_stale_result_is_accepted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        settling,
        "decide_result",
        lambda task, attempt, _token, outcome, *_more: (
            e.TaskSucceeded(task.id, task.agent, attempt)
            if outcome.ok
            else e.TaskFailed(task.id, task.agent, attempt, "", "")
        ),
    )


def the_last_comes_first(patch: pytest.MonkeyPatch) -> None:
    def push(self: LaneOrder, task: Any) -> None:
        heappush(self._heap, (task.rank, -task.created_seq, task.entry, task))
        self.live += 1

    patch.setattr(LaneOrder, "push", push)


def admission_is_off_by_one(patch: pytest.MonkeyPatch) -> None:
    def generous(waiting: Any, limits: Any, *args: Any, **more: Any) -> e.Event:
        limits = limits._replace(queued_per_agent=limits.queued_per_agent + 1)
        return decide_submission(waiting, limits, *args, **more)

    patch.setattr(admission, "decide_submission", generous)


def a_snapshot_misses_what_changes_under_it(patch: pytest.MonkeyPatch) -> None:
    init = Snapshotter.__init__

    def careless(self: Snapshotter, state: Any, digest: bytes) -> None:
        init(self, state, digest)
        state.tasks.before_change = None

    patch.setattr(Snapshotter, "__init__", careless)


def a_snapshot_forgets_what_is_owed(patch: pytest.MonkeyPatch) -> None:
    load = Deliveries.load
    none: dict[str, list[Any]] = {"pending": [], "callbacks": []}
    patch.setattr(Deliveries, "load", lambda self, data: load(self, {**data, **none}))


def the_timer_never_fires(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TimerActor, "_rearm", lambda _self: None)


def the_timer_misses_an_earlier_moment(patch: pytest.MonkeyPatch) -> None:
    def rearm(self: TimerActor) -> None:
        if self._heap and self._next is None:
            self._next = self._heap[-1][0]
            self._call_at(self._next, self._wake)

    patch.setattr(TimerActor, "_rearm", rearm)


def the_journal_forgets_to_hand_over(patch: pytest.MonkeyPatch) -> None:
    flush = Journal.flush

    def lazy(self: Journal) -> None:
        if len(self._unsent) != 1:
            flush(self)

    patch.setattr(Journal, "flush", lazy)


def what_was_in_flight_is_not_put_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(system, "IN_FLIGHT", frozenset())


def interruptions_have_no_consequence(patch: pytest.MonkeyPatch) -> None:
    def patient(task: Any, reason: str) -> tuple[e.Event, ...]:
        return (e.AttemptInterrupted(task.id, task.agent, task.attempt, reason),)

    patch.setattr(project, "decide_interruption", patient)


def a_paused_agent_is_served(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Caps,
        "holds_agent",
        lambda self, agent: self._slots.of_agent(agent) >= self._limits.inflight_per_agent,
    )


def an_agent_may_exceed_its_cap(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Caps, "holds_agent", lambda self, agent: agent in self._paused)


def a_type_has_no_cap(patch: pytest.MonkeyPatch) -> None:
    has_room = Caps.has_room
    patch.setattr(
        Caps,
        "has_room",
        lambda self, limit: limit.startswith("type:") or has_room(self, limit),
    )


def a_freed_slot_is_not_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Consequences, "_slot_freed", lambda _self, _record: None)


def an_agents_turn_is_never_renewed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Backlog, "on_assigned", Backlog.on_left)


def a_delivery_is_never_closed(patch: pytest.MonkeyPatch) -> None:
    def keep(self: Deliveries, *_args: Any) -> None:
        self.delivered += 1

    patch.setattr(Deliveries, "on_succeeded", keep)


def a_failed_try_is_not_repeated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Consequences, "_deliver_later", lambda _self, _record: None)


def retention_goes_by_something_else_than_the_record(patch: pytest.MonkeyPatch) -> None:
    forget, calls = Tasks.forget, [0]

    def moody(self: Tasks, now: int) -> None:
        calls[0] += 1
        if calls[0] % 7:
            forget(self, now)

    patch.setattr(Tasks, "forget", moody)


def a_deadline_passes_unseen_while_running(patch: pytest.MonkeyPatch) -> None:
    def blind(task: Any, now: int) -> e.Event | None:
        event = decide_expiry(task, now)
        return event if type(event) is e.TaskExpired else None

    patch.setattr(agent_queue, "decide_expiry", blind)


def the_dispatcher_goes_on_while_stopping(patch: pytest.MonkeyPatch) -> None:
    receive = DispatcherActor.on_receive

    def deaf(self: DispatcherActor, message: Any) -> None:
        if type(message).__name__ != "Drain":
            receive(self, message)

    patch.setattr(DispatcherActor, "on_receive", deaf)


def callbacks_flood_a_host(patch: pytest.MonkeyPatch) -> None:
    made = receivers.Receivers.__init__

    def generous(self: Any, *, per_host_max: int, parallel_max: int) -> None:
        made(self, per_host_max=per_host_max + 1, parallel_max=parallel_max)

    patch.setattr(receivers.Receivers, "__init__", generous)


def another_strategy_is_not_heeded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(dispatch, "BY_PRIORITY", "fair-fifo")


BUGS: list[Plant] = [
    effects_run_before_commit,
    answers_go_out_before_commit,
    a_failed_commit_is_reported_as_done,
    a_slot_is_freed_twice,
    a_result_beats_a_cancel,
    what_has_ended_is_cancelled_once_more,
    a_stale_result_is_accepted,
    the_last_comes_first,
    admission_is_off_by_one,
    a_snapshot_misses_what_changes_under_it,
    a_snapshot_forgets_what_is_owed,
    the_timer_never_fires,
    the_timer_misses_an_earlier_moment,
    the_journal_forgets_to_hand_over,
    what_was_in_flight_is_not_put_back,
    interruptions_have_no_consequence,
    a_paused_agent_is_served,
    an_agent_may_exceed_its_cap,
    a_type_has_no_cap,
    a_freed_slot_is_not_told,
    an_agents_turn_is_never_renewed,
    another_strategy_is_not_heeded,
    a_delivery_is_never_closed,
    a_failed_try_is_not_repeated,
    retention_goes_by_something_else_than_the_record,
    a_deadline_passes_unseen_while_running,
    the_dispatcher_goes_on_while_stopping,
    callbacks_flood_a_host,
]

test_the_simulator_finds_the_bug = finds(BUGS)

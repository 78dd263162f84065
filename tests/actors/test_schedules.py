"""Schedules run by the real actors: what becomes of moments, over clock changes and downtime."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from actors.bench import BAD, Bench
from pykka import ActorRegistry

from rota import calendars
from rota.actors import messages as m
from rota.actors import schedule_messages as sm
from rota.clock import ManualClock, parse_rfc3339, rfc3339
from rota.domain import events as e
from rota.domain import firings
from rota.domain import schedule as domain
from rota.domain.commands import Limits
from rota.domain.intake import Rules, TypeRules
from rota.domain.schedule import Definition
from rota.errors import Conflict, InvalidRequest, NotFound, QueueFull

if TYPE_CHECKING:
    from collections.abc import Iterator

DAY_S = 86_400
OPEN: list[Bench] = []
TASK = {"task": {"agent": "ann", "action": "work"}}
FLOW = {
    "workflow": {
        "tasks": [
            {"agent": "ann", "action": "work", "ref": "a"},
            {"agent": "ann", "action": "work", "depends": ["ref:a"]},
        ],
        "flow": {"name": "both"},
    }
}


def us(year: int, month: int, day: int, hour: int = 0, minute: int = 0) -> int:
    return round(datetime(year, month, day, hour, minute, tzinfo=UTC).timestamp() * 1e6)


class Calendar(Bench):
    """A bench that begins at a moment of the calendar."""

    def __init__(self, begin: str = "2026-03-02T11:59:30Z", **options: Any) -> None:
        super().__init__(clock=ManualClock(parse_rfc3339(begin)), **options)
        OPEN.append(self)

    def create(self, cron: str = "* * * * *", name: str = "n", **fields: Any) -> bool:
        paused = fields.pop("paused", False)
        wanted = Definition(cron, **{"timezone": "UTC", "target": TASK, **fields})
        known: bool = self.ask(
            self.shard.schedules, lambda reply: sm.CreateSchedule(name, wanted, paused, "me", reply)
        )
        return known

    def change(self, name: str = "n", **changes: Any) -> None:
        self.ask(self.shard.schedules, lambda r: sm.ChangeSchedule(name, changes, "me", r))

    def steer(self, how: str, name: str = "n") -> None:
        self.ask(self.shard.schedules, lambda r: sm.SteerSchedule(name, how, "", "me", r))

    def fire(self, name: str = "n") -> e.ScheduleFired:
        fired: e.ScheduleFired = self.ask(
            self.shard.schedules, lambda r: sm.RunSchedule(name, "me", r)
        )
        return fired

    @property
    def schedule(self) -> domain.Schedule:
        return self.shard.state.schedules.by_name["n"]

    def facts(self, kind: type[Any] = e.ScheduleFired) -> list[Any]:
        return [each.event for each in self.records() if type(each.event) is kind]

    def moments(self, *outcomes: str) -> list[str]:
        """Give the moments that became something, as the clock in UTC shows them."""
        wanted = outcomes or ("started",)
        return [rfc3339(each.moment) for each in self.facts() if each.outcome in wanted]

    def made(self) -> list[str]:
        return [each.task for each in self.facts(e.TaskSubmitted)]

    def end_all(self) -> None:
        """Give every task that waits to nobody, and cancel it."""
        for task in list(self.shard.state.tasks):
            if not task.finished_at:
                self.cancel(task.id)


@pytest.fixture(autouse=True)
def no_actors_left() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()
    assert not ActorRegistry.get_all()


@pytest.fixture
def rota() -> Calendar:
    return Calendar()


# -- firing --------------------------------------------------------------------------------------


def test_a_moment_makes_a_task_in_the_same_commit(rota: Calendar) -> None:
    task = {"task": {"agent": "ann", "action": "work", "params": {"at": "{{schedule.moment}}"}}}
    assert rota.create(target=task) is False
    rota.wait(31)
    [fired] = rota.facts()
    assert (rfc3339(fired.moment), fired.outcome) == ("2026-03-02T12:00:00Z", "started")
    [made] = rota.made()
    assert fired.subject == made
    assert rota.task(made).params == {"at": "2026-03-02T12:00:00Z"}
    assert rota.view(made)["schedule"] == "n"
    records = rota.records()
    [at] = [n for n, record in enumerate(records) if record.event == fired]
    assert type(records[at + 1].event) is e.TaskSubmitted
    assert {record.by for record in records[at : at + 2]} == {"me"}
    rota.check_replay()


def test_every_moment_fires_once_and_the_next_is_known(rota: Calendar) -> None:
    rota.create("*/5 * * * *", overlap="queue")
    for _ in range(3):
        rota.wait(300)
        rota.end_all()
    assert rota.moments() == [f"2026-03-02T12:{n:02d}:00Z" for n in (0, 5, 10)]
    assert rfc3339(rota.schedule.next_at or 0) == "2026-03-02T12:15:00Z"
    rota.check_replay()


def test_a_workflow_is_made_whole(rota: Calendar) -> None:
    rota.create(target=FLOW)
    rota.wait(31)
    [fired] = rota.facts()
    flow = rota.shard.state.batches.flow(fired.subject)
    assert flow is not None
    assert (flow.name, len(flow.tasks)) == ("both", 2)
    second = rota.task(flow.tasks[1])
    assert second.state.value == "blocked"
    rota.check_replay()


def test_a_full_queue_refuses_no_firing() -> None:
    rota = Calendar(limits=Limits(queued=1, queued_per_agent=1))
    rota.submit("work", delay_s=3600)
    rota.create()
    rota.wait(31)
    assert len(rota.made()) == 2


def test_what_cannot_be_submitted_is_skipped_with_the_reason(rota: Calendar) -> None:
    task = {"task": {"agent": "ann", "action": "work", "timeout_ms": 5000}}
    rota.create(target=task)
    rules = Rules({"work": TypeRules(timeout_ms_max=10)})
    limits = rota.limits
    admission = rota.shard.admission
    rota.ask(admission, lambda reply: m.ChangeLimits(limits, "test", "me", reply, rules))
    rota.wait(31)
    [fired] = rota.facts()
    assert (fired.outcome, fired.subject) == ("skipped", None)
    assert "timeoutMs" in fired.reason
    assert rota.schedule.next_at is not None
    assert not rota.made()


def test_jitter_lets_it_fire_later_but_names_the_moment() -> None:
    rota = Calendar(draw=lambda: 0.5)
    rota.create(jitter_ms=20_000)
    rota.wait(35)
    assert not rota.facts()
    rota.wait(6)
    assert rota.moments() == ["2026-03-02T12:00:00Z"]


def test_jitter_that_is_longer_than_the_interval_loses_no_moment() -> None:
    rota = Calendar(draw=lambda: 0.99)
    rota.create(jitter_ms=180_000, overlap="cancel")
    rota.wait(600)
    seen = rota.moments()
    assert seen == [f"2026-03-02T12:{n:02d}:00Z" for n in range(len(seen))]
    assert len(seen) > 5
    assert not rota.facts(e.ScheduleMissed)


# -- overlap -------------------------------------------------------------------------------------


def test_skip_leaves_what_goes_on_alone(rota: Calendar) -> None:
    rota.create(overlap="skip")
    rota.wait(31)
    rota.wait(60)
    assert [each.outcome for each in rota.facts()] == ["started", "skipped"]
    assert rota.facts()[1].reason == f"{rota.made()[0]} has not ended"
    rota.end_all()
    rota.wait(60)
    assert [each.outcome for each in rota.facts()] == ["started", "skipped", "started"]


def test_queue_lets_moments_wait_and_fires_them_in_order(rota: Calendar) -> None:
    rota.create(overlap="queue")
    rota.wait(31)
    rota.wait(120)
    assert rota.moments("queued") == ["2026-03-02T12:01:00Z", "2026-03-02T12:02:00Z"]
    rota.crash()
    assert len(rota.schedule.waiting) == 2
    rota.end_all()
    assert rota.moments()[-1] == "2026-03-02T12:01:00Z"
    assert len(rota.made()) == 2
    rota.end_all()
    assert rota.moments() == [f"2026-03-02T12:{n:02d}:00Z" for n in range(3)]
    assert not rota.schedule.waiting
    rota.check_replay()


def test_so_many_moments_wait_and_no_more(rota: Calendar) -> None:
    rota.create(overlap="queue")
    rota.wait(31 + 60 * (firings.WAITING_MAX + 3))
    assert len(rota.schedule.waiting) == firings.WAITING_MAX
    assert rota.facts()[-1].reason == "100 moments are waiting already"
    rota.check_replay()


def test_cancel_takes_the_place_of_what_goes_on(rota: Calendar) -> None:
    rota.create(overlap="cancel")
    rota.wait(31)
    rota.wait(60)
    first, second = rota.made()
    assert rota.state(first) == "cancelled"
    assert rota.view(first)["error"]["code"] == "schedule_overlap"
    assert rota.state(second) == "ready"
    rota.check_replay()


def test_cancel_ends_a_workflow_and_starts_another(rota: Calendar) -> None:
    rota.create(overlap="cancel", target=FLOW)
    rota.wait(31)
    rota.wait(60)
    first, second = [each.subject for each in rota.facts()]
    flows = rota.shard.state.batches
    assert flows.flow(first).state == "cancelled"
    assert flows.flow(first).finished_at
    assert flows.flow(second).state == "running"
    rota.check_replay()


def test_moments_wait_for_a_whole_workflow(rota: Calendar) -> None:
    rota.create(overlap="queue", target=FLOW)
    rota.wait(91)
    assert len(rota.schedule.waiting) == 1
    rota.end_all()
    assert len(rota.moments()) == 2
    rota.check_replay()


def test_what_lives_again_is_overlapped_again() -> None:
    rota = Calendar()
    task = {"task": {"agent": "ann", "action": "work", "executor": "script"}}
    rota.create(target=task)
    rota.wait(31)
    [first] = rota.made()
    rota.end(first, BAD)
    rota.revive(first)
    rota.wait(60)
    assert rota.facts()[-1].outcome == "skipped"


# -- what people do ------------------------------------------------------------------------------


def test_the_same_again_is_known_and_another_is_refused(rota: Calendar) -> None:
    rota.create()
    assert rota.create() is True
    with pytest.raises(Conflict, match="another schedule 'n'"):
        rota.create("0 0 * * *")


def test_run_now_is_beside_the_calendar(rota: Calendar) -> None:
    rota.create("0 0 * * *")
    before = rota.schedule.next_at
    fired = rota.fire()
    assert (fired.outcome, fired.manual) == ("started", True)
    assert rota.schedule.next_at == before
    assert rota.fire().outcome == "skipped"
    rota.check_replay()


def test_paused_nothing_comes_and_what_passed_is_not_missed(rota: Calendar) -> None:
    rota.create(catch_up="all")
    rota.steer("pause")
    rota.wait(600)
    assert rota.fire().outcome == "started"
    rota.steer("resume")
    rota.wait(60)
    assert [each.manual for each in rota.facts()] == [True, None]
    assert not rota.facts(e.ScheduleMissed)


def test_one_that_is_made_paused_waits_to_be_resumed(rota: Calendar) -> None:
    rota.create(paused=True)
    rota.wait(600)
    assert not rota.facts()
    rota.steer("resume")
    rota.wait(61)
    assert len(rota.facts()) == 1


def test_what_waits_is_held_by_a_pause(rota: Calendar) -> None:
    rota.create(overlap="queue")
    rota.wait(91)
    rota.steer("pause")
    rota.end_all()
    assert len(rota.made()) == 1
    rota.steer("resume")
    rota.run()
    assert len(rota.made()) == 2


def test_a_change_goes_by_the_new_calendar(rota: Calendar) -> None:
    rota.create()
    rota.change(cron="30 15 * * *", timezone="Europe/Berlin", catch_up="last")
    assert rfc3339(rota.schedule.next_at or 0) == "2026-03-02T14:30:00Z"
    rota.wait(3 * 3600)
    assert rota.moments() == ["2026-03-02T14:30:00Z"]
    rota.check_replay()


def test_a_change_of_something_else_leaves_the_moment_alone() -> None:
    draws = iter((0.9, 0.1))
    rota = Calendar(draw=lambda: next(draws))
    rota.create(jitter_ms=60_000)
    due = rota.schedule.due_at
    rota.change(overlap="queue")
    assert rota.schedule.due_at == due
    count = len(rota.records())
    rota.change(overlap="queue")
    assert len(rota.records()) == count


def test_a_deleted_one_fires_no_more_and_what_it_made_goes_on(rota: Calendar) -> None:
    rota.create()
    rota.wait(31)
    rota.steer("delete")
    rota.wait(600)
    assert len(rota.made()) == 1
    assert rota.state(rota.made()[0]) == "ready"
    for ask in (rota.fire, lambda: rota.steer("pause"), lambda: rota.change(cron="@daily")):
        with pytest.raises(NotFound):
            ask()


def test_it_begins_at_its_start_and_is_over_after_its_end(rota: Calendar) -> None:
    rota.create(start_at=us(2026, 3, 2, 12, 10), end_at=us(2026, 3, 2, 12, 12), overlap="cancel")
    rota.wait(3600)
    assert rota.moments() == [f"2026-03-02T12:{n}:00Z" for n in (10, 11, 12)]
    assert rota.schedule.state == "over"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"end_at": us(2026, 3, 1)}, "is in the past"),
        ({"start_at": us(2026, 3, 9), "end_at": us(2026, 3, 8)}, "is not after startAt"),
        ({"cron": "0 0 1 1 *", "end_at": us(2026, 4, 1)}, "does not come between"),
        ({"start_at": us(2026, 3, 1)}, "leave it out"),
    ],
)
def test_what_never_fires_is_refused(rota: Calendar, fields: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        rota.create(**fields)
    rota.create(name="n")
    with pytest.raises(InvalidRequest, match=says):
        rota.change(**fields)


def test_there_is_room_for_so_many_and_for_so_many_bytes(
    rota: Calendar, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = rota.shard.state.schedules.room
    monkeypatch.setattr(room.count, "most", 4)
    rota.create(name="a")
    rota.create(name="b")
    with pytest.raises(QueueFull, match="delete some"):
        rota.create(name="c")
    rota.steer("delete", "a")
    rota.create(name="c")
    held = room.bytes.held
    monkeypatch.setattr(room.bytes, "most", 2 * held)
    large = {"task": {"agent": "ann", "action": "work", "params": {"p": "x" * 100}}}
    with pytest.raises(QueueFull, match="bytes"):
        rota.change("b", target=large)
    monkeypatch.setattr(room.bytes, "most", 2 * held + 400)
    rota.change("b", target=large)
    rota.change("b", target=TASK)
    assert room.bytes.held == held


# -- clock changes -------------------------------------------------------------------------------

CHANGES = [
    # spring: 02:30 is left out and fires as soon as it has passed; stars go by what passes
    ("Europe/Berlin", "2026-03-28T12:00:00Z", "30 2 * * *", ["29T01:00", "30T00:30", "31T00:30"]),
    ("Europe/Berlin", "2026-03-29T00:00:00Z", "0 */2 * * *", ["29T02:00", "29T04:00", "29T06:00"]),
    ("America/New_York", "2026-03-07T12:00:00Z", "30 2 * * *", ["08T07:00", "09T06:30"]),
    ("America/New_York", "2026-03-08T06:30:00Z", "0 * * * *", ["08T07:00", "08T08:00"]),
    ("Australia/Lord_Howe", "2026-10-03T13:00:00Z", "15 2 * * *", ["03T15:30", "04T15:15"]),
    ("Australia/Lord_Howe", "2026-10-03T15:00:00Z", "*/15 2 * * *", ["03T15:30", "03T15:45"]),
    # autumn: 02:30 comes once, the first time; stars come twice
    ("Europe/Berlin", "2026-10-24T12:00:00Z", "30 2 * * *", ["25T00:30", "26T01:30"]),
    ("Europe/Berlin", "2026-10-25T00:00:00Z", "*/30 2 * * *", ["25T00:30", "25T01:00", "25T01:30"]),
    ("America/New_York", "2026-10-31T12:00:00Z", "30 1 * * *", ["01T05:30", "02T06:30"]),
    (
        "America/New_York",
        "2026-11-01T05:15:00Z",
        "30 * * * *",
        ["01T05:30", "01T06:30", "01T07:30"],
    ),
    ("Australia/Lord_Howe", "2026-04-04T13:00:00Z", "45 1 * * *", ["04T14:45", "05T15:15"]),
    (
        "Australia/Lord_Howe",
        "2026-04-04T14:40:00Z",
        "*/15 1,2 * * *",
        ["04T14:45", "04T15:00", "04T15:15", "04T15:30", "04T15:45", "04T16:00", "04T16:15"],
    ),
]


@pytest.mark.parametrize(("zone", "begin", "cron", "moments"), CHANGES)
def test_across_a_change_of_the_clocks_one_task_for_each_moment(
    zone: str, begin: str, cron: str, moments: list[str]
) -> None:
    rota = Calendar(begin)
    rota.create(cron, timezone=zone, overlap="cancel")
    while len(rota.moments()) < len(moments):
        rota.wait(600)
        if len(rota.moments()) == 1:
            rota.crash()
    assert [each[8:16] for each in rota.moments()][: len(moments)] == moments
    assert len(rota.made()) == len(rota.moments())
    rota.check_replay()


def test_made_inside_the_repeated_hour_it_does_not_fire_for_what_has_passed() -> None:
    rota = Calendar("2026-10-25T01:10:00Z")  # the second 02:10 in Berlin
    rota.create("30 2 * * *", timezone="Europe/Berlin")
    assert rfc3339(rota.schedule.next_at or 0) == "2026-10-26T01:30:00Z"


def test_a_clock_that_is_set_back_fires_no_moment_twice(rota: Calendar) -> None:
    rota.create(overlap="cancel")
    rota.wait(31)
    rota.wait(60)
    rota.clock.step_us(-600_000_000)
    rota.shard.timekeeper.look()
    rota.wait(60)
    rota.crash()
    rota.wait(900)
    assert len(set(rota.moments())) == len(rota.moments())
    assert rota.moments()[2] == "2026-03-02T11:52:00Z"
    assert {"2026-03-02T12:00:00Z", "2026-03-02T12:02:00Z"} <= set(rota.moments())
    rota.check_replay()


def set_clock(rota: Calendar, by_s: int) -> None:
    rota.clock.step_us(by_s * 1_000_000)
    rota.shard.timekeeper.look()
    rota.run()


@pytest.mark.parametrize("catch_up", domain.CATCH_UPS)
def test_a_clock_that_is_ahead_for_two_seconds_fires_nothing_and_silences_nothing(
    catch_up: str,
) -> None:
    rota = Calendar()
    rota.wait(10)
    rota.create("0 * * * *", catch_up=catch_up, overlap="cancel")
    set_clock(rota, DAY_S)
    rota.wait(2)
    set_clock(rota, -DAY_S)
    rota.wait(10)
    assert rota.moments() == []
    rota.wait(3600)
    assert rota.moments() == ["2026-03-02T12:00:00Z"]


def test_a_clock_that_is_ahead_at_a_start_fires_nothing_until_it_is_believed() -> None:
    rota = Calendar()
    rota.create("0 * * * *", catch_up="all", overlap="cancel")
    rota.close()
    rota.clock.step_us(DAY_S * 1_000_000)
    rota.clock.begin_anew()
    rota.start()
    rota.wait(2)
    assert rota.moments() == []
    set_clock(rota, -DAY_S)
    rota.wait(3600)
    assert rota.moments() == ["2026-03-02T12:00:00Z"]


def test_moments_that_lie_ahead_again_fire_only_if_they_never_did() -> None:
    rota = Calendar()
    rota.wait(10)
    rota.create("0 * * * *", catch_up="last", overlap="cancel")
    set_clock(rota, 3 * 3600)
    rota.wait(3600)
    assert rota.moments() == ["2026-03-02T14:00:00Z", "2026-03-02T15:00:00Z"]
    set_clock(rota, -4 * 3600)
    rota.wait(6 * 3600)
    assert [each[11:13] for each in rota.moments()] == ["14", "15", "12", "13", "16", "17"]
    rota.check_replay()


def test_a_schedule_that_waits_for_what_has_fired_says_so(caplog: pytest.LogCaptureFixture) -> None:
    rota = Calendar()
    rota.create()
    rota.wait(600)
    set_clock(rota, -300)
    schedule = rota.shard.state.schedules.by_name["n"]
    assert schedule.state == "ahead"
    [fact] = rota.facts(e.ScheduleRealigned)
    assert fact.fired_until == us(2026, 3, 2, 12, 9)
    assert "schedule n has fired up to 2026-03-02T12:09:00Z" in caplog.text
    rota.crash()
    rota.wait(331)
    assert rota.shard.state.schedules.by_name["n"].state == "active"
    assert len(rota.facts(e.ScheduleFired)) == 11


@pytest.mark.parametrize("how", ["resume", "change"])
def test_a_schedule_that_is_resumed_or_changed_counts_anew(how: str) -> None:
    rota = Calendar()
    rota.create(overlap="cancel")
    rota.wait(600)
    set_clock(rota, -300)
    if how == "resume":
        rota.steer("pause")
        rota.steer("resume")
    else:
        rota.change(cron="*/1 * * * *")
    assert rota.shard.state.schedules.by_name["n"].state == "active"
    rota.wait(60)
    assert rota.moments()[-1] == "2026-03-02T12:05:00Z"


def test_a_schedule_that_was_over_by_a_clock_that_was_ahead_goes_on() -> None:
    rota = Calendar()
    rota.create("0 * * * *", end_at=us(2026, 3, 2, 14), overlap="cancel")
    set_clock(rota, DAY_S)
    rota.wait(10)
    assert rota.shard.state.schedules.by_name["n"].state == "over"
    set_clock(rota, -DAY_S)
    rota.wait(4 * 3600)
    assert [each[11:13] for each in rota.moments()] == ["12", "13", "14"]


def test_a_clock_that_is_set_forward_misses_what_was_between(rota: Calendar) -> None:
    rota.create("0 * * * *", catch_up="last")
    rota.clock.step_us(10 * 3600 * 1_000_000)
    rota.shard.timekeeper.look()
    rota.wait(5)
    assert rota.moments() == ["2026-03-02T21:00:00Z"]
    assert [each.missed for each in rota.facts(e.ScheduleMissed)] == [9]


# -- downtime ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("catch_up", "missed", "fired"),
    [
        ("none", [7], []),
        ("last", [6], ["2026-03-09T03:00:00Z"]),
        ("all", [], [f"2026-03-{n:02d}T03:00:00Z" for n in range(3, 10)]),
    ],
)
def test_a_week_of_downtime(catch_up: str, missed: list[int], fired: list[str]) -> None:
    rota = Calendar()
    rota.create("0 3 * * *", catch_up=catch_up, overlap="cancel")
    rota.crash(away_s=7 * DAY_S)
    rota.run()
    assert rota.moments() == fired
    assert [each.missed for each in rota.facts(e.ScheduleMissed)] == missed
    assert all(each.late for each in rota.facts())
    assert rota.schedule.missed == sum(missed)
    rota.crash()
    rota.wait(DAY_S)
    assert rota.moments() == [*fired, "2026-03-10T03:00:00Z"]
    rota.check_replay()


def test_of_many_that_were_missed_the_newest_hundred_are_made_up_for(rota: Calendar) -> None:
    rota.create("* * * * *", catch_up="all", overlap="cancel")
    rota.crash(away_s=7 * DAY_S)
    [missed] = rota.facts(e.ScheduleMissed)
    assert (missed.missed, missed.more) == (calendars.COUNTED_MAX - firings.CAUGHT_UP_MAX, True)
    assert len(rota.moments()) == firings.CAUGHT_UP_MAX
    assert rota.moments()[-1] == "2026-03-09T11:59:00Z"
    rota.check_replay()


def test_what_is_made_up_for_waits_its_turn_if_told_to(rota: Calendar) -> None:
    rota.create("0 3 * * *", catch_up="all", overlap="queue")
    rota.crash(away_s=7 * DAY_S)
    for _ in range(7):
        assert len([t for t in rota.made() if rota.state(t) == "ready"]) == 1
        rota.end_all()
    assert len(rota.moments()) == 7
    rota.check_replay()


def test_who_wants_all_moments_has_none_of_them_skipped_for_another(rota: Calendar) -> None:
    rota.create("* * * * *", catch_up="all")
    rota.crash(away_s=200)  # 12:00 and 12:01 are late, 12:02 is on time
    assert rota.moments() == ["2026-03-02T12:00:00Z"]
    for _ in range(3):
        rota.end_all()
        rota.run()
    minutes = [f"2026-03-02T{moment}:00Z" for moment in ("12:00", "12:01", "12:02")]
    assert rota.moments() == minutes
    rota.wait(60)
    assert rota.moments() == [*minutes, "2026-03-02T12:03:00Z"]
    rota.wait(60)
    assert rota.moments("skipped") == ["2026-03-02T12:04:00Z"]
    rota.check_replay()


def test_a_moment_that_is_a_little_late_is_on_time(rota: Calendar) -> None:
    rota.create("0 * * * *", catch_up="none")
    rota.crash(away_s=80)  # to 20 seconds before 12:01, forty after 12:00
    assert rota.moments() == ["2026-03-02T12:00:00Z"]
    assert not rota.facts()[0].late


def test_crashes_while_it_catches_up_neither_repeat_nor_lose_a_moment(rota: Calendar) -> None:
    rota.create("0 3 * * *", catch_up="all", overlap="cancel")
    rota.crash(away_s=30 * DAY_S)
    for _ in range(20):
        rota.crash(away_s=120)
    days = [*[f"2026-03-{n:02d}T03:00:00Z" for n in range(3, 32)], "2026-04-01T03:00:00Z"]
    assert rota.moments() == days
    assert len(rota.made()) == len(days)


def test_many_at_once_leave_the_loop_its_turns(rota: Calendar) -> None:
    for n in range(50):
        rota.create(name=f"s{n}")
    rota.wait(31)
    assert len(rota.made()) == 50
    rota.check_replay()

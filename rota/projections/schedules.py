"""The schedules, by name, and which of them wait for the end of what they made.

Their number and their bytes are bounded by whoever decides (rota.domain.schedule). Nothing is
computed from the calendar here: each record says which moment comes next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.domain.schedule import Room, Schedule

if TYPE_CHECKING:
    from rota.domain import events as e
    from rota.domain.events import Record


class Schedules:
    """Every schedule.

    `awaited` names, for whatever moments wait for, the schedules whose moments those are; `room` is
    what all of them take.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, Schedule] = {}
        self.awaited: dict[str, dict[str, None]] = {}
        self.room = Room()

    def get(self, name: str) -> Schedule | None:
        return self.by_name.get(name)

    def ahead(self) -> int:
        """Count those that wait for moments which fired while the clock was ahead."""
        return sum(schedule.fired_until is not None for schedule in self.by_name.values())

    def on_created(self, record: Record[e.ScheduleCreated]) -> None:
        self._drop(record.event.schedule)
        self._add(Schedule(record))

    def on_changed(self, record: Record[e.ScheduleChanged]) -> None:
        schedule = self.by_name.get(record.event.schedule)
        if schedule is not None:
            self._await_no_more(schedule)
            self.room.add(schedule, -1)
            schedule.change(record)
            self.room.add(schedule)
            self._await(schedule)

    def on_paused(self, record: Record[e.SchedulePaused]) -> None:
        schedule = self.by_name.get(record.event.schedule)
        if schedule is not None:
            schedule.paused = record.event.reason
            schedule.next_at = schedule.due_at = None

    def on_resumed(self, record: Record[e.ScheduleResumed]) -> None:
        schedule = self.by_name.get(record.event.schedule)
        if schedule is not None:
            schedule.paused = None
            schedule.count_anew()
            schedule.next_at, schedule.due_at = record.event.next_at, record.event.due_at

    def on_deleted(self, record: Record[e.ScheduleDeleted]) -> None:
        self._drop(record.event.schedule)

    def on_fired(self, record: Record[e.ScheduleFired]) -> None:
        schedule = self.by_name.get(record.event.schedule)
        if schedule is not None:
            self._await_no_more(schedule)
            schedule.on_fired(record)
            self._await(schedule)

    def on_missed(self, record: Record[e.ScheduleMissed]) -> None:
        schedule = self.by_name.get(record.event.schedule)
        if schedule is not None:
            schedule.on_missed(record.event)

    def on_realigned(self, record: Record[e.ScheduleRealigned]) -> None:
        schedule = self.by_name.get(record.event.schedule)
        if schedule is not None:
            schedule.on_realigned(record.event)

    def _add(self, schedule: Schedule) -> None:
        self.by_name[schedule.name] = schedule
        self.room.add(schedule)
        self._await(schedule)

    def _drop(self, name: str) -> None:
        schedule = self.by_name.pop(name, None)
        if schedule is not None:
            self.room.add(schedule, -1)
            self._await_no_more(schedule)

    def _await(self, schedule: Schedule) -> None:
        if schedule.waiting and schedule.awaits is not None:
            self.awaited.setdefault(schedule.awaits, {})[schedule.name] = None

    def _await_no_more(self, schedule: Schedule) -> None:
        names = self.awaited.get(schedule.awaits or "")
        if names is not None:
            names.pop(schedule.name, None)
            if not names:
                del self.awaited[schedule.awaits or ""]

    def carry_over(self, by_us: int, now: int, *, is_back: bool) -> None:
        for schedule in self.by_name.values():
            schedule.carry_over(by_us, now)
            schedule.is_set_back = schedule.is_set_back or is_back

    def dump(self) -> list[list[Any]]:
        return [schedule.to_row() for schedule in self.by_name.values()]

    def load(self, rows: list[list[Any]]) -> None:
        for row in rows:
            self._add(Schedule.from_row(row))

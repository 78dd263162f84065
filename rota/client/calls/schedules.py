"""Schedules: what is made again and again, at moments of the calendar."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from rota.client.faces import asks, iterates
from rota.client.fields import ScheduleChanges, ScheduleFields
from rota.client.pages import all_rows
from rota.client.paths import path_of, said
from rota.client.steps import Call, Json, Rows
from rota.client.words import wire
from rota.client.work_models import (
    DeletedSchedule,
    Firing,
    FiringPage,
    Schedule,
    SchedulePage,
)

if TYPE_CHECKING:
    from rota.client.fields import Makes, ScheduleState


class ScheduleCalls:
    """/v1/schedules."""

    @asks(Schedule)
    def create_schedule(self, name: str, cron: str, /, **fields: Unpack[ScheduleFields]) -> Call:
        """Make a schedule; the same again is given back as it is. Raises Conflict.

        It makes one of task, workflow and project ({"id", "mode"}); its other fields are timezone,
        catch_up, overlap, paused, jitter_s, start_at and end_at.
        """
        body = {"name": name, "cron": cron, **wire(said(fields), ScheduleFields)}
        return Call("POST", "/v1/schedules", body=body)

    @asks(Schedule)
    def get_schedule(self, name: str) -> Call:
        """Give one schedule, with its next five moments. Raises NotFound."""
        return Call("GET", path_of("schedules", name), is_safe=True)

    @asks(SchedulePage)
    def schedules(
        self,
        *,
        state: ScheduleState | None = None,
        agent: str | None = None,
        makes: Makes | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Call:
        """Give a page of schedules, by name; `next_cursor` leads to the next one."""
        query = {"state": state, "agent": agent, "makes": makes, "limit": limit, "cursor": cursor}
        return Call("GET", "/v1/schedules", query, is_safe=True)

    @iterates(Schedule)
    def iter_schedules(
        self,
        *,
        state: ScheduleState | None = None,
        agent: str | None = None,
        makes: Makes | None = None,
    ) -> Rows[Json]:
        """Give all schedules, by name, asked for a page at a time."""
        query = {"state": state, "agent": agent, "makes": makes}
        return all_rows("schedules", "/v1/schedules", query)

    @asks(Schedule)
    def change_schedule(self, name: str, /, **fields: Unpack[ScheduleChanges]) -> Call:
        """Change some fields of a schedule; None takes jitter_s, start_at or end_at away."""
        return Call("PATCH", path_of("schedules", name), body=wire(fields, ScheduleChanges))

    @asks(DeletedSchedule)
    def delete_schedule(self, name: str, reason: str = "") -> Call:
        """Delete a schedule; what it made goes on."""
        return Call("DELETE", path_of("schedules", name), body={"reason": reason})

    @asks(Schedule)
    def pause_schedule(self, name: str, reason: str = "") -> Call:
        """Let no moment of a schedule come."""
        return Call("POST", path_of("schedules", name, "pause"), body={"reason": reason})

    @asks(Schedule)
    def resume_schedule(self, name: str) -> Call:
        """Let the moments of a schedule come again, from the next one on."""
        return Call("POST", path_of("schedules", name, "resume"))

    @asks(Firing)
    def run_schedule(self, name: str) -> Call:
        """Have a schedule fire now, beside the calendar; gives what became of it."""
        return Call("POST", path_of("schedules", name, "run"))

    @asks(FiringPage)
    def schedule_history(
        self, name: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Call:
        """Give a page of what became of a schedule's moments, oldest first."""
        query = {"limit": limit, "cursor": cursor}
        return Call("GET", path_of("schedules", name, "history"), query, is_safe=True)

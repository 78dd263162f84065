"""The rows of the table for schedules; routes.py has the rest."""

from __future__ import annotations

from rota.domain.tokens import Right
from rota.http import models
from rota.http import schedule_models as shapes
from rota.http.route import Route
from rota.http.v1 import schedules

_ALL, _ONE = "/v1/schedules", "/v1/schedules/{name}"
_SEE = (
    (_ALL, schedules.list_all, "The schedules, by name", shapes.SchedulePage,
     ("state", "agent", "makes", "cursor", "limit")),
    (_ONE, schedules.get_one, "One schedule, with the next five moments", shapes.ScheduleView, ()),
    (f"{_ONE}/history", schedules.history, "What became of its moments", shapes.FiringPage,
     ("cursor", "limit")),
)  # fmt: skip
_DO = (
    ("POST", _ALL, schedules.create, "Make a schedule",
     shapes.ScheduleBody, shapes.ScheduleView, 201),
    ("PATCH", _ONE, schedules.change, "Change a schedule",
     shapes.SchedulePatch, shapes.ScheduleView, 200),
    ("DELETE", _ONE, schedules.delete, "Delete a schedule; what it made goes on",
     models.ReasonBody, shapes.ScheduleGone, 200),
    ("POST", f"{_ONE}/pause", schedules.pause, "Let no moment come",
     models.ReasonBody, shapes.ScheduleView, 200),
    ("POST", f"{_ONE}/resume", schedules.resume, "Let moments come again, from the next one on",
     None, shapes.ScheduleView, 200),
    ("POST", f"{_ONE}/run", schedules.run, "Fire now, beside the calendar",
     None, shapes.FiringView, 202),
)  # fmt: skip

SCHEDULE_ROUTES: tuple[Route, ...] = (
    *[
        Route("GET", path, handler, says, None, answer, query=query, needs=Right.SEE)
        for path, handler, says, answer, query in _SEE
    ],
    *[
        Route(method, path, handler, says, body, answer, status,
              also=(200,) if status != 200 else (), needs=Right.SUBMIT)
        for method, path, handler, says, body, answer, status in _DO
    ],
)  # fmt: skip

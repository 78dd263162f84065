"""The rows of the table for schedules; routes.py has the rest.

A schedule may be of any agent, so whoever makes one is an administrator; who may oversee the
scheduler may look at all of them.
"""

from __future__ import annotations

from rota.domain.tokens import Right
from rota.http import models
from rota.http import schedule_models as shapes
from rota.http.route import Route
from rota.http.v1 import schedules

_ONE = "/v1/schedules/{name}"

SCHEDULE_ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/v1/schedules",
        schedules.create,
        "Make a schedule",
        shapes.ScheduleBody,
        shapes.ScheduleView,
        201,
        also=(200,),
    ),
    Route(
        "GET",
        "/v1/schedules",
        schedules.list_all,
        "List schedules",
        None,
        shapes.SchedulePage,
        200,
        ("state", "cursor", "limit"),
        needs=Right.OVERSEE,
    ),
    Route(
        "GET",
        _ONE,
        schedules.get_one,
        "One schedule, with the next five moments",
        None,
        shapes.ScheduleView,
        needs=Right.OVERSEE,
    ),
    Route(
        "PATCH",
        _ONE,
        schedules.change,
        "Change a schedule",
        shapes.SchedulePatch,
        shapes.ScheduleView,
    ),
    Route("DELETE", _ONE, schedules.delete, "Delete a schedule", None, shapes.ScheduleGone),
    Route(
        "POST",
        f"{_ONE}/pause",
        schedules.pause,
        "Let no moment come",
        models.ReasonBody,
        shapes.ScheduleView,
    ),
    Route(
        "POST",
        f"{_ONE}/resume",
        schedules.resume,
        "Let moments come again",
        models.ReasonBody,
        shapes.ScheduleView,
    ),
    Route(
        "POST",
        f"{_ONE}/run",
        schedules.run,
        "Fire now",
        None,
        shapes.FiringView,
        202,
        also=(200,),
    ),
    Route(
        "GET",
        f"{_ONE}/history",
        schedules.history,
        "What became of its moments",
        None,
        shapes.FiringPage,
        200,
        ("cursor", "limit"),
        needs=Right.OVERSEE,
    ),
)

"""The queue-state plan's own words: errors as `{error, message}`, in kebab case; `completed`.

Everything else under /projects is as under /v1/projects (http/v1/projects.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rota.errors import RotaError

NAME = "projects"
STATES = {"succeeded": "completed"}
"""What a list calls the states of tasks that were done, where that is another word."""


def problem(error: RotaError, request_id: str) -> dict[str, Any]:
    del request_id  # a header has it
    return {"error": error.code.replace("_", "-"), "message": str(error)}

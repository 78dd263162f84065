"""The part of an executor's table that is about running a command."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from rota.sections import LIMIT_MAX, Section

DAY_MS = 24 * 3600 * 1000
ONLY_FOR_COMMANDS = ("argv", "cwd", "env", "result_file", "time_limit_ms", "sandbox", "grace_ms")


class CommandSettings(Section):
    """How a command is run, and what it may use."""

    argv: tuple[Annotated[str, Field(max_length=10_000)], ...] = ()
    cwd: Annotated[str | None, Field(min_length=1, max_length=4096)] = None
    env: dict[str, str] = Field(default_factory=dict)
    sandbox: Literal["none", "bubblewrap"] = "none"
    result_file: Annotated[str | None, Field(min_length=1, max_length=4096)] = None
    grace_ms: Annotated[int, Field(ge=1, le=600_000)] = 5000
    time_limit_ms: Annotated[int | None, Field(ge=1, le=DAY_MS)] = None
    cpu_seconds_max: Annotated[int | None, Field(ge=1, le=LIMIT_MAX)] = None
    memory_mb_max: Annotated[int | None, Field(ge=1, le=LIMIT_MAX)] = None
    file_mb_max: Annotated[int | None, Field(ge=1, le=LIMIT_MAX)] = None
    processes_max: Annotated[int | None, Field(ge=1, le=LIMIT_MAX)] = 256
    output_bytes_max: Annotated[int, Field(ge=1, le=1 << 40)] = 10 << 20


def check_kind(settings: Any, kind: str) -> None:
    """Refuse what does not go with the kind of an executor. Raises ValueError."""
    said = settings.model_fields_set
    if kind != "command":
        if not settings.url:
            msg = "url is missing: where is it called?"
            raise ValueError(msg)
        for name in ONLY_FOR_COMMANDS:
            if name in said:
                msg = f"{name}: only an executor of kind 'command' has that"
                raise ValueError(msg)
        return
    if not settings.argv or not settings.argv[0]:
        msg = "argv is missing: the program and its arguments"
        raise ValueError(msg)
    if "{{" in settings.argv[0]:
        msg = "argv: which program is run is not for a task to say"
        raise ValueError(msg)
    if settings.url or settings.headers:
        msg = "url and headers: a command has none"
        raise ValueError(msg)

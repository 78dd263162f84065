"""The part of an executor's table that is about running a command."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.alias_generators import to_camel

from rota.sections import LIMIT_MAX, Section

DAY_MS = 24 * 3600 * 1000
_BRACES = re.compile(r"\{\{([^{}]*)\}\}")


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
    processes_max: Annotated[int | None, Field(ge=1, le=LIMIT_MAX)] = 1024
    output_bytes_max: Annotated[int, Field(ge=1, le=1 << 40)] = 10 << 20


def not_for(kind: str) -> set[str]:
    """Name the settings, as in a file, that an executor of a kind does not have."""
    if kind == "command":
        return {"url", "headers", "cancelUrl"}
    others = set(map(to_camel, CommandSettings.model_fields))
    return others if kind == "http" else {*others, "cancelUrl"}


def check_kind(settings: Any) -> Any:
    """Refuse what does not go with the kind of an executor. Raises ValueError."""
    if settings.cancel_url and settings.kind != "http":
        msg = "cancelUrl: only an executor of kind 'http' has that"
        raise ValueError(msg)
    if settings.kind == "command":
        _check_command(settings)
        return settings
    if not settings.url:
        msg = "url is missing: where is it called?"
        raise ValueError(msg)
    for name in sorted(settings.model_fields_set & CommandSettings.model_fields.keys()):
        msg = f"{to_camel(name)}: only an executor of kind 'command' has that"
        raise ValueError(msg)
    return settings


def _check_command(settings: Any) -> None:
    program = "".join(settings.argv[:1])
    braces = [found for each in settings.argv for found in _BRACES.finditer(each)]
    mistyped = next((found[0] for found in braces if len(found[1].split()) != 1), "")
    texts = [*settings.argv, *settings.env, *settings.env.values()]
    problems = {
        "argv is missing: the program and its arguments": not program,
        "argv: which program is run is not for a task to say": "{{" in program,
        f"argv: {mistyped} is no name of a param": mistyped,
        "url and headers: a command has none": settings.url or settings.headers,
        "argv and env: no NUL can be in them": any("\0" in text for text in texts),
        "env: a name is missing, or has = in it": any(not k or "=" in k for k in settings.env),
        "cwd: say it from the root on": settings.cwd is not None and settings.cwd[:1] != "/",
        "resultFile: a name, not a path": "/" in (settings.result_file or ""),
    }
    for msg, is_so in problems.items():
        if is_so:
            raise ValueError(msg)

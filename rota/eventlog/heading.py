"""What a record is about, read off the first bytes of its body.

Filters need a record's kind, task and agent, not its data, which may be a megabyte: they come
first, in an order that the codec keeps. A body that begins otherwise is read whole.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import orjson

from rota.eventlog.codec import ABOUT_BATCHES, KINDS, VERSIONS, decode, subject_of

_STRING = rb'"(?:[^"\\]|\\.)*"'
_BEGINNING = re.compile(
    rb'\{"seq":\d+,"at":\d+,"kind":"([a-z_]+)","v":(\d+)'
    rb'(?:,"task":(%b))?(?:,"agent":(%b))?(?=[,}])'
    rb'(?:(?:,"by":%b)?(?:,"cause":\d+)?,"data":\{"project":(%b))?' % ((_STRING,) * 4)
)
_PLANNED = b'"project":'
"""What the `task_submitted` of a project's task has somewhere in its data."""


_OF_MANY = frozenset(KINDS[cls] for cls in ABOUT_BATCHES)
"""Records that are about a batch or a workflow; they are few, and read whole."""


class Heading(NamedTuple):
    """Kind, task, agent and project of a record; None where it has none.

    A record of a batch or a workflow has that in the place of its task.
    """

    kind: str
    task: str | None = None
    agent: str | None = None
    project: str | None = None


def heading_of(body: bytes) -> Heading:
    """Read what a record is about. Raises LogCorrupt or LogTooNew."""
    found = _BEGINNING.match(body)
    if found is not None:
        kind, version, task, agent, project = found.groups()
        name = kind.decode()
        is_whole = name in _OF_MANY or (name == "task_submitted" and _PLANNED in body)
        if VERSIONS.get(name) == int(version) and not is_whole:
            return Heading(name, _text(task), _text(agent), _text(project))
    event: Any = decode(body).event
    plan = getattr(event, "plan", None)
    project = getattr(event, "project", None) or (plan.project if plan is not None else None)
    return Heading(KINDS[type(event)], subject_of(event), getattr(event, "agent", None), project)


def kind_of(body: bytes) -> str:
    """Read of what kind a record is, also where what may not be seen was left out of it."""
    found = _BEGINNING.match(body)
    kind: str = found[1].decode() if found is not None else orjson.loads(body)["kind"]
    return kind


def is_about(body: bytes, subject: str) -> bool:
    """Check that a record is about the task, batch or schedule that an index has it under."""
    found = _BEGINNING.match(body)
    if found is not None and found[3] is not None:
        return _text(found[3]) == subject
    return subject_of(decode(body).event) == subject


def _text(raw: bytes | None) -> str | None:
    if raw is None:
        return None
    if b"\\" in raw:
        text: str = orjson.loads(raw)
        return text
    return raw[1:-1].decode()

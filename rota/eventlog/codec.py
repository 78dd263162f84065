"""Records to bytes and back, with versions.

The body is one JSON object `{seq, at, kind, v, task?, agent?, by?, cause?, data}`. `task` and
`agent` are lifted out of the event; absent and None fields are left out; a task's plan is laid out
among the other fields of its `task_submitted`. A body of an old version
goes through its upcasters, pure functions on the parsed object, until it is of the newest; one of
an unknown kind or a newer version is refused by name, never skipped.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NoReturn, cast, get_args

import orjson

from rota.domain import events as e
from rota.domain.plan import Plan
from rota.domain.schedule import Definition
from rota.errors import LogCorrupt, LogTooNew, NotWritable

if TYPE_CHECKING:
    from collections.abc import Callable


_LIFTED = ("task", "agent")
_PLAN = "plan"
_OUTSIDE = frozenset({*_LIFTED, _PLAN})
_WISHES = frozenset(Plan._fields)
_new: Any = tuple.__new__


def kind_of(cls: type[Any]) -> str:
    """Name an event class as it is named on disk: TaskSubmitted is task_submitted."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


CLASSES: dict[str, type[Any]] = {kind_of(cls): cls for cls in get_args(e.Event)}
KINDS: dict[type[Any], str] = {cls: kind for kind, cls in CLASSES.items()}
VERSIONS: dict[str, int] = dict.fromkeys(CLASSES, 1) | {"schedule_changed": 2}
"""The newest version of each kind; raise one here and add the upcaster from the one before."""

_KIND = b'"kind":"'
_KIND_WITHIN = 80
_FAILURES = (b'task_failed"', b'task_expired"')


def _only_changes(raw: dict[str, Any]) -> dict[str, Any]:
    """Make a change of a schedule of what was all of it; fields without a value were left out."""
    said, usual = raw["data"], Definition._field_defaults
    changes = {name: said.get(name, usual.get(name)) for name in Definition._fields}
    kept = {name: said[name] for name in ("schedule", "next_at", "due_at") if name in said}
    return {**raw, "v": 2, "data": {**kept, "changes": changes}}


UPCASTERS: dict[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]] = {
    ("schedule_changed", 1): _only_changes,
}
"""(kind, old version) to the function that makes the next version's body of it."""

_LAYOUTS: dict[type[Any], tuple[str, int, tuple[str, ...], tuple[tuple[int, str], ...]]] = {
    cls: (
        kind,
        VERSIONS[kind],
        tuple(name for name in _LIFTED if name in cls._fields),
        tuple((i, name) for i, name in enumerate(cls._fields) if name not in _OUTSIDE),
    )
    for cls, kind in KINDS.items()
}
FIELDS: dict[str, tuple[str, ...]] = {
    kind: (*(n for n in cls._fields if n != _PLAN), *(Plan._fields if _PLAN in cls._fields else ()))
    for kind, cls in CLASSES.items()
}
"""The fields of each kind as they are named on disk."""
_TASK_FIRST = ("task", "agent")
ABOUT_BATCHES = frozenset(
    {
        e.BatchSubmitted,
        e.BatchRejected,
        e.BatchFinished,
        e.WorkflowSubmitted,
        e.WorkflowTripped,
        e.WorkflowPaused,
        e.WorkflowResumed,
        e.WorkflowClosed,
        e.WorkflowCancelled,
        e.WorkflowEnded,
        e.RunQueued,
        e.RunStarted,
        e.RunTaskSelected,
        e.RunStopRequested,
        e.RunEnded,
    }
)
_ABOUT_ITEMS = frozenset(
    {e.ProjectTaskAdded, e.ProjectTaskEdited, e.ProjectTaskMoved, e.ProjectTaskRemoved}
)
_ABOUT_SCHEDULES = frozenset(
    {
        e.ScheduleCreated,
        e.ScheduleChanged,
        e.SchedulePaused,
        e.ScheduleResumed,
        e.ScheduleDeleted,
        e.ScheduleFired,
        e.ScheduleMissed,
        e.ScheduleRealigned,
    }
)
SCHEDULE = "schedule/"
"""What records about schedules are found under, with a name: no task's id has a slash."""


class _Reader:
    """How a class is read: the lifted fields come first, those with defaults last."""

    __slots__ = ("cls", "defaults", "known", "lifted", "only", "optional", "required")

    def __init__(self, cls: type[Any]) -> None:
        self.cls = cls
        self.optional = tuple(cls._field_defaults)
        self.defaults = tuple(cls._field_defaults.values())
        self.lifted = tuple(name for name in cls._fields if name in _LIFTED)
        self.required = cls._fields[len(self.lifted) : len(cls._fields) - len(self.optional)]
        self.known = frozenset((*self.required, *self.optional))
        is_short = self.lifted == _TASK_FIRST and len(self.required) == 1
        self.only = self.required[0] if is_short else None
        assert cls._fields == (*self.lifted, *self.required, *self.optional), cls

    def values(self, raw: dict[str, Any], data: dict[str, Any]) -> tuple[Any, ...]:
        """Give the values of all fields, in order. Raises KeyError or ValueError."""
        values = [raw[name] for name in self.lifted]
        values += [data[name] for name in self.required]
        if not data.keys() <= self.known:
            msg = f"unknown fields {sorted(data.keys() - self.known)}"
            raise ValueError(msg)
        values += map(data.get, self.optional, self.defaults)
        return tuple(values)


class _PlanReader(_Reader):
    """How a class is read whose last field is a plan, laid out among the others."""

    __slots__ = ()

    def __init__(self, cls: type[Any]) -> None:
        super().__init__(cls)
        assert self.optional[-1] == _PLAN, cls
        self.known = self.known - {_PLAN} | _WISHES

    def values(self, raw: dict[str, Any], data: dict[str, Any]) -> tuple[Any, ...]:
        values = super().values(raw, data)
        if data.keys().isdisjoint(_WISHES):
            return values
        return (*values[:-1], _new(Plan, map(data.get, Plan._fields)))


_READERS: dict[tuple[str, int], _Reader] = {
    (kind, VERSIONS[kind]): _PlanReader(cls) if _PLAN in cls._fields else _Reader(cls)
    for kind, cls in CLASSES.items()
}


def encode(record: e.Record[e.Event]) -> bytes:
    """Write a record as its body. Raises NotWritable."""
    seq, at, fact, by, cause = record
    event: tuple[Any, ...] = fact
    kind, version, lifted, fields = _LAYOUTS[type(fact)]
    body: dict[str, Any]
    if lifted == _TASK_FIRST:  # the facts about a task carry them first
        body = {
            "seq": seq,
            "at": at,
            "kind": kind,
            "v": version,
            "task": event[0],
            "agent": event[1],
        }
    else:
        body = {"seq": seq, "at": at, "kind": kind, "v": version}
        for name in lifted:
            body[name] = getattr(fact, name)
    if by:
        body["by"] = by
    if cause:
        body["cause"] = cause
    body["data"] = data = {name: value for i, name in fields if (value := event[i]) is not None}
    if type(fact) is e.TaskSubmitted and fact.plan is not None:
        data |= {n: value for n, value in fact.plan._asdict().items() if value is not None}
    try:
        return orjson.dumps(body)
    except TypeError as error:
        raise NotWritable(str(error)) from error


def decode(body: bytes) -> e.Record[e.Event]:
    """Read a body as a record of today's classes. Raises LogCorrupt or LogTooNew."""
    try:
        raw = orjson.loads(body)
        reader = _READERS.get((raw["kind"], raw["v"]))
        if reader is None:
            raw = _upcast(raw)
            reader = _READERS[raw["kind"], raw["v"]]
        data = raw["data"]
        if reader.only is not None and len(data) == 1:  # most are about a task and say one thing
            values = (raw["task"], raw["agent"], data[reader.only], *reader.defaults)
        else:
            values = reader.values(raw, data)
        event = _new(reader.cls, values)
        record = (raw["seq"], raw["at"], event, raw.get("by", ""), raw.get("cause", 0))
        # Past a NamedTuple's own constructor, which costs more than the tuple itself.
        return cast("e.Record[e.Event]", _new(e.Record, record))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return _refuse(body, repr(error))


def _refuse(body: bytes, why: str) -> NoReturn:
    found = re.search(rb'"seq":(\d{1,19})', body)
    seq = int(found[1]) if found else 0
    raise LogCorrupt(
        seq,
        f"record {seq} is not one of rota's: {why}",
        hint="restore the data folder from a copy; `rota verify` checks one",
    )


def kind_at_a_glance(body: bytes) -> bytes:
    """Read a body's kind without reading the body: it comes third, after seq and at."""
    begin = body.index(_KIND) + len(_KIND)
    return body[begin : body.index(b'"', begin)]


def failed_task(body: bytes) -> str | None:
    """Name the task that a record ended as failed; None if it is a record of anything else."""
    begin = body.find(_KIND, 0, _KIND_WITHIN) + len(_KIND)
    if not body.startswith(_FAILURES, begin):
        return None
    return cast("str", orjson.loads(body)["task"])


def subject_of(event: e.Event) -> str | None:
    """Name the task, batch, workflow, run or schedule that an event is about; None if of none.

    What is said of an item is said of the task that it becomes.
    """
    values: tuple[Any, ...] = event
    kind = type(event)
    if _LAYOUTS[kind][2] == _TASK_FIRST or kind in ABOUT_BATCHES:
        return cast("str", values[0])
    if kind in _ABOUT_ITEMS:
        return cast("str", values[2])
    return f"{SCHEDULE}{values[0]}" if kind in _ABOUT_SCHEDULES else None


def _upcast(raw: dict[str, Any]) -> dict[str, Any]:
    while True:
        kind, version = raw["kind"], raw["v"]
        if kind in VERSIONS and version == VERSIONS[kind]:
            return raw
        upcaster = UPCASTERS.get((kind, version))
        if upcaster is None:
            raise LogTooNew(
                f"record {raw['seq']} is a {kind} of version {version}, which this rota "
                "does not know",
                hint="open the folder with the rota that wrote it, or a newer one",
            )
        raw = upcaster(raw)

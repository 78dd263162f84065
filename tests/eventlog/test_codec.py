"""Records to bytes and back: every kind, every version, and nothing that is not ours."""

from __future__ import annotations

import contextlib
import types
import typing
from typing import Any, get_args

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import START_US, history, submitted

from rota.domain import events as e
from rota.domain.plan import Plan
from rota.errors import LogCorrupt, LogTooNew
from rota.eventlog import codec

EVENTS = get_args(e.Event)

# -- a strategy for every event, made from its annotations -----------------------------------------

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
INTS = st.integers(-(2**53), 2**53)
JSON = st.recursive(
    st.none() | st.booleans() | INTS | TEXT | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: INTS,
    bool: st.booleans(),
    Any: JSON,
    type(None): st.none(),
    dict[str, Any]: st.dictionaries(TEXT, JSON, max_size=3),
    list[str]: st.lists(TEXT, max_size=3),
    dict[str, str]: st.dictionaries(TEXT, TEXT, max_size=3),
    dict[str, int]: st.dictionaries(TEXT, INTS, max_size=3),
}


def of_type(annotation: Any) -> st.SearchStrategy[Any]:
    """Give values of an annotation; a new kind of field needs a line in `BY_TYPE`."""
    if isinstance(annotation, types.UnionType):
        return st.one_of(*(of_type(part) for part in get_args(annotation)))
    return BY_TYPE[annotation]


def of_class(cls: type[Any]) -> st.SearchStrategy[Any]:
    """Give events of a class."""
    hints = typing.get_type_hints(cls)
    values = [of_field(hints[name], optional=name in cls._field_defaults) for name in cls._fields]
    return st.tuples(*values).map(lambda v: cls(*v))


def of_field(annotation: Any, *, optional: bool) -> st.SearchStrategy[Any]:
    """Give values of a field; one without a default always says something."""
    values = of_type(annotation)
    return values if optional else values.filter(lambda value: value is not None)


BY_TYPE[Plan] = of_class(Plan).filter(lambda plan: plan != Plan())  # that would be none

RECORDS = st.builds(
    e.Record,
    seq=st.integers(1, 2**53),
    at=st.integers(0, 2**53),
    event=st.one_of(*(of_class(cls) for cls in EVENTS)),
    by=TEXT,
    cause=st.integers(0, 2**53),
)


def body_of(**changes: Any) -> bytes:
    """Give the body of a submission, with changes; None takes a field away."""
    raw = orjson.loads(codec.encode(e.Record(7, START_US, submitted("t7"))))
    raw.update(changes)
    return orjson.dumps({name: value for name, value in raw.items() if value is not None})


# -- round trips -----------------------------------------------------------------------------------


@settings(max_examples=500, deadline=None)
@given(RECORDS)
def test_every_record_comes_back_as_it_went(record: e.Record) -> None:
    again = codec.decode(codec.encode(record))
    assert again == record
    assert type(again.event) is type(record.event)


@pytest.mark.parametrize("cls", EVENTS, ids=codec.kind_of)
def test_every_kind_comes_back_as_it_went(cls: type[Any]) -> None:
    @settings(max_examples=25, deadline=None)
    @given(of_class(cls))
    def comes_back(event: Any) -> None:
        record = e.Record(1, START_US, event)
        body = codec.encode(record)
        again = codec.decode(body)
        assert (again, type(again.event)) == (record, cls)
        assert codec.kind_at_a_glance(body).decode() == codec.kind_of(cls)

    comes_back()


@pytest.mark.parametrize("cls", EVENTS, ids=codec.kind_of)
def test_the_class_and_its_name_on_disk_belong_together(cls: type[Any]) -> None:
    kind = codec.kind_of(cls)
    assert codec.CLASSES[kind] is cls
    assert codec.KINDS[cls] == kind
    assert kind == kind.lower()
    assert codec.VERSIONS[kind] >= 1


def test_no_two_kinds_share_a_name() -> None:
    assert len(codec.CLASSES) == len(EVENTS)


@settings(max_examples=200, deadline=None)
@given(RECORDS)
def test_fields_of_none_are_left_out_and_ids_are_lifted(record: e.Record) -> None:
    raw = orjson.loads(codec.encode(record))
    event: Any = record.event
    assert set(raw) <= {"seq", "at", "kind", "v", "task", "agent", "by", "cause", "data"}
    assert ("by" in raw, "cause" in raw) == (bool(record.by), bool(record.cause))
    for name in ("task", "agent"):
        assert name not in raw["data"]
        assert raw.get(name) == getattr(event, name, None)
    given_ = {n: v for n, v in event._asdict().items() if n not in ("task", "agent", "plan")}
    if getattr(event, "plan", None) is not None:
        given_ |= event.plan._asdict()
    assert raw["data"] == {name: value for name, value in given_.items() if value is not None}


def test_fields_with_a_default_may_be_absent() -> None:
    raw = orjson.loads(body_of())
    required = {"action", "executor", "position"}
    raw["data"] = {name: raw["data"][name] for name in required}
    assert codec.decode(orjson.dumps(raw)).event == submitted("t7")


# -- what is not ours ------------------------------------------------------------------------------


def test_an_unknown_kind_is_from_a_newer_rota() -> None:
    with pytest.raises(LogTooNew, match="record 7 is a task_teleported of version 1"):
        codec.decode(body_of(kind="task_teleported"))


def test_a_newer_version_is_from_a_newer_rota() -> None:
    version = codec.VERSIONS["task_submitted"] + 1
    with pytest.raises(LogTooNew, match=f"record 7 is a task_submitted of version {version}"):
        codec.decode(body_of(v=version))


GARBAGE = [
    b"",
    b"garbage",
    b"\xff\xfe",
    b"null",
    b"[]",
    b"7",
    b'"kind"',
    b"{}",
    body_of(seq=None),
    body_of(at=None),
    body_of(kind=None),
    body_of(v=None),
    body_of(data=None),
    body_of(task=None),
    body_of(data={}),
    body_of(data=[]),
    body_of(data="x"),
    body_of(kind=[1]),
    body_of(kind={"a": 1}),
    body_of(data={"action": "a", "executor": "b", "position": 1, "surprise": 1}),
    body_of()[:-1],
]


@pytest.mark.parametrize("body", GARBAGE)
def test_garbage_is_corrupt_and_named_by_its_seq(body: bytes) -> None:
    with pytest.raises(LogCorrupt) as caught:
        codec.decode(body)
    assert caught.value.seq == (7 if b'"seq":7' in body else 0)
    assert "rota verify" in caught.value.hint


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=200) | JSON.map(orjson.dumps))
def test_no_bytes_whatever_raise_anything_else(body: bytes) -> None:
    with pytest.raises((LogCorrupt, LogTooNew)):
        codec.decode(body)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_body_decodes_or_is_refused_by_name(data: st.DataObject) -> None:
    body = bytearray(body_of())
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(LogCorrupt, LogTooNew):
        codec.decode(bytes(body))


# -- old versions ----------------------------------------------------------------------------------

PAUSED_LOUDLY = e.Record(4, 5, e.AgentPaused("a", "LUNCH"))


def paused(version: int, kind: str = "agent_paused", **data: str) -> bytes:
    """Give the body of a pause as a version of it was written."""
    return orjson.dumps({"seq": 4, "at": 5, "kind": kind, "v": version, "agent": "a", "data": data})


def test_an_old_version_goes_through_its_upcasters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of them, one after the other, up to the version of today."""
    today = codec.VERSIONS["agent_paused"]

    def rename_why(raw: dict[str, Any]) -> dict[str, Any]:
        return {**raw, "v": today - 1, "data": {"reason": raw["data"]["why"]}}

    def shout(raw: dict[str, Any]) -> dict[str, Any]:
        return {**raw, "v": today, "data": {"reason": raw["data"]["reason"].upper()}}

    monkeypatch.setitem(codec.UPCASTERS, ("agent_paused", today - 2), rename_why)
    monkeypatch.setitem(codec.UPCASTERS, ("agent_paused", today - 1), shout)
    assert codec.decode(paused(today - 2, why="lunch")) == PAUSED_LOUDLY
    assert codec.decode(paused(today - 1, reason="lunch")) == PAUSED_LOUDLY
    assert codec.decode(paused(today, reason="LUNCH")) == PAUSED_LOUDLY


def test_an_upcaster_may_rename_a_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    def rename(raw: dict[str, Any]) -> dict[str, Any]:
        return {**raw, "kind": "agent_paused", "v": codec.VERSIONS["agent_paused"]}

    monkeypatch.setitem(codec.UPCASTERS, ("agent_stopped", 1), rename)
    assert codec.decode(paused(1, "agent_stopped", reason="LUNCH")) == PAUSED_LOUDLY


def test_an_old_version_without_an_upcaster_is_refused() -> None:
    with pytest.raises(LogTooNew, match="record 4 is a agent_paused of version -7"):
        codec.decode(paused(-7, reason="x"))


# -- a legal history -------------------------------------------------------------------------------


def test_a_whole_history_comes_back_as_it_went() -> None:
    records = history(seed=1, length=500)
    assert [codec.decode(codec.encode(record)) for record in records] == records

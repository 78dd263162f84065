"""How a worker's function takes the params of a task."""

from __future__ import annotations

from typing import Annotated, Optional

import pytest
from pydantic import BaseModel, Field

from rota.client import Context, Fail, Worker
from rota.client.functions import Function
from rota.errors import ConfigError


class Part(BaseModel):
    name: str
    count: int = 1


class Other(BaseModel):
    sku: str


def given(function, params):
    lease = {
        "leaseId": "lse_1",
        "taskId": "tsk_1",
        "token": 1,
        "attempt": 1,
        "task": {"taskId": "tsk_1"},
    }
    ctx = Context({**lease, "params": params})
    return function(**Function(function, {}).arguments(ctx))


def test_a_lone_model_takes_all_params():
    def lone(ctx: Context, part: Part):
        return part

    assert given(lone, {"name": "bolt", "count": 2}) == Part(name="bolt", count=2)
    with pytest.raises(Fail, match="name: Field required") as caught:
        given(lone, {"part": {"name": "bolt"}})
    assert caught.value.code == "bad_params"


def test_a_lone_model_takes_all_params_however_it_is_annotated():
    def annotated(part: Annotated[Part, Field(description="what is fitted")]):
        return part

    def optional(ctx: Context, part: Optional[Part] = None):  # noqa: UP045 - users write it
        return part

    def either(part: Annotated[Part, Field()] | Other | None):
        return part

    def others(part: list[Part] | None):
        return part

    bolt = {"name": "bolt"}
    for function in (annotated, optional, either):
        assert given(function, bolt) == Part(name="bolt")
        with pytest.raises(Fail, match="Field required"):
            given(function, {"part": bolt})
    assert (given(optional, {}), given(either, {})) == (None, None)
    with pytest.raises(Fail, match="name: Field required"):
        given(annotated, {})
    assert given(either, {"sku": "a"}) == Other(sku="a")
    assert given(others, {"part": [bolt]}) == [Part(name="bolt")]


def test_the_default_of_a_lone_model_is_for_a_task_without_params():
    def many(ctx: Context, part: Part = Part(name="nut", count=7)):  # noqa: B008 - users write it
        return part

    def optional(part: Optional[Part] = Part(name="nut")):  # noqa: B008, UP045 - users write it
        return part

    def none(other: Other = None):
        return other

    assert given(many, {}) == Part(name="nut", count=7)
    assert given(many, {"name": "bolt"}) == Part(name="bolt")
    assert (given(optional, {}), given(none, {})) == (Part(name="nut"), None)


def test_a_model_beside_others_is_bound_by_its_name():
    def two(p: Part, depth: int, ctx: Context):
        return p, depth

    assert given(two, {"p": {"name": "bolt"}, "depth": 3}) == (Part(name="bolt"), 3)
    for params, said in (
        ({"name": "bolt", "depth": 3}, "two: missing a required argument: 'p'"),
        ({"p": {}, "depth": 3}, "p.name: Field required"),
        ({"p": {"name": "bolt"}, "depth": 3, "x": 1}, "unexpected keyword argument 'x'"),
    ):
        with pytest.raises(Fail, match=said):
            given(two, params)


def test_models_may_be_many_wanting_or_left_out():
    def more(first: Part, parts: list[Part], last: Part | None = None, other: Part | None = None):
        return first, parts, last, other

    bolt = {"name": "bolt"}
    params = {"first": bolt, "parts": [bolt], "last": None}
    assert given(more, params) == (Part(**bolt), [Part(**bolt)], None, None)


def test_who_takes_all_params_may_have_some_by_name():
    def both(params, p: Part, depth: int = 1):
        return params["x"], p.name, depth

    assert given(both, {"x": 1, "p": {"name": "bolt"}}) == (1, "bolt", 1)


def test_a_function_that_no_task_could_call_is_refused_where_it_is_written():
    def nameless(part, /): ...
    def listed(*parts): ...
    def models(**parts: Part): ...
    def twice(ctx: Context, other: Context): ...

    worker = Worker()
    for function, said in (
        (nameless, "nameless has a parameter without a name: part"),
        (listed, "listed has a parameter without a name: parts"),
        (models, r"models asks for any number of models: \*\*parts"),
        (twice, "twice cannot be given a context as other"),
    ):
        with pytest.raises(ConfigError, match=said):
            worker.task("unservable")(function)
    assert worker.functions == {}


def test_a_declaration_that_cannot_hold_is_refused_where_it_is_written():
    def fit(): ...

    worker = Worker()
    for declares, said in (
        ({"timeout": 0}, "fit: timeout must be at least 0.001"),
        ({"timeout": "3"}, "fit: timeout must be a number"),
        ({"timeout": float("nan")}, "fit: timeout must be a finite number"),
        ({"concurrency": 0}, "fit: concurrency must be at least 1"),
        ({"retry": 3}, "fit: retry must be an object"),
        ({"retry": {"base_s": "1"}}, r"fit: retry\.base_s must be a number"),
        (
            {"retry": {"maxAttempts": 3}},
            r"fit: retry\.maxAttempts is not known; did you mean 'max_attempts'",
        ),
    ):
        with pytest.raises(ConfigError, match=said):
            worker.task("fit", **declares)(fit)
    assert (worker.functions, worker.declared) == ({}, [])
    worker.task("fit", retry={"retry_on": ("timeout",), "base_s": 1}, timeout=1)(fit)

"""Values put in where params say `{{name}}`: what is put in, what is refused, and how much."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.domain import placeholders
from rota.domain.placeholders import AtHand, inside, names_in
from rota.domain.values import DEPTH_MAX
from rota.errors import InvalidRequest

SAID = {"result": {"n": 7, "rows": [{"a": "x"}, None], "text": "hi"}, "task": {"id": "t1"}}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


def fill(params: dict[str, Any], said: dict[str, Any] | None = None) -> dict[str, Any]:
    return AtHand(SAID if said is None else said).fill_in(params)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{result.n}}", 7),
        ("{{ result.n }}", 7),
        ("{{result.rows.0.a}}", "x"),
        ("{{result.rows.1}}", None),
        ("{{result.rows}}", [{"a": "x"}, None]),
        ("{{task}}", {"id": "t1"}),
        ("n is {{result.n}}", "n is 7"),
        ("{{result.text}} {{task.id}}", "hi t1"),
        ("rows: {{result.rows}}", 'rows: [{"a":"x"},null]'),
        ("{{}}", "{{}}"),
        ("{{{task.id}}}", "{t1}"),
        ("plain", "plain"),
    ],
)
def test_a_placeholder_becomes_the_value(text: str, value: Any) -> None:
    assert fill({"p": text}) == {"p": value}


def test_they_are_found_wherever_they_are_but_not_in_names() -> None:
    params = {"{{task.id}}": [{"deep": "{{task.id}}"}, 5, None]}
    assert fill(params) == {"{{task.id}}": [{"deep": "t1"}, 5, None]}
    assert list(names_in(params)) == ["task.id"]


def test_what_is_put_in_is_not_read_again() -> None:
    said = {"result": "{{task.id}}", "task": {"id": "t1"}}
    assert fill({"a": "{{result}}", "b": "x {{result}}"}, said) == {
        "a": "{{task.id}}",
        "b": "x {{task.id}}",
    }


@pytest.mark.parametrize(
    "name",
    ["nothing", "result.m", "result.rows.2", "result.rows.-1", "result.rows.x", "result.n.x",
     "result.rows.²", "result.text.0", "result.", ".result", "result.rows." + "9" * 300],
)  # fmt: skip
def test_what_leads_nowhere_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidRequest, match="there is nothing for the placeholder"):
        fill({"p": f"{{{{{name}}}}}"})


def test_the_bytes_that_are_put_in_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placeholders, "FILLED_BYTES_MAX", 10)
    assert fill({"a": "{{result}}", "b": "{{result}}"}, {"result": "abc"})
    with pytest.raises(InvalidRequest, match="larger than 10 bytes"):
        fill({"a": "{{result}}", "b": "{{result}}", "c": "{{result}}"}, {"result": "abc"})


def test_the_places_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placeholders, "PLACES_MAX", 3)
    assert fill({"a": "{{task.id}}{{task.id}}{{task.id}}"}) == {"a": "t1t1t1"}
    with pytest.raises(InvalidRequest, match="more than 3 placeholders"):
        fill({"a": "{{task.id}}" * 4})


def test_the_names_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placeholders, "NAMES_CHARS_MAX", 14)
    assert fill({"a": "{{task.id}}{{task.id}}"}) == {"a": "t1t1"}
    with pytest.raises(InvalidRequest, match="longer than 14 characters"):
        fill({"a": "{{task.id}}" * 3})


def test_the_depth_is_bounded() -> None:
    deep: Any = 1
    for _ in range(DEPTH_MAX - 1):
        deep = [deep]
    assert fill({"a": "{{result}}"}, {"result": deep})
    with pytest.raises(InvalidRequest, match="nested deeper"):
        fill({"a": ["{{result}}"]}, {"result": deep})


def test_a_step_that_leads_nowhere_is_null() -> None:
    assert inside({"a": 1}, "a") == 1
    assert inside([1, 2], "1") == 2
    nowhere: list[Any] = [{}, [], "text", None, 5]
    assert [inside(value, "9") for value in nowhere] == [None] * 5


@given(JSON)
def test_a_whole_placeholder_is_the_value_whatever_it_is(value: Any) -> None:
    assert fill({"p": "{{result}}"}, {"result": value}) == {"p": value}


@given(st.dictionaries(st.text(max_size=4).filter(lambda text: "{{" not in text), JSON, max_size=4))
def test_params_without_placeholders_stay_as_they_are(params: dict[str, Any]) -> None:
    if not list(names_in(params)):
        assert fill(params) == params

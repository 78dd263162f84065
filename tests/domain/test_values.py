"""Counting the values of a text of JSON without reading it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.domain.values import has_more_values

TEXTS = st.text('ab,[]{}:"\\\n é', max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=30,
)


def count(value: Any) -> int:
    children = value.values() if isinstance(value, dict) else value
    return 1 + sum(map(count, children)) if isinstance(value, dict | list) else 1


def empties(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 0
    children = value.values() if isinstance(value, dict) else value
    return sum(map(empties, children)) if value else 1


@given(VALUES)
def test_a_count_is_exact_but_for_what_is_empty(value: Any) -> None:
    raw = orjson.dumps(value)
    most = count(value) + empties(value)
    assert not has_more_values(raw, most)
    assert has_more_values(raw, count(value) - 1)


@pytest.mark.parametrize("text", [b",", rb"\"", rb"\\", rb"\\\",", b"[{,"])
def test_what_stands_in_strings_does_not_count(text: bytes) -> None:
    raw = b'["' + text * 1000 + b'",1]'
    assert not has_more_values(raw, 4)
    assert has_more_values(raw, 2)


def test_more_strings_than_values_could_have_are_too_many() -> None:
    assert has_more_values(b"[" + b'"",' * 1000 + b"1]", 100)

"""What a task waits for, what dooms it, which graphs are refused, and what its parents leave it."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from support.builders import (
    assigned,
    cancelled,
    expired,
    failed,
    given,
    rejected,
    submitted,
    succeeded,
)

from rota.domain import dependencies
from rota.domain.dependencies import (
    PATH_SHOWN_MAX,
    Items,
    Prospects,
    Results,
    check_cycles,
    decide_dependencies,
    doom_reason,
    resolve,
)
from rota.domain.placeholders import FILLED_BYTES_MAX
from rota.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.builders import Given

    from rota.domain import events as e

settled = settings(max_examples=300, deadline=None, derandomize=True, database=None)


# -- names


def test_a_dependency_is_named_by_id_by_ref_or_by_index() -> None:
    found = resolve(("x9", "ref:two", 2), Items(["i0", "i1", "i2"], [None, "two", None]))
    assert found == {"x9": "x9", "two": "i1", "2": "i2"}


def test_an_item_with_a_ref_is_known_by_it_also_when_it_is_meant_by_index() -> None:
    assert resolve((0, "ref:a"), Items(["i0"], ["a"])) == {"0": "i0", "a": "i0"}


def test_a_task_on_its_own_has_no_items_to_refer_to() -> None:
    assert resolve(("a", "b")) == {"a": "a", "b": "b"}
    assert resolve(()) == {}
    with pytest.raises(InvalidRequest, match="'ref:a' means an item of a batch, and this is none"):
        resolve(("ref:a",))
    with pytest.raises(InvalidRequest, match="there is no item 0 in this batch"):
        resolve((0,))


# -- prospects


def prospects(story: Given, *depends: str, on_missing: str = "wait") -> Prospects:
    """What these dependencies mean in this story."""
    named = {name: name for name in depends}
    return decide_dependencies(named, on_missing, story.state.tasks.get)


def test_what_has_succeeded_is_waited_for_no_more() -> None:
    story = given(submitted(), assigned(), succeeded(), submitted("t2"), submitted("t3"))
    assert prospects(story, "t1") == Prospects(())
    assert prospects(story, "t1", "t2", "t3", "t2") == Prospects(("t2", "t3"))


@pytest.mark.parametrize(
    "life",
    [(), (assigned(),), (cancelled(),), (expired(),)],
    ids=["ready", "assigned", "cancelled", "expired"],
)
def test_what_has_not_succeeded_is_waited_for(life: tuple[e.Event, ...]) -> None:
    assert prospects(given(submitted(), *life), "t1").waits == ("t1",)


def test_what_failed_or_was_cancelled_dooms_and_the_first_is_named() -> None:
    story = given(
        submitted(),
        submitted("t2"),
        assigned("t2"),
        failed("t2"),
        submitted("t3"),
        cancelled("t3"),
        submitted("t4"),
        expired("t4"),
    )
    tasks = story.state.tasks.by_id
    assert prospects(story, "t1").doomed_by is None
    assert prospects(story, "t1", "t2").doomed_by is tasks["t2"]
    assert prospects(story, "t3", "t2").doomed_by is tasks["t3"]
    assert prospects(story, "t4").doomed_by is tasks["t4"]


def test_a_missing_task_is_waited_for_unless_it_must_not_be() -> None:
    assert prospects(given(), "nobody") == Prospects(("nobody",))
    with pytest.raises(InvalidRequest, match="there is no task 'nobody'") as caught:
        prospects(given(), "nobody", on_missing="fail")
    assert caught.value.code == "missing_dependency"
    assert caught.value.details == {"field": "dependsOn", "taskId": "nobody"}
    story = given(submitted())
    assert prospects(story, "t1", on_missing="fail") == Prospects(("t1",))


def test_a_rejected_task_can_never_be_depended_on() -> None:
    with pytest.raises(InvalidRequest, match="task 't1' was rejected") as caught:
        prospects(given(rejected()), "t1")
    assert caught.value.code == "dependency_rejected"


@pytest.mark.parametrize(
    ("life", "words"),
    [
        ((assigned(), failed()), "dependency t1 failed"),
        ((expired(),), "dependency t1 failed"),
        ((cancelled(),), "dependency t1 was cancelled"),
    ],
)
def test_the_reason_says_which_dependency_ended_how(life: tuple[e.Event, ...], words: str) -> None:
    assert doom_reason(given(submitted(), *life).task) == words


# -- cycles

NAMES = [f"n{n}" for n in range(8)]
GRAPHS = st.dictionaries(
    st.sampled_from(NAMES), st.lists(st.sampled_from(NAMES), max_size=3, unique=True), max_size=8
)


def has_cycle(graph: dict[str, list[str]]) -> bool:
    """Kahn: take away what waits for nobody until nothing is left, or nobody can go."""
    waits = {name: set(graph.get(name, ())) for name in NAMES}
    while free := [name for name, parents in waits.items() if not parents]:
        for name in free:
            del waits[name]
        for parents in waits.values():
            parents.difference_update(free)
    return bool(waits)


def lookup(graph: dict[str, list[str]]) -> Callable[[str], list[str]]:
    """What tasks that exist wait for."""
    return lambda name: graph.get(name, [])


def check_refusal(
    graph: dict[str, list[str]], new: dict[str, list[str]], old: dict[str, list[str]]
) -> None:
    """New edges are refused if there is a cycle in all of them, and the path shown is one."""
    if not has_cycle(graph):
        check_cycles(new, lookup(old))
        return
    with pytest.raises(InvalidRequest) as caught:
        check_cycles(new, lookup(old))
    error = caught.value
    assert error.code == "dependency_cycle"
    path = error.details["path"]
    assert path[0] == path[-1]
    assert len(path) == len(set(path)) + 1
    assert " -> ".join(path) in error.message
    for at, waits_for in pairwise(path):
        assert waits_for in graph[at]


@settled
@for_all(GRAPHS)
def test_a_batch_is_refused_exactly_if_it_has_a_cycle(graph: dict[str, list[str]]) -> None:
    check_refusal(graph, graph, {})


@settled
@for_all(GRAPHS, st.integers(0, 8))
def test_a_cycle_is_found_through_tasks_that_wait_already(
    graph: dict[str, list[str]], cut: int
) -> None:
    """Some of the graph exists, without a cycle of its own; the rest is submitted."""
    names = sorted(graph)
    old = {name: graph[name] for name in names[:cut]}
    if not has_cycle(old):
        check_refusal(graph, {name: graph[name] for name in names[cut:]}, old)


@settled
@for_all(GRAPHS, st.randoms(use_true_random=False))
def test_tasks_submitted_one_by_one_never_make_a_cycle(
    graph: dict[str, list[str]], pick: Any
) -> None:
    """In any order, waiting for tasks that are still to come; who would close one is refused."""
    there: dict[str, list[str]] = {}
    order = sorted(graph)
    pick.shuffle(order)
    for name in order:
        with_it = {**there, name: graph[name]}
        check_refusal(with_it, {name: graph[name]}, there)
        if not has_cycle(with_it):
            there = with_it


def test_a_long_chain_is_followed_to_its_end_and_shown_in_part() -> None:
    length = 20_000
    chain = {f"c{n}": [f"c{n + 1}"] for n in range(length)}
    check_cycles({"new": ["c0"]}, lookup(chain))
    with pytest.raises(InvalidRequest) as caught:
        check_cycles({f"c{length}": ["c0"]}, lookup(chain))
    path = caught.value.details["path"]
    assert len(path) == PATH_SHOWN_MAX + 1
    assert (path[0], path[1], path[-1]) == (f"c{length}", "c0", "...")


def test_many_ways_between_two_tasks_are_walked_once() -> None:
    """Sixty diamonds in a row: more paths than could ever be counted."""
    ladder: dict[str, list[str]] = {}
    for n in range(60):
        ladder[f"top{n}"] = [f"left{n}", f"right{n}"]
        ladder[f"left{n}"] = ladder[f"right{n}"] = [f"top{n + 1}"]
    check_cycles(ladder, lookup({}))
    check_cycles({"new": ["top0"]}, lookup(ladder))
    with pytest.raises(InvalidRequest, match="dependsOn closes a cycle"):
        check_cycles({"top60": ["top0"]}, lookup(ladder))


# -- results


def parents(**results: Any) -> Results:
    """The results of parents that are known under these names."""
    events: list[e.Event] = []
    for name, result in results.items():
        events += [submitted(f"id-{name}"), assigned(f"id-{name}")]
        events.append(succeeded(f"id-{name}", result=result))
    return Results({name: f"id-{name}" for name in results}, given(*events).state.tasks.get)


PAGE = {"title": "Shop", "items": [{"price": 3}, {"price": 4.5}], "none": None, "ok": True}


@pytest.mark.parametrize(
    ("params", "filled"),
    [
        ("{{page}}", PAGE),
        ("{{ page }}", PAGE),
        ("{{page.title}}", "Shop"),
        ("{{page.items.1.price}}", 4.5),
        ("{{page.items}}", PAGE["items"]),
        ("{{page.none}}", None),
        ("{{page.nowhere.at.all}}", None),
        ("{{page.items.7}}", None),
        ("{{page.items.-1}}", None),
        ("{{page.title.0}}", None),
        ("at {{page.title}}!", "at Shop!"),
        ("{{page.title}}{{page.ok}}", "Shoptrue"),
        ("<{{page.items.0}}>", '<{"price":3}>'),
        ("<{{page.none}}>", "<null>"),
        ("{{stranger}}", "{{stranger}}"),
        ("{{stranger.page}} {{page.title}}", "{{stranger.page}} Shop"),
        ("{{}} {{ }} {page} { {page} }", "{{}} {{ }} {page} { {page} }"),
        ("no place at all", "no place at all"),
        (7, 7),
        (None, None),
        (
            {"a": ["{{page.ok}}", {"b": "{{page.title}}"}], "n": 1.5},
            {"a": [True, {"b": "Shop"}], "n": 1.5},
        ),
        ({"{{page.title}}": 1}, {"{{page.title}}": 1}),
    ],
)
def test_results_are_put_where_the_params_ask_for_them(params: Any, filled: Any) -> None:
    assert parents(page=PAGE).fill_in(params) == filled


def test_a_result_with_a_placeholder_in_it_is_put_in_as_it_is() -> None:
    results = parents(one="{{two}}", two="secret")
    assert results.fill_in("{{one}}") == "{{two}}"
    assert results.fill_in("see {{one}}") == "see {{two}}"


def test_a_name_with_dots_is_found_before_a_path_is() -> None:
    tasks = given(
        submitted("t.1"), assigned("t.1"), succeeded("t.1", result={"x": 1}), submitted("t")
    ).state.tasks
    results = Results({"t.1": "t.1", "t": "t"}, tasks.get)
    assert results.fill_in("{{t.1}}") == {"x": 1}
    assert results.fill_in("{{t.1.x}}") == 1
    assert results.fill_in("{{t.2}}") is None


def test_a_path_is_walked_once_however_often_params_ask_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    walked: list[str] = []
    step_into = dependencies.inside

    def inside(value: Any, step: str) -> Any:
        walked.append(step)
        return step_into(value, step)

    monkeypatch.setattr(dependencies, "inside", inside)
    results = parents(page=PAGE)
    asked = [f"{{{{page{'.' * n}items.1.price}}}}" for n in range(1, 300)]
    assert results.fill_in(asked) == [4.5] * 299
    assert walked == ["items", "1", "price"]
    assert results.fill_in(["{{page" + ".nowhere" * 40 + "}}"]) == [None]
    assert walked[3:] == ["nowhere"]


def test_a_parent_that_cannot_be_found_leaves_nothing() -> None:
    results = Results({"gone": "gone"}, given().state.tasks.get)
    assert results.fill_in(["{{gone}}", "<{{gone.x}}>"]) == [None, "<null>"]


def test_params_that_grow_past_all_bounds_are_refused() -> None:
    """A result of a megabyte, asked for often enough."""
    results = parents(big="x" * (1 << 20))
    fits = FILLED_BYTES_MAX // ((1 << 20) + 2)
    assert len(results.fill_in(["{{big}}"] * fits)) == fits
    with pytest.raises(InvalidRequest, match="larger than 4194304 bytes"):
        results.fill_in("{{big}}")


def test_the_params_themselves_are_not_changed() -> None:
    params = {"a": ["{{page.title}}"]}
    parents(page=PAGE).fill_in(params)
    assert params == {"a": ["{{page.title}}"]}


@settled
@for_all(st.text(alphabet="{} page.t0", max_size=40))
def test_no_text_whatever_breaks_the_filling(text: str) -> None:
    filled = parents(page="!").fill_in(text)
    if "{{" not in text:
        assert filled == text

"""The tab executor: which endpoint an attempt goes to, and what its body is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import Target, target

from rota.domain.commands import Outcome
from rota.executors.port import Attempt
from rota.executors.tab import NO_TAB, TabExecutor

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def browser() -> Iterator[Target]:
    with target() as made:
        yield made


def act(browser: Target, prefix: str = "", **fields: Any) -> Outcome:
    """Run one attempt on the browser."""
    known: dict[str, Any] = {
        "task": "tsk_1",
        "agent": "ann",
        "number": 1,
        "token": 7,
        "executor": "tab",
        "action": "click",
        "params": {},
        "tab": "TAB",
    }

    async def go() -> Outcome:
        executor = TabExecutor(browser.url + prefix)
        try:
            return await executor.run(Attempt(**known | fields), [].append)
        finally:
            await executor.close()

    return asyncio.run(go())


def test_action_becomes_kind_at_the_tabs_endpoint(browser: Target) -> None:
    assert act(browser, action="type", ref="e1", params={"text": "hi"}).ok
    (request,) = browser.requests
    assert request.path == "/tabs/TAB/action"
    assert request.body == {"kind": "type", "ref": "e1", "text": "hi"}
    assert request.headers["x-rota-task-id"] == "tsk_1"
    assert request.headers["x-rota-agent-id"] == "ann"
    assert request.headers["x-rota-attempt"] == "1"


def test_the_address_may_have_a_path_of_its_own(browser: Target) -> None:
    act(browser, prefix="/browser/")
    assert browser.requests[0].path == "/browser/tabs/TAB/action"


@pytest.mark.parametrize("tab", [None, ""])
def test_without_a_tab_nothing_is_sent(browser: Target, tab: str | None) -> None:
    outcome = act(browser, tab=tab)
    assert outcome == Outcome(ok=False, code="tab_required", error=NO_TAB)
    assert NO_TAB == "tabId is required for task execution"
    assert browser.requests == []


def test_params_are_merged_but_cannot_override_kind_tab_or_ref(browser: Target) -> None:
    act(browser, ref="e1", params={"kind": "evil", "tabId": "x", "ref": "x", "y": [1]})
    assert browser.requests[0].body == {"kind": "click", "ref": "e1", "y": [1]}


def test_a_ref_among_the_params_stands_in_for_a_missing_one(browser: Target) -> None:
    act(browser, params={"ref": "e9"})
    assert browser.requests[0].body == {"kind": "click", "ref": "e9"}


@pytest.mark.parametrize(
    ("tab", "path"),
    [
        ("a/b", "/tabs/a%2Fb/action"),
        ("a b", "/tabs/a%20b/action"),
        ("a?b#c", "/tabs/a%3Fb%23c/action"),
        ("100%", "/tabs/100%25/action"),
        ("%2F", "/tabs/%252F/action"),
        ("é", "/tabs/%C3%A9/action"),
        ("a\\b", "/tabs/a%5Cb/action"),
    ],
)
def test_a_tab_is_one_segment_of_the_path(browser: Target, tab: str, path: str) -> None:
    act(browser, tab=tab)
    assert browser.requests[0].path == path


@pytest.mark.parametrize("tab", [".", ".."])
def test_a_tab_cannot_climb_out_of_its_path(browser: Target, tab: str) -> None:
    act(browser, prefix="/browser", tab=tab)
    for request in browser.requests:
        assert request.path.startswith("/browser/tabs/")
        assert request.path.count("/") == 4


def test_the_answer_is_the_result_and_400_or_more_fails(browser: Target) -> None:
    assert act(browser, params={"json": {"n": 1}}) == Outcome(ok=True, result={"n": 1})
    outcome = act(browser, params={"status": 404, "text": "no tab"})
    assert (outcome.ok, outcome.error) == (False, "executor returned 404: no tab")

"""Whose turn it is: priority, then age, inside an agent; turns between agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from support.http_server import Rota, Target


def occupy(rota: Rota, browser: Target) -> None:
    """Keep the only worker busy, so that what comes next has to queue."""
    rota.submit("someone", tabId="t", params={"hold": "busy", "tag": "busy"})
    browser.wait_for(1)


def queue(rota: Rota, agent: str, tag: str, priority: int = 0) -> None:
    rota.submit(agent, tabId="t", priority=priority, params={"tag": tag})


def order(browser: Target, count: int) -> list[str]:
    """Let the worker go on, and see who was served when."""
    browser.release("busy")
    browser.wait_for(1 + count)
    return browser.tags()[1:]


def test_first_come_first_served(rota: Rota, browser: Target) -> None:
    occupy(rota, browser)
    for tag in ("one", "two", "three"):
        queue(rota, "ann", tag)

    assert order(browser, 3) == ["one", "two", "three"]


def test_a_lower_priority_goes_first(rota: Rota, browser: Target) -> None:
    occupy(rota, browser)
    queue(rota, "ann", "whenever", priority=9)
    queue(rota, "ann", "urgent", priority=0)
    queue(rota, "ann", "soon", priority=3)

    assert order(browser, 3) == ["urgent", "soon", "whenever"]


def test_agents_take_turns(rota: Rota, browser: Target) -> None:
    occupy(rota, browser)
    for tag in ("a1", "a2", "a3"):
        queue(rota, "ann", tag)
    queue(rota, "bob", "b1")

    assert order(browser, 4) == ["a1", "b1", "a2", "a3"]


def test_a_paused_agent_lets_the_others_pass(rota: Rota, browser: Target) -> None:
    rota.post("/v1/agents/ann/pause")
    queue(rota, "ann", "ann")
    queue(rota, "bob", "bob")
    browser.wait_for(1)
    rota.post("/v1/agents/ann/resume")
    browser.wait_for(2)

    assert browser.tags() == ["bob", "ann"]

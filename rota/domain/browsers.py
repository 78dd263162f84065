"""Decide: whether another browser may be started.

BrowserManager bounds browsers, not jobs: one that was started runs until it is stopped. A start
under way counts as well, so that two of them cannot take one place. At the bound a start fails at
once and is not tried again (the document's 4.4); one of a profile whose browser runs already adds
none, and goes ahead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rota.domain import events as e

if TYPE_CHECKING:
    from rota.domain.task import Task

START, STOP, STOP_ALL = "browser_start", "browser_stop", "browser_stop_all"
REACHED = "Max concurrent browsers reached"
REACHED_CODE = "max_concurrent_browsers"


class BrowserCounts(Protocol):
    """The browsers that run, or are being started."""

    @property
    def count(self) -> int: ...

    def has(self, browser: str) -> bool: ...


def has_profile(task: Task) -> bool:
    """Whether a stop can name the browser that a start has started."""
    return task.plan is not None and bool(task.plan.key)


def browser_of(task: Task) -> str:
    """Name the browser of a job: its profile's, or one that is nobody else's."""
    profile = task.plan.key if task.plan is not None else None
    return f"p:{profile}" if profile else f"t:{task.id}"


def decide_browser(task: Task, browsers: BrowserCounts, most: int) -> e.TaskFailed | None:
    """Fail a start whose turn has come while `most` browsers run; None if it may go ahead."""
    if not most or task.action != START or browsers.count < most:
        return None
    if browsers.has(browser_of(task)):
        return None
    details = {"active": browsers.count, "max": most}
    return e.TaskFailed(task.id, task.agent, task.attempt, REACHED_CODE, REACHED, details)

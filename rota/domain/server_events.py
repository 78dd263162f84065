"""The facts about a server and what people set: starts, limits, faults, its clock, pauses, tokens.

They are named among the others in events.py, which is what everybody imports.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class ServerStarted(NamedTuple):
    """A server opened the log; `settings` are the limits in force from here on.

    `resumed` marks one that had it open already and went on after the log had failed. `rules` are
    those of intake, written out; None if they are what they were. After a gap in time the clock is
    not believed at once: until `settles_at` nothing is forgotten by it.
    """

    version: str
    settings: dict[str, Any]
    replayed_to: int = 0
    resumed: bool | None = None
    rules: dict[str, Any] | None = None
    settles_at: int | None = None


class ServerStopped(NamedTuple):
    """A server closed the log in good order."""

    reason: str


class ConfigChanged(NamedTuple):
    """Limits or rules changed at run time; `settings` are all limits in force from here on.

    `changed` names the limits that changed. `rules` are those of intake; None if they did not.
    """

    settings: dict[str, Any]
    changed: list[str]
    source: str
    rules: dict[str, Any] | None = None


class ActorFailed(NamedTuple):
    """A handler raised; its actor was restarted from the projections.

    `missed` counts those like it since the last that was recorded. A route or an effect of an event
    that raised is recorded likewise: the `actor` is "route" or "effect", the event the `message`.
    """

    actor: str
    message: str
    error: str
    missed: int | None = None


class ClockStepped(NamedTuple):
    """The server's clock was set: it `was` at one moment and is at another, `now`.

    Records are dated by the new time from this one on, which may be before those ahead of it. One
    that `corrects` sets a clock right that was ahead at the start: what happened before the start
    was dated rightly, and is not carried over.
    """

    was: int
    now: int
    corrects: bool | None = None


class AgentPaused(NamedTuple):
    """No task of this agent is dispatched until it is resumed."""

    agent: str
    reason: str = ""


class AgentResumed(NamedTuple):
    """The agent's tasks may be dispatched again."""

    agent: str


class TypePaused(NamedTuple):
    """No task of this type is dispatched until it is resumed."""

    type: str
    reason: str = ""


class TypeResumed(NamedTuple):
    """Tasks of this type may be dispatched again."""

    type: str


class TypeDeclared(NamedTuple):
    """A worker declared what tasks of a type get that say nothing; all None takes it back.

    It is for those of one `agent`, or of all if that is empty, and is the token's that recorded it.
    """

    agent: str
    type: str
    retry: dict[str, Any] | None = None
    timeout_ms: int | None = None
    max_concurrent: int | None = None


class SchedulerPaused(NamedTuple):
    """Nothing at all is dispatched until the scheduler is resumed."""

    reason: str = ""


class SchedulerResumed(NamedTuple):
    """Tasks may be dispatched again."""


class TokenCreated(NamedTuple):
    """A token was made; `hash` is that of its secret, which nobody keeps.

    `agents` are those that it is for, with `*` all of them; None where the role is not limited.
    What is done with it is `by` its `principal`, which no other token ever has; by its name if that
    is None, as it is of the first tokens that there were.
    """

    name: str
    role: str
    hash: str
    agents: list[str] | None = None
    expires_at: int | None = None
    principal: str | None = None


class TokenRevoked(NamedTuple):
    """The token is good for nothing any more."""

    name: str

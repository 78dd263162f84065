"""Where groups of lanes wait that a full limit holds back.

A group is parked under one limit: with its agent, among the agent's other groups there, and its
agent in the limit's line. So one agent with a thousand keys and one limit with ten thousand agents
both cost little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rota.domain.task import Lane

Group = tuple[str, ...]
"""The capped limits that hold lanes back; lanes with the same ones are served as one."""
Standing = tuple[int, int, str]
"""(in flight, since, agent): the smallest is the fairest."""

OWN = ("key:", "batch:")
"""How the limits begin that one agent may wait for in thousands."""
OWN_FEW = 8
"""So many of them an agent keeps its place in all their lines for."""


class Park:
    """The groups of one agent that are parked under one limit, best first."""

    __slots__ = ("groups", "heap")

    def __init__(self) -> None:
        """Start empty."""
        self.groups: set[Group] = set()
        self.heap: list[tuple[int, int, Group]] = []


class Line:
    """The agents that have groups parked under one limit, fairest first."""

    __slots__ = ("agents", "heap")

    def __init__(self) -> None:
        """Start empty."""
        self.agents: set[str] = set()
        self.heap: list[Standing] = []


class AgentTurn:
    """What `Turns` knows of one agent: the heads of its lanes by group, and the parked groups.

    Parked under `shared` limits (few: push, types) an agent keeps its place in their lines up to
    date, and under its `own` ones (keys, batches) as long as they are few; if they are many,
    whoever frees a slot looks.
    """

    __slots__ = ("groups", "heads", "own", "parked", "shared")

    def __init__(self) -> None:
        """Start empty."""
        self.groups: dict[Group, list[tuple[int, int, Lane]]] = {}
        self.heads: list[tuple[int, int, Group]] = []
        self.parked: dict[Group, str] = {}
        self.shared: dict[str, Park] = {}
        self.own: dict[str, Park] = {}

    def parks(self, limit: str) -> dict[str, Park]:
        """Give the parks that a limit's is among."""
        return self.own if limit.startswith(OWN) else self.shared

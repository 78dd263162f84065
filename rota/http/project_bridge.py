"""What handlers may do with projects.

A token that is for some agents is for the projects that are called as they are: others are not
there for it. Nor are others' tasks on those lists, which is for the decision to say: else the
answer could come in another order than for what never was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.actors import project_messages as pm
from rota.domain.project_lists import known

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.domain.intake import Request
    from rota.http.bridge import Bridge


class ProjectsBridge:
    """The projects' part of a bridge."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._actor = bridge.shard.projects
        self._sees = bridge.sight.may_see

    def check_seen(self, project: str) -> None:
        """Refuse what is another's as if it were not there. Raises NotFound."""
        if not self._sees(project):
            known(None)

    async def create(self, project: str, by: str) -> bool:
        """Make an empty project; say whether there was none of that name. Raises QueueFull."""
        made: bool = await self._bridge.ask(
            self._actor, lambda reply: pm.CreateProject(project, by, reply)
        )
        return made

    async def add(
        self,
        project: str,
        requests: tuple[Request, ...],
        before: str | None,
        by: str,
        *,
        is_one_key: bool,
    ) -> list[pm.ItemAdded]:
        """Put tasks on a list, all or none. Raises a RequestError."""
        added: list[pm.ItemAdded] = await self._bridge.ask(
            self._actor,
            lambda reply: pm.AddItems(
                project, requests, before, by, reply, sees=self._sees, is_one_key=is_one_key
            ),
        )
        return added

    async def edit(
        self,
        project: str,
        item: str,
        change: Callable[[Request], Request] | None,
        *,
        moves: bool,
        place: str | int | None,
        by: str,
    ) -> None:
        """Change what has not started. Raises a RequestError."""
        self.check_seen(project)
        await self._bridge.ask(
            self._actor,
            lambda reply: pm.EditItem(project, item, change, moves, place, by, reply, self._sees),
        )

    async def remove(self, project: str, item: str, reason: str, by: str) -> None:
        """Take off a list what has not started. Raises NotFound or Conflict."""
        self.check_seen(project)
        await self._bridge.ask(
            self._actor, lambda reply: pm.RemoveItem(project, item, reason, by, reply, self._sees)
        )

    async def delete(self, project: str, reason: str, by: str) -> int:
        """Drop a project; give how many tasks its list had. Raises NotFound or Conflict."""
        self.check_seen(project)
        count: int = await self._bridge.ask(
            self._actor, lambda reply: pm.DeleteProject(project, reason, by, reply, self._sees)
        )
        return count

    async def run(
        self, project: str, mode: str, item: str | None, by: str, reason: str = ""
    ) -> str:
        """Start a run; give its id. Raises NotFound or Conflict."""
        self.check_seen(project)
        run: str = await self._bridge.ask(
            self._actor,
            lambda reply: pm.StartRun(project, mode, item, by, reply, reason, self._sees),
        )
        return run

    async def stop(self, project: str, reason: str, *, force: bool, by: str) -> pm.Stopping:
        """Have a run end; give what ends. Raises NotFound."""
        self.check_seen(project)
        stopping: pm.Stopping = await self._bridge.ask(
            self._actor, lambda reply: pm.StopRun(project, reason, force, by, reply)
        )
        return stopping

"""What handlers may do with projects.

A token that is for some agents is for the projects that are called as they are: others are not
there for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.actors import project_messages as pm
from rota.domain.project_lists import known, not_listed

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.domain.intake import Request
    from rota.http.bridge import Bridge


class ProjectsBridge:
    """The projects' part of a bridge."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._actor = bridge.shard.projects

    def check_seen(self, project: str, item: str | None = None) -> None:
        """Refuse what is another's as if it were not there. Raises NotFound."""
        if not self._bridge.sight.may_see(project):
            known(None)
        found = self._bridge.shard.state.projects.get(project) if item is not None else None
        on_list = found.find(item) if found is not None and item is not None else None
        if on_list is not None and not self._bridge.sight.may_see(on_list.agent):
            raise not_listed(project, on_list.id)

    async def add(
        self, project: str, requests: tuple[Request, ...], before: str | None, by: str
    ) -> list[pm.ItemAdded]:
        """Put tasks on a list, all or none. Raises a RequestError."""
        added: list[pm.ItemAdded] = await self._bridge.ask(
            self._actor, lambda reply: pm.AddItems(project, requests, before, by, reply)
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
        self.check_seen(project, item)
        await self._bridge.ask(
            self._actor,
            lambda reply: pm.EditItem(project, item, change, moves, place, by, reply),
        )

    async def remove(self, project: str, item: str, reason: str, by: str) -> None:
        """Take off a list what has not started. Raises NotFound or Conflict."""
        self.check_seen(project, item)
        await self._bridge.ask(
            self._actor, lambda reply: pm.RemoveItem(project, item, reason, by, reply)
        )

    async def delete(self, project: str, reason: str, by: str) -> int:
        """Drop a project; give how many tasks its list had. Raises NotFound or Conflict."""
        self.check_seen(project)
        count: int = await self._bridge.ask(
            self._actor, lambda reply: pm.DeleteProject(project, reason, by, reply)
        )
        return count

    async def run(
        self, project: str, mode: str, item: str | None, by: str, reason: str = ""
    ) -> str:
        """Start a run; give its id. Raises NotFound or Conflict."""
        self.check_seen(project)
        run: str = await self._bridge.ask(
            self._actor, lambda reply: pm.StartRun(project, mode, item, by, reply, reason)
        )
        return run

    async def stop(self, project: str, reason: str, *, force: bool, by: str) -> pm.Stopping:
        """Have a run end; give what ends. Raises NotFound."""
        self.check_seen(project)
        stopping: pm.Stopping = await self._bridge.ask(
            self._actor, lambda reply: pm.StopRun(project, reason, force, by, reply)
        )
        return stopping

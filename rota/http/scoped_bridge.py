"""The bridge of a caller whose token is for some agents: the same, for those agents alone.

What it asks for others is refused, what it looks for of others is not there. A task of its own may
depend only on what it can see: else it would learn of another's by being let go, or by the result
that fills in its params. So whoever is limited cannot wait for what is not there yet, either.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rota.domain.dependencies import REF
from rota.errors import Conflict, InvalidRequest, NotFound, RotaError
from rota.http.bridge import Bridge
from rota.projections import keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.actors import messages as m
    from rota.config import Settings
    from rota.domain.intake import BatchRequest, Request
    from rota.http.access import Caller


class ScopedBridge(Bridge):
    """What the handlers of one caller's requests may do with a shard."""

    def __init__(self, whole: Bridge, caller: Caller) -> None:
        """Do what `whole` does, for the caller's agents."""
        assert caller.agents is not None
        self.shard, self.feed, self.guard = whole.shard, whole.feed, whole.guard
        self.sight = whole.sight.limited_to(caller.agents.__contains__)
        self._whole = whole
        self._caller = caller

    @property
    def settings(self) -> Settings:  # type: ignore[override]  # those of the whole, as they change
        return self._whole.settings

    async def submit(
        self, requests: tuple[Request, ...]
    ) -> list[m.Admitted | m.Refused | RotaError]:
        """Submit tasks of the caller's agents. Raises HttpProblem or InvalidRequest."""
        await self._check(requests)
        answers = await super().submit(requests)
        return [_hushed(each) if isinstance(each, RotaError) else each for each in answers]

    async def submit_batch(self, batch: BatchRequest) -> m.BatchAdmitted:
        """Submit a batch of the caller's agents, whole. Raises HttpProblem or a RequestError."""
        await self._check(batch.tasks)
        try:
            return await super().submit_batch(batch)
        except InvalidRequest as error:
            raise _hushed(error) from None

    async def _check(self, requests: Sequence[Request]) -> None:
        self._caller.check_agents(request.agent for request in requests)
        own = {request.wanted_id for request in requests}
        for workflow in {request.plan.workflow for request in requests} - {None}:
            await self.sight.show_workflow(workflow or "", lambda *_: None)  # or it is not there
        for request in requests:
            for each in request.depends:
                if isinstance(each, str) and not each.startswith(REF) and each not in own:
                    await self._check_parent(each)
            if request.dedup is not None:
                key = request.dedup.key
                await self.sight.checked(partial(self._check_dedup, request.by, key))

    async def _check_parent(self, task_id: str) -> None:
        """Refuse to depend on what is another's, as if it were not there. Raises InvalidRequest."""
        try:
            await self.sight.task(task_id)
        except NotFound:
            msg = f"field 'dependsOn': there is no task '{task_id[:100]}' of this token's agents"
            details = {"field": "dependsOn", "taskId": task_id[:200]}
            raise InvalidRequest(msg, code="missing_dependency", details=details) from None

    async def _check_dedup(self, by: str, key: str) -> None:
        """Refuse a key that a token of this name had for another agent's task. Raises Conflict."""
        held = self.shard.state.keys.find(keys.dedup(by, key), self.sight.now())
        if held is None:
            return
        try:
            await self.sight.task(held.subject)
        except NotFound:
            msg = "this dedup key is in use"
            raise Conflict(msg, code="duplicate", details={"dedupKey": key}) from None


def _hushed(error: RotaError) -> RotaError:
    """Leave out of an error what may be another's: the tasks along a cycle."""
    if error.code != "dependency_cycle":
        return error
    return InvalidRequest("dependsOn closes a cycle", code=error.code)

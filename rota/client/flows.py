"""What a client asks about workflows and dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.client.paths import path_of

if TYPE_CHECKING:
    from rota.client.transport import Json


class FlowCalls:
    """The calls; mixed into the client, which knows how to send them."""

    def _get(self, path: str, /, **query: Any) -> Json:
        raise NotImplementedError

    def _post(self, path: str, body: Json | None = None) -> Json:
        raise NotImplementedError

    def submit_workflow(self, body: Json) -> Json:
        """Submit a workflow: the body of POST /v1/workflows."""
        return self._post("/v1/workflows", body)

    def get_workflow(self, workflow_id: str) -> Json:
        """Give one workflow, with its tasks and edges. Raises NotFound."""
        return self._get(path_of("workflows", workflow_id))

    def workflows(
        self,
        *,
        state: str | None = None,
        name: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Json:
        """Give a page of workflows, newest first; `nextCursor` leads to the next one."""
        return self._get("/v1/workflows", state=state, name=name, limit=limit, cursor=cursor)

    def steer_workflow(self, workflow_id: str, how: str, reason: str = "") -> Json:
        """Do `how` with a workflow: cancel, pause, resume, close. Raises NotFound or Conflict."""
        return self._post(path_of("workflows", workflow_id, how), {"reason": reason})

    def dead(self, **query: Any) -> Json:
        """Give a page of dead tasks: by agentId, type, workflowId, code, q, limit, cursor."""
        return self._get("/v1/dead", **query)

    def revive(self, task_id: str, *, params: Json | None = None, dependents: bool = False) -> Json:
        """Give a dead task a new life. Raises NotFound, Conflict or QueueFull."""
        body: Json = {"dependents": dependents}
        if params is not None:
            body["params"] = params
        return self._post(path_of("dead", task_id, "revive"), body)

    def revive_many(self, **fields: Any) -> Json:
        """Give dead tasks new lives: the body of POST /v1/dead/revive."""
        body = {name: value for name, value in fields.items() if value is not None}
        return self._post("/v1/dead/revive", body)

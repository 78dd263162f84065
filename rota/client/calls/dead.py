"""Dead letters: what has failed for good, and giving it a new life."""

from __future__ import annotations

from rota.client.faces import asks, iterates
from rota.client.models import DeadPage, DeadTask, Revived, RevivedMany
from rota.client.pages import all_rows
from rota.client.paths import path_of, said
from rota.client.steps import Call, Json, Rows


class DeadCalls:
    """/v1/dead."""

    @asks(DeadPage)
    def dead(
        self,
        *,
        agent: str | None = None,
        action: str | None = None,
        workflow_id: str | None = None,
        code: str | None = None,
        q: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Call:
        """Give a page of what has failed for good; `next_cursor` leads to the next one.

        `code` is the error's, `q` are words in it.
        """
        query = {"agentId": agent, "type": action, "workflowId": workflow_id, "code": code, "q": q}
        return Call("GET", "/v1/dead", {**query, "limit": limit, "cursor": cursor}, is_safe=True)

    @iterates(DeadTask)
    def iter_dead(
        self, *, agent: str | None = None, action: str | None = None, workflow_id: str | None = None
    ) -> Rows[Json]:
        """Give all of them, asked for a page at a time."""
        query = {"agentId": agent, "type": action, "workflowId": workflow_id}
        return all_rows("dead", "/v1/dead", query)

    @asks(Revived)
    def revive(
        self, task_id: str, *, params: Json | None = None, dependents: bool | None = None
    ) -> Call:
        """Give a dead task a new life, with other params if given. Raises NotFound, Conflict.

        With `dependents` also those whom its failure cancelled.
        """
        body = said({"params": params, "dependents": dependents})
        return Call("POST", path_of("dead", task_id, "revive"), body=body)

    @asks(RevivedMany)
    def revive_many(
        self,
        *,
        agent: str | None = None,
        action: str | None = None,
        workflow_id: str | None = None,
        code: str | None = None,
        everything: bool | None = None,
        limit: int | None = None,
        dependents: bool | None = None,
    ) -> Call:
        """Give all dead tasks that the filters name a new life; says which.

        Without a filter `everything` must be asked for.
        """
        body = {"agentId": agent, "type": action, "workflowId": workflow_id, "code": code}
        rest = {"all": everything or None, "limit": limit, "dependents": dependents}
        body_said = said({**body, **rest})
        return Call("POST", "/v1/dead/revive", body=body_said)

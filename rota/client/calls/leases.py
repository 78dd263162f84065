"""Leases: taking tasks, keeping them, and giving them back with what became of them.

Most programs want `rota.client.Worker`, which does all of this by itself. An outcome carries the
token of its lease, so the server takes it at most once, and a client may send it again: the same
is answered as the first time, anything else is refused with `stale_attempt`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.client.faces import asks, iterates
from rota.client.fields import DeclaredType, Outcome, Want
from rota.client.pages import all_rows
from rota.client.paths import path_of, said
from rota.client.steps import Call, Json, Rows
from rota.client.words import in_ms, wire
from rota.client.work_models import (
    DeclaredPage,
    Heartbeat,
    Leases,
    Settled,
    SettledMany,
    WorkerInfo,
    WorkerPage,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rota.client.fields import Level


class LeaseCalls:
    """/v1/leases, /v1/workers, POST /v1/types."""

    @asks(Leases)
    def lease(
        self,
        worker_id: str,
        *,
        agents: Iterable[str] = (),
        actions: Iterable[str] = (),
        wants: Iterable[Want] = (),
        labels: Iterable[str] = (),
        max_tasks: int = 1,
        wait_s: float = 0.0,
        lease_s: float | None = None,
        start: bool | None = None,
    ) -> Call:
        """Take up to so many tasks; wait up to `wait_s` for the first.

        Instead of `agents` and `actions`, several filters can be given: `wants` is a list of
        {"agents", "actions"}.
        """
        wish = lease_wish(
            agents=agents,
            actions=actions,
            wants=wants,
            labels=labels,
            max_tasks=max_tasks,
            wait_s=wait_s,
            lease_s=lease_s,
            start=start,
        )
        return Call("POST", "/v1/leases", body={"workerId": worker_id, **wish}, wait_s=wait_s)

    @asks(Heartbeat)
    def heartbeat(
        self,
        lease_id: str,
        token: int,
        *,
        progress: Json | float | str | None = None,
        lines: Iterable[str] = (),
        level: Level | None = None,
        lease_s: float | None = None,
        wait_s: float = 0.0,
        holds: Iterable[str] = (),
    ) -> Call:
        """Keep a lease, and tell of the task. `cancel_requested` asks to stop.

        With `wait_s` it is answered when one of the worker's leases is to be stopped: this one,
        one of those that it `holds`, by their ids, or one that it takes meanwhile.
        Raises Conflict `stale_attempt` if it is another's or over, or NotFound.
        """
        body = said(
            {"token": token, "progress": progress, "level": level, "leaseMs": in_ms(lease_s)}
        )
        if told := list(lines):
            body["lines"] = told
        if wait_s:
            body["waitMs"] = in_ms(wait_s)
        if others := list(holds):
            body["holds"] = others
        path, is_safe = path_of("leases", lease_id, "heartbeat"), not told and progress is None
        return Call("POST", path, body=body, is_safe=is_safe, wait_s=wait_s)

    @asks(Settled)
    def complete(self, lease_id: str, token: int, result: Any = None) -> Call:
        """Say that a task is done, with its result. Raises Conflict `stale_attempt`, NotFound."""
        body = said({"token": token, "result": result})
        return Call("POST", path_of("leases", lease_id, "complete"), body=body, is_safe=True)

    @asks(Settled)
    def fail(
        self,
        lease_id: str,
        token: int,
        error: str,
        *,
        code: str | None = None,
        retryable: bool | None = None,
        retry_after_s: float | None = None,
        details: Json | None = None,
    ) -> Call:
        """Say that an attempt failed; whether there is another is the task's policy to say.

        `retry_after_s` takes the place of its pause. A task without one gets the usual policy if
        `retryable` is True or `retry_after_s` is given.
        """
        body = said({"token": token, "error": error, "code": code, "retryable": retryable})
        more = said({"retryAfterMs": in_ms(retry_after_s), "details": details})
        return Call("POST", path_of("leases", lease_id, "fail"), body=body | more, is_safe=True)

    @asks(Settled)
    def release(self, lease_id: str, token: int) -> Call:
        """Give a task back undone, at no cost to it."""
        return Call(
            "POST", path_of("leases", lease_id, "release"), body={"token": token}, is_safe=True
        )

    @asks(SettledMany)
    def settle(
        self, worker_id: str, outcomes: Iterable[Outcome], *, lease: Json | None = None
    ) -> Call:
        """Give many outcomes, each answered on its own, and take the next tasks with them.

        An outcome is {"lease_id", "token", "outcome": "complete" | "fail" | "release", ...};
        `lease` is made by `lease_wish`.
        """
        told = [wire(each, Outcome, f"outcomes.{at}.") for at, each in enumerate(outcomes)]
        body = said({"workerId": worker_id, "outcomes": told, "lease": lease})
        wait_s = (lease or {}).get("waitMs", 0) / 1000
        return Call("POST", "/v1/leases/settle", body=body, wait_s=wait_s)

    @asks(DeclaredPage)
    def declare_types(self, types: Iterable[DeclaredType]) -> Call:
        """Say what tasks of the types that a worker serves get, unless they say otherwise.

        A type that is said with nothing takes back what this token declared of it. The
        configuration goes before it, and so does what another token has declared.
        """
        return Call("POST", "/v1/types", body=declared_body(types), is_safe=True)

    @asks(WorkerPage)
    def workers(self, *, limit: int | None = None, cursor: str | None = None) -> Call:
        """Give a page of workers: when each was last seen, and what it holds."""
        return Call("GET", "/v1/workers", {"limit": limit, "cursor": cursor}, is_safe=True)

    @iterates(WorkerInfo)
    def iter_workers(self) -> Rows[Json]:
        """Give all workers, asked for a page at a time."""
        return all_rows("workers", "/v1/workers", {})


def declared_body(types: Iterable[DeclaredType]) -> Json:
    """Write what is declared of types as the server takes it."""
    bodies = [wire(each, DeclaredType, f"types.{at}.") for at, each in enumerate(types)]
    return {"types": [{"type": body.pop("action"), **body} for body in bodies]}


def lease_wish(
    *,
    agents: Iterable[str] = (),
    actions: Iterable[str] = (),
    wants: Iterable[Want] = (),
    labels: Iterable[str] = (),
    max_tasks: int = 1,
    wait_s: float = 0.0,
    lease_s: float | None = None,
    start: bool | None = None,
) -> Json:
    """Say which tasks a worker takes, how many, and how long it waits for them."""
    wish: Json = {"max": max_tasks, "waitMs": round(wait_s * 1000)}
    filters = [wire(each, Want, f"wants.{at}.") for at, each in enumerate(wants)]
    named = {"agents": agents, "types": actions, "wants": filters, "labels": labels}
    wish |= {name: listed for name, each in named.items() if (listed := list(each))}
    return wish | said({"leaseMs": in_ms(lease_s), "start": start})

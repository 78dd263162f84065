"""A worker's trade with the server: outcomes go, tasks come.

Outcomes that gather while one `settle` is under way go with the next, which also asks for as many
tasks as there is room for; a worker that is busy needs no other request. Only with room left and
nothing to tell does it wait in a long poll. An outcome is kept until the server has answered it: a
server that is away is asked again, and one that took it the first time accepts the same once more.
What is refused for good is logged; nothing is lost in silence.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import struct
from collections import deque
from itertools import product
from typing import TYPE_CHECKING, Any

import orjson

from rota import logs
from rota.client.calls.leases import lease_wish
from rota.client.client import AsyncJsonClient
from rota.client.functions import failed
from rota.client.paths import said
from rota.client.steps import is_passing, pauses
from rota.client.words import in_python
from rota.errors import RotaError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from rota.client.fields import DeclaredType, Want
    from rota.client.functions import Outcome
    from rota.client.steps import Json

OUTCOMES_MAX = 1000
BYTES_MAX = 1 << 20
"""Of the results in one request; one that is larger goes alone."""
PARCEL_BYTES = 200
POLL_S = 20.0
NAMES_MAX = 100
"""Of agents, and of types, in one filter."""
AWAY_S, AWAY_S_MAX = 0.1, 5.0
_TYPE_AT = re.compile(r"(?:types|actions)\.(\d+)\.")
log = logging.getLogger("rota.worker")


class Poller(AsyncJsonClient):
    """A client that hangs up audibly.

    To a server a connection that was closed looks like one that says nothing more and still
    listens; what it grants to it would stay granted until the lease is over. One that was reset has
    gone, and gets nothing.
    """

    @staticmethod
    def _new_socket(address: Any) -> socket.socket:
        made = AsyncJsonClient._new_socket(address)  # noqa: SLF001 - of its own class
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return made


class Parcel:
    """An outcome on its way."""

    __slots__ = ("body", "lease", "size")

    def __init__(self, lease: Json, outcome: Outcome) -> None:
        task = {name: lease["task"].get(name) for name in ("action", "agentId")}
        head = {name: lease.get(name) for name in ("leaseId", "token", "taskId", "attempt")}
        self.lease = {**head, "task": task}
        self.body: Any = {"leaseId": lease["leaseId"], "token": lease["token"], **outcome}
        self.size = PARCEL_BYTES
        if (result := outcome.get("result")) is not None:
            self.size += len(result)
            self.body["result"] = orjson.Fragment(result)


class Trade:
    """Sends outcomes and asks for tasks, for one worker."""

    def __init__(
        self,
        client: AsyncJsonClient,
        poller: Poller,
        worker_id: str,
        wish: Json,
        room: Callable[[], int],
        on_leases: Callable[[list[Json]], None],
        declared: Sequence[DeclaredType] = (),
    ) -> None:
        """`room` says how many more can be taken; `on_leases` takes them.

        What is `declared` of types the server is told first.
        """
        self._declared = declared
        self._client = client
        self._poller = poller
        self._worker_id = worker_id
        self._wish = wish
        self._away_s_max = min(AWAY_S_MAX, wish.get("leaseMs", 30_000) / 3000)
        self._room = room
        self._on_leases = on_leases
        self._outcomes: deque[Parcel] = deque()
        self._asked = 0
        self._is_open = True
        self._is_away = False
        self._has_outcomes = asyncio.Event()
        self._has_room = asyncio.Event()
        self._is_drained = asyncio.Event()
        self._is_drained.set()

    @property
    def undelivered(self) -> int:
        """How many outcomes the server has not answered yet."""
        return len(self._outcomes)

    def put(self, lease: Json, outcome: Outcome) -> None:
        """Have an outcome sent."""
        self._outcomes.append(Parcel(lease, outcome))
        self._is_drained.clear()
        self._has_outcomes.set()

    def look(self) -> None:
        """Have a look whether there is room now."""
        self._has_room.set()

    def shut(self) -> None:
        """Ask for nothing more."""
        self._is_open = False

    async def drained(self) -> None:
        """Wait until the server has answered every outcome."""
        await self._is_drained.wait()

    # -- asking ------------------------------------------------------------------------------

    async def lease(self) -> None:
        """Wait for tasks whenever there is room and nothing to tell. Raises what is refused."""
        tries = pauses(AWAY_S, self._away_s_max)
        await self._declare(tries)
        while self._is_open:
            self._has_room.clear()
            room = self._free()
            if room <= 0 or self._outcomes:
                await self._has_room.wait()
                continue
            self._asked += room
            wish = self._wish | {"max": room, "waitMs": round(POLL_S * 1000)}
            body = {"workerId": self._worker_id, **wish}
            try:
                answer = await self._poller.ask("POST", "/v1/leases", body=body, wait_s=POLL_S)
            except RotaError as error:
                if not _will_pass(error):
                    raise
                self._lost(error)
                await asyncio.sleep(next(tries))
                continue
            finally:
                self._asked -= room
            self._found()
            tries = pauses(AWAY_S, self._away_s_max)
            self._take(answer)

    async def _declare(self, tries: Iterator[float]) -> None:
        """Tell the server what is declared of types, if anything, once it is there.

        A declaration that it refuses is left out.
        """
        declared = list(self._declared)
        while self._is_open and declared:
            try:
                answer = await self._client.declare_types(declared)
            except RotaError as error:
                if error.status == 401:
                    raise
                if not _will_pass(error) or error.code == "too_many_declarations":
                    message = in_python(error).message
                    refused = _TYPE_AT.match(str(error.details.get("field")))
                    if refused is None:
                        log.warning("what is declared of types does not hold: %s", message)
                        return
                    name = declared.pop(int(refused[1]))["action"]
                    message = message.replace(refused[0], "")
                    log.warning("what is declared of type %s does not hold: %s", name, message)
                    continue
                self._lost(error)
                await asyncio.sleep(next(tries))
                continue
            self._found()
            for each in answer["types"]:
                if not each["accepted"]:
                    text = "another token declares type %s otherwise; that holds"
                    log.warning(text, each["type"])
            return

    def _free(self) -> int:
        return min(self._room() - self._asked, 1000) if self._is_open else 0

    def _take(self, answer: Json) -> None:
        if leases := answer.get("leases"):
            self._on_leases(leases)

    # -- telling -----------------------------------------------------------------------------

    async def settle(self) -> None:
        """Send outcomes for ever, and take tasks with them. Raises what is refused."""
        tries = pauses(AWAY_S, self._away_s_max)
        while True:
            await self._has_outcomes.wait()
            sent = self._next_parcels()
            room = max(self._free(), 0)
            wish = self._wish | {"max": room, "waitMs": 0} if room else None
            self._asked += room
            try:
                told = [parcel.body for parcel in sent]
                body = said({"workerId": self._worker_id, "outcomes": told, "lease": wish})
                answer = await self._client.ask("POST", "/v1/leases/settle", body=body)
            except RotaError as error:
                if error.status in (401, 403):
                    raise
                if not _will_pass(error):
                    self._refused(sent, error)
                    continue
                self._lost(error)
                await asyncio.sleep(next(tries))
                continue
            finally:
                self._asked -= room
            self._found()
            tries = pauses(AWAY_S, self._away_s_max)
            for parcel, told in zip(sent, answer["outcomes"], strict=True):
                self._hear(parcel, told)
            self._take(answer)
            self._forget(len(sent))  # last: what was put meanwhile is waited for, too
            self._has_room.set()

    def _next_parcels(self) -> list[Parcel]:
        """Give the first outcomes that fit into one request, and leave them where they are."""
        sent: list[Parcel] = []
        size = 0
        for parcel in self._outcomes:
            size += parcel.size
            if sent and (size > BYTES_MAX or len(sent) >= OUTCOMES_MAX):
                break
            sent.append(parcel)
        return sent

    def _forget(self, count: int) -> None:
        for _ in range(count):
            self._outcomes.popleft()
        if not self._outcomes:
            self._has_outcomes.clear()
            self._is_drained.set()

    def _hear(self, parcel: Parcel, told: Json) -> None:
        """Look at what became of one outcome."""
        code, what = told.get("code"), parcel.body["outcome"]
        if code is None:
            return
        if code in ("stale_attempt", "not_found"):
            log.warning("%s of %s came too late: %s", what, named(parcel.lease), told.get("error"))
            return
        self._refused_one(parcel, f"{code}: {told.get('error')}")

    def _refused(self, sent: list[Parcel], error: RotaError) -> None:
        """Find the one that is to blame for the refusal of a whole request, by halves."""
        if len(sent) == 1:
            self._forget(1)
            self._refused_one(sent[0], f"{error.code}: {error.message}")
            return
        for parcel in sent:
            parcel.size = max(parcel.size, BYTES_MAX // max(len(sent) // 2, 1))

    def _refused_one(self, parcel: Parcel, reason: str) -> None:
        """Let a task fail whose result the server does not take; tell of it if not even that."""
        if parcel.body["outcome"] != "complete":
            log.error("the server refuses the outcome of %s: %s", named(parcel.lease), reason)
            return
        why = f"the server refused the result: {reason}"
        instead = failed(why, code="bad_result", retryable=False)
        warn_of(parcel.lease, instead)
        self.put(parcel.lease, instead)

    # -- the server comes and goes -----------------------------------------------------------

    def _lost(self, error: RotaError) -> None:
        if not self._is_away:
            log.warning("%s; trying again", error.message)
        self._is_away = True

    def _found(self) -> None:
        if self._is_away:
            log.info("the server is back")
        self._is_away = False


def named(lease: Json) -> str:
    """Name an attempt in a log line."""
    task = lease["task"]
    whose = f"({task['action']} of {task.get('agentId', '')})"
    return f"attempt {lease['attempt']} of task {lease['taskId']} {whose}"


def warn_of(lease: Json, failure: Json) -> None:
    """Log a failed attempt."""
    text, code = failure["error"][: logs.ERROR_CHARS_MAX], failure.get("code", "no code")
    log.warning("%s failed (%s): %s", named(lease), code, text)


def wish_of(
    served: Collection[tuple[str | None, str]], labels: list[str], lease_s: float, *, start: bool
) -> Json:
    """Say what a worker takes, but for how many and how long it waits.

    It serves these agents (None: all of them) with these types, and asks for no other pair.
    """
    made = lease_wish(wants=_filters(served), labels=labels, lease_s=lease_s, start=start)
    return {name: value for name, value in made.items() if name not in ("max", "waitMs")}


def _filters(served: Collection[tuple[str | None, str]]) -> Iterator[Want]:
    """Put agents together that are served with the same types."""
    for_all = {type_ for agent, type_ in served if agent is None}
    for types in _hundreds(for_all):
        yield {"actions": types}
    types_of: dict[str, set[str]] = {}
    for agent, type_ in served:
        if agent is not None and type_ not in for_all:
            types_of.setdefault(agent, set()).add(type_)
    agents_of: dict[frozenset[str], list[str]] = {}
    for agent, own in types_of.items():
        agents_of.setdefault(frozenset(own), []).append(agent)
    for own_types, alike in sorted(agents_of.items(), key=lambda item: sorted(item[1])):
        for agents, types in product(_hundreds(alike), _hundreds(own_types)):
            yield {"agents": agents, "actions": types}


def _hundreds(names: Iterable[str]) -> list[list[str]]:
    """Give names in lists of as many as one filter may have."""
    rest = sorted(names)
    return [rest[at : at + NAMES_MAX] for at in range(0, len(rest), NAMES_MAX)]


def away_pauses(lease_s: float) -> Iterator[float]:
    """Give the pauses between two tries to reach a server: no lease ends meanwhile."""
    return pauses(AWAY_S, min(AWAY_S_MAX, lease_s / 3))


def _will_pass(error: RotaError) -> bool:
    is_ours: Any = error.status >= 500 and error.code != "not_rota"
    return is_passing(error) or error.status == 429 or bool(is_ours)

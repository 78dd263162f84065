"""The bodies that come in and the answers that go out, bounded in bytes all together.

Of bodies counts what has come, not what was promised: nobody is kept out by headers alone. An
answer takes room before it is made, by an estimate (sight/room.py), and has it until it is written
or its client is gone. Each caller has a share of either (domain/shares.py). Who is over it with a
body gets a 503; with an answer it waits a while, callers in turn, and gets one then, or at once if
its caller has no place left to wait in, or its own is needed (http/places.py). The largest are made
one after the other, with rests in between, so that others' requests have their turns of the loop.
Small ones always pass, either way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from rota.domain.shares import Shares
from rota.domain.values import has_more_values
from rota.errors import PayloadTooLarge, QueueFull
from rota.http.problems import HttpProblem
from rota.sight.turns import my_turn

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from aiohttp import StreamReader

    Staying = Callable[[str, Callable[[], None]], AbstractContextManager[None]]

BODIES_BYTES_MAX = 256 << 20
"""How much of large bodies is held at once, all of them together, until they are parsed."""
ANSWERS_BYTES_MAX = 96 << 20
"""How much text of answers is held at once; each is in memory twice while it is not read."""
SMALL_BYTES = 64 << 10
"""Bodies up to so large are not worth a refusal, nor the end of a connection; nor are answers."""
TURN_BYTES = 512 << 10
"""Answers above this are made one after the other."""
TURN_VALUES = 500
"""Bodies with more values, or over `SMALL_BYTES`, are parsed one after the other."""
TURN_S = 0.05
"""So long the next one waits for an answer that cannot be made yet."""
REST_S_PER_BYTE = 5e-9
"""About as long as it takes to make a byte of an answer with many values."""
WAIT_S = 10.0


class BodyBudget:
    """Reads bodies."""

    def __init__(self) -> None:
        self.shares = Shares(BODIES_BYTES_MAX)

    async def read(
        self, content: StreamReader, limit: int, owner: str, within_s: float | None
    ) -> bytes:
        """Read a body whole, at the cost of a caller's share. Raises TimeoutError or RequestError.

        One that takes long to parse and check waits for its caller's turn; what is done with it
        until the request waits again is a step (sight/turns.py).
        """
        body = bytearray()
        counted = 0
        try:
            async with asyncio.timeout(within_s):
                while chunk := await content.readany():
                    body += chunk
                    size = len(body)
                    if size > limit:
                        raise PayloadTooLarge(f"the body is larger than {limit} bytes")
                    if size > SMALL_BYTES:
                        if not self.shares.take(owner, size - counted):
                            msg = "too many bytes of bodies are on their way in"
                            raise HttpProblem(503, "too_many_bytes", msg)
                        counted = size
            if len(body) > SMALL_BYTES or has_more_values(body, TURN_VALUES):
                await my_turn()
            return bytes(body)
        finally:
            self.shares.give_back(owner, counted)


class AnswerBudget:
    """The room for answers, and who waits for it."""

    def __init__(self) -> None:
        self.shares = Shares(ANSWERS_BYTES_MAX)
        self._waiting: dict[str, deque[AnswerRoom]] = {}
        self._turn: asyncio.TimerHandle | None = None

    @property
    def is_turn_free(self) -> bool:
        """Whether none of the largest answers is being made, or was just now."""
        return self._turn is None

    def is_awaited(self, owner: str) -> bool:
        """Whether a caller has requests that wait, so that another comes after those."""
        return owner in self._waiting

    def line_up(self, room: AnswerRoom) -> None:
        self._waiting.setdefault(room.owner, deque()).append(room)
        self.go_on()

    def step_out(self, room: AnswerRoom) -> None:
        line = self._waiting.get(room.owner)
        if line is not None and room in line:
            line.remove(room)
            if not line:
                del self._waiting[room.owner]
            self.go_on()

    def go_on(self) -> None:
        """Let in who waits and has room now; callers take turns."""
        for owner, line in list(self._waiting.items()):
            if not line[0].come_in():
                continue
            while line and line[0].come_in():
                line.popleft()
            del self._waiting[owner]
            if line:
                self._waiting[owner] = line  # behind the others

    def take_turn(self, for_s: float) -> None:
        """Have the next of the largest answers wait for so long from now."""
        if self._turn is not None:
            self._turn.cancel()
        self._turn = asyncio.get_running_loop().call_later(for_s, self._end_turn)

    def _end_turn(self) -> None:
        self._turn = None
        self.go_on()


class AnswerRoom:
    """The room that the answer to one request takes; the end of the request's task gives it back.

    aiohttp has a task for each request, which ends when the answer is written or the client gone.
    """

    __slots__ = ("_budget", "_has_turn", "_held", "_staying", "_waiter", "owner")

    def __init__(self, budget: AnswerBudget, owner: str, staying: Staying) -> None:
        """Take none yet, for the request that the running task serves, which stays while it waits.

        `staying` is that of its Call.
        """
        self.owner = owner
        self._staying = staying
        self._budget = budget
        self._held = 0
        self._has_turn = False
        self._waiter: tuple[asyncio.Future[bool], int, bool] | None = None
        serving = asyncio.current_task()
        assert serving is not None
        serving.add_done_callback(lambda _: self.give_back())

    def take(self, size: int, *, is_read: bool = False) -> bool:
        """Have room for so many bytes in all; False, and none is taken, if there is too little.

        What is larger than any caller's share takes a share. What is read is paced by the readers.
        """
        size = min(size, ANSWERS_BYTES_MAX // 2)
        if size <= max(self._held, SMALL_BYTES):
            return True
        return not self._budget.is_awaited(self.owner) and self._may_have(size, is_read)

    async def wait(self, size: int, *, is_read: bool = False) -> None:
        """Wait for room for so many bytes, instead of what was taken. Raises HttpProblem."""
        self.give_back()
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiter = waiter, min(size, ANSWERS_BYTES_MAX // 2), is_read

        def leave() -> None:
            if not waiter.done():
                waiter.set_result(False)

        try:
            with self._staying(self.owner, leave):
                self._budget.line_up(self)
                async with asyncio.timeout(WAIT_S):
                    has_room = await waiter
        except (QueueFull, TimeoutError):
            has_room = False
        finally:
            self._waiter = None
            self._budget.step_out(self)
        if not has_room:
            msg = "as many bytes of answers as you may have are under way; read those first"
            raise HttpProblem(503, "too_many_bytes", msg)

    def come_in(self) -> bool:
        """Take what is waited for, and go on, if there is room now; who has left makes way, too."""
        assert self._waiter is not None
        waiter, size, is_read = self._waiter
        if waiter.done():
            return True
        if not self._may_have(size, is_read):
            return False
        waiter.set_result(True)
        return True

    def made(self, size: int) -> None:
        """Hold what the answer takes now that it is made; the next of the largest has to rest."""
        if self._has_turn or size > TURN_BYTES:
            self._budget.take_turn(size * REST_S_PER_BYTE)
            self._has_turn = False
        size = size if size > SMALL_BYTES else 0
        if self._budget.shares.has_room(self.owner, size - self._held) or size < self._held:
            self._hold(size)  # else it keeps what it took: nobody pays for what was made unasked

    def give_back(self) -> None:
        """Take no room while something else is waited for."""
        self._hold(0)

    def _may_have(self, size: int, is_read: bool) -> bool:  # noqa: FBT001 - as it was asked
        needs_turn = size > TURN_BYTES and not is_read
        if needs_turn and not self._budget.is_turn_free:
            return False
        if not self._budget.shares.has_room(self.owner, size - self._held):
            return False
        self._hold(size)
        if needs_turn:
            self._has_turn = True
            self._budget.take_turn(TURN_S)
        return True

    def _hold(self, size: int) -> None:
        more = size - self._held
        if not more:
            return
        self._held = size
        self._budget.shares.add(self.owner, more)
        if more < 0:
            self._budget.go_on()

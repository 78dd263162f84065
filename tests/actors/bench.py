"""A shard on a bench: the shipped `InMemoryRota`, with more that only our own tests ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.actors import messages as m
from rota.actors.recovery import rebuild
from rota.domain.batch import Batch
from rota.domain.commands import Limits, Outcome
from rota.errors import RotaError
from rota.testing import InMemoryRota
from rota.testing.in_memory import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.domain.intake import Request

GOOD = Outcome(ok=True)
BAD = Outcome(ok=False, code="boom", error="it broke")


class Bench(InMemoryRota):
    """A shard and all it needs."""

    def __init__(self, limits: Limits | None = None, **options: Any) -> None:
        super().__init__(limits=limits, **options)

    def end(self, task: str, outcome: Outcome = GOOD) -> None:
        """End a running attempt."""
        super().end(task, outcome)

    # -- what clients ask

    def pause_scheduler(self, *, paused: bool = True) -> None:
        """Pause the scheduler, or resume it."""
        dispatcher = self.shard.dispatcher
        self.ask(dispatcher, lambda reply: m.PauseScheduler(paused, "", "", reply))

    def pause_type(self, name: str, *, paused: bool = True) -> None:
        """Pause a type, or resume it."""
        dispatcher = self.shard.dispatcher
        self.ask(dispatcher, lambda reply: m.PauseType(name, paused, "", "", reply))

    def pause_agent(self, agent: str, *, paused: bool = True) -> None:
        """Pause an agent, or resume it."""
        queue = self.shard.queue(agent)
        if paused:
            self.ask(queue, lambda reply: m.PauseAgent("", "", reply))
        else:
            self.ask(queue, lambda reply: m.ResumeAgent("", reply))

    # -- what came of it

    def batch(self, batch: str) -> Batch:
        """Give a batch, from memory or from the log."""
        found = self._found(batch)
        assert isinstance(found, Batch), batch
        return found

    def records(self) -> list[Any]:
        """Read the log."""
        return self.events()

    def kinds(self, task: str) -> list[str]:
        """Name what happened to a task, or to a batch."""
        return [type(record.event).__name__ for record in self.events(task)]

    def check_replay(self) -> None:
        """The state is what the log says, and nobody failed on the way."""
        told, live = rebuild(self.log, use_snapshots=False), self.shard.state
        for state in (told, live):  # what the live one forgot by the clock since the last record
            state.forget(self.host.clock.now_us())
        assert told.digest() == live.digest()
        assert "ActorFailed" not in {type(record.event).__name__ for record in self.records()}


class SlowBench(Bench):
    """A bench whose reads of the log are held until the test lets them through."""

    def start(self) -> None:
        super().start()
        self.reads: list[Callable[[], None]] = []
        self.failing: list[Callable[[BaseException], None]] = []
        self.fetched = 0
        fetch = self.host.fetch

        def held(read: Any, done: Any, failed: Any, is_wanted: Any = None) -> None:
            self.fetched += 1
            self.reads.append(lambda: fetch(read, done, failed, is_wanted))
            self.failing.append(failed)

        self.host.fetch = held  # type: ignore[method-assign]

    def let_read(self) -> None:
        self.host.run()
        while self.reads:
            self.reads.pop(0)()
            self.host.run()

    def ask(self, ref: Any, make: Any) -> Any:
        """Ask, and have read what must be."""
        reply = self.asked(ref, make)
        self.let_read()
        [answer] = reply.answers
        if isinstance(answer, RotaError):
            raise answer
        return answer

    def asked(self, ref: Any, make: Any) -> Reply:
        """Ask; it waits for what it has to have read."""
        reply = Reply()
        ref.tell(make(reply))
        self.host.run()
        return reply

    def offered(self, *commands: Request) -> Reply:
        return self.asked(self.shard.admission, lambda reply: m.SubmitTasks(commands, reply))

"""The cooperative runtime, and the insides of Pykka that it stands on.

The contract tests fail when a new Pykka moves what `actors/runtime.py` relies on; then the pin in
pyproject.toml is raised only together with that one file.
"""

from __future__ import annotations

import inspect
import random
import tomllib
from collections import deque
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pykka
import pytest
from pykka import ActorRegistry
from pykka._envelope import Envelope
from pykka.messages import _ActorStop

from rota.actors.runtime import (
    MESSAGES_PER_RUN_MAX,
    CooperativeActor,
    Runtime,
    body_of,
    retire,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MANY = 10_000


class Loop:
    """A loop that runs when it is told to."""

    def __init__(self) -> None:
        self.soon: deque[Callable[[], None]] = deque()
        self.failures: list[tuple[str, Any, str]] = []
        self.runtime = Runtime(self.soon.append, self._failed)
        self.refs: list[pykka.ActorRef[Any]] = []

    def _failed(self, actor: CooperativeActor, message: Any, error: Exception) -> None:
        self.failures.append((type(actor).__name__, message, str(error)))
        actor.reset()

    def start(self, cls: type[CooperativeActor], *args: Any) -> pykka.ActorRef[Any]:
        ref = cls.start(self.runtime, *args)
        self.refs.append(ref)
        return ref

    def turn(self) -> None:
        """Run what was scheduled, and what that schedules, to the end."""
        while self.soon:
            self.soon.popleft()()


@pytest.fixture
def loop() -> Iterator[Loop]:
    before = ActorRegistry.get_all()
    made = Loop()
    yield made
    retire([ref for ref in made.refs if ref in set(ActorRegistry.get_all())])
    assert ActorRegistry.get_all() == before, "no actor is left behind"


class Keeper(CooperativeActor):
    """Keeps what it hears; raises on `bad`; stops hearing nothing."""

    def __init__(self, runtime: Runtime, heard: list[Any] | None = None) -> None:
        super().__init__(runtime)
        self.heard = [] if heard is None else heard
        self.resets = 0
        self.stops = 0

    def on_receive(self, message: Any) -> Any:
        if message == "bad":
            msg = "as asked"
            raise RuntimeError(msg)
        self.heard.append(message)
        return f"heard {message}"

    def reset(self) -> None:
        self.resets += 1

    def on_stop(self) -> None:
        self.stops += 1


# -- the contract with Pykka -----------------------------------------------------------------------


def test_the_pinned_minor_version_is_the_one_installed() -> None:
    root = Path(__file__).parents[2]
    wanted = tomllib.loads((root / "pyproject.toml").read_text())["project"]["dependencies"]
    [pin] = [line for line in wanted if line.startswith("pykka")]
    assert pin == "pykka>=4.5,<4.6"
    assert version("pykka").startswith("4.5.")


@pytest.mark.parametrize("name", ["_create_actor_inbox", "_create_future", "_start_actor_loop"])
def test_an_actor_is_made_through_the_three_seams(name: str) -> None:
    assert name in pykka.Actor.__dict__
    assert name in CooperativeActor.__dict__


def test_stopping_is_a_method_that_runs_on_stop_and_unregisters(loop: Loop) -> None:
    ref = loop.start(Keeper)
    actor = body_of(ref)
    assert ref in ActorRegistry.get_all()
    actor._stop()
    assert actor.stops == 1
    assert ref not in ActorRegistry.get_all()
    assert ref.actor_stopped.is_set()


def test_the_registry_is_a_list_behind_a_lock() -> None:
    assert isinstance(ActorRegistry._actor_refs, list)
    with ActorRegistry._actor_refs_lock:
        assert ActorRegistry.get_all() == ActorRegistry._actor_refs


def test_an_envelope_carries_a_message_and_where_its_answer_goes() -> None:
    future: pykka.Future[Any] = pykka.ThreadingFuture()
    envelope = Envelope("message", reply_to=future)
    assert (envelope.message, envelope.reply_to) == ("message", future)
    assert inspect.signature(Envelope).parameters["reply_to"].default is None


def test_a_stop_comes_as_pykkas_own_message(loop: Loop) -> None:
    ref = loop.start(Keeper)
    ref.stop(block=False)
    [waiting] = body_of(ref).actor_inbox.queue
    assert isinstance(getattr(waiting, "message", waiting), _ActorStop)
    loop.turn()
    assert ref.actor_stopped.is_set()
    assert body_of(ref).stops == 1


def first_of(count: int) -> int:
    """Choose the first of so many."""
    return 0 * count


# -- messages --------------------------------------------------------------------------------------


def test_messages_are_heard_in_the_order_they_were_told(loop: Loop) -> None:
    ref = loop.start(Keeper)
    for n in range(100):
        ref.tell(n)
    loop.turn()
    assert body_of(ref).heard == list(range(100))


def test_nothing_is_heard_before_the_loop_turns(loop: Loop) -> None:
    ref = loop.start(Keeper)
    ref.tell(1)
    ref.tell(2)
    assert body_of(ref).heard == []
    assert len(loop.soon) == 1, "one callback for all that waits"
    loop.turn()
    assert body_of(ref).heard == [1, 2]


def test_a_chain_of_messages_is_worked_off_in_one_turn(loop: Loop) -> None:
    class Relay(Keeper):
        def on_receive(self, message: Any) -> None:
            super().on_receive(message)
            if message:
                others[message % 2].tell(message - 1)

    others = [loop.start(Relay), loop.start(Relay)]
    others[0].tell(10)
    loop.soon.popleft()()
    assert sum(len(body_of(ref).heard) for ref in others) == 11


def test_an_actor_may_tell_itself_something_when_it_starts(loop: Loop) -> None:
    class Eager(Keeper):
        def on_start(self) -> None:
            self.actor_ref.tell("begin")

    ref = loop.start(Eager)
    loop.turn()
    assert body_of(ref).heard == ["begin"]


def test_the_hooks_run_when_nothing_waits_any_more(loop: Loop) -> None:
    ref = loop.start(Keeper)
    seen: list[int] = []
    loop.runtime.idle.append(lambda: seen.append(len(body_of(ref).heard)))
    for n in range(5):
        ref.tell(n)
    loop.turn()
    assert seen == [5]


def test_scheduling_runs_the_hooks_even_without_a_message(loop: Loop) -> None:
    seen: list[str] = []
    loop.runtime.idle.append(lambda: seen.append("idle"))
    loop.runtime.schedule()
    loop.runtime.schedule()
    loop.turn()
    assert seen == ["idle"]


def test_a_flood_lets_the_loop_in_between(loop: Loop) -> None:
    ref, other = loop.start(Keeper), loop.start(Keeper)
    for n in range(2 * MESSAGES_PER_RUN_MAX + 1):
        ref.tell(n)
    other.tell("me too")
    loop.soon.popleft()()
    assert len(body_of(ref).heard) == MESSAGES_PER_RUN_MAX
    assert len(loop.soon) == 1, "the rest has its callback"
    loop.turn()
    assert len(body_of(ref).heard) == 2 * MESSAGES_PER_RUN_MAX + 1
    assert body_of(other).heard == ["me too"]


def test_a_step_handles_one_message_of_the_actor_that_was_chosen(loop: Loop) -> None:
    heard: list[str] = []
    first, second = loop.start(Keeper, heard), loop.start(Keeper, heard)
    first.tell("a1")
    first.tell("a2")
    second.tell("b1")
    assert loop.runtime.step(lambda n: n - 1)
    assert heard == ["b1"]
    while loop.runtime.step(first_of):
        pass
    assert heard == ["b1", "a1", "a2"]
    assert not loop.runtime.step(first_of)


def test_steps_in_any_order_lose_nothing_and_keep_each_actors_order(loop: Loop) -> None:
    dice = random.Random(1)
    refs = [loop.start(Keeper) for _ in range(5)]
    for n in range(200):
        refs[n % 5].tell(n)
    while loop.runtime.step(dice.randrange):
        pass
    for at, ref in enumerate(refs):
        assert body_of(ref).heard == list(range(at, 200, 5))


# -- failures --------------------------------------------------------------------------------------


def test_a_handler_that_raises_takes_nobody_with_it(loop: Loop) -> None:
    first, second = loop.start(Keeper), loop.start(Keeper)
    for message in ("one", "bad", "two"):
        first.tell(message)
        second.tell(message.replace("bad", "good"))
    loop.turn()
    assert loop.failures == [("Keeper", "bad", "as asked")]
    assert body_of(first).heard == ["one", "two"], "it goes on with its next message"
    assert body_of(first).resets == 1
    assert body_of(second).heard == ["one", "good", "two"]
    assert body_of(second).resets == 0
    assert not first.actor_stopped.is_set()


def test_every_message_failing_still_lets_the_others_work(loop: Loop) -> None:
    first, second = loop.start(Keeper), loop.start(Keeper)
    for n in range(50):
        first.tell("bad")
        second.tell(n)
    loop.turn()
    assert len(loop.failures) == 50
    assert body_of(second).heard == list(range(50))


def test_the_hooks_run_after_a_failure_too(loop: Loop) -> None:
    seen: list[str] = []
    loop.runtime.idle.append(lambda: seen.append("idle"))
    loop.start(Keeper).tell("bad")
    loop.turn()
    assert seen == ["idle"]


# -- retiring --------------------------------------------------------------------------------------


def test_a_retired_actor_hears_nothing_more(loop: Loop) -> None:
    ref, other = loop.start(Keeper), loop.start(Keeper)
    ref.tell("too late")
    retire([ref])
    loop.turn()
    assert body_of(ref).heard == []
    assert ref.actor_stopped.is_set()
    assert ref not in ActorRegistry.get_all()
    assert other in ActorRegistry.get_all()


def test_retiring_twice_or_nobody_is_harmless(loop: Loop) -> None:
    ref = loop.start(Keeper)
    retire([])
    retire([ref, ref])
    retire([ref])
    assert ref.actor_stopped.is_set()


class CountingList(list[Any]):
    """A list that counts how many of its items were looked at."""

    looked_at = 0

    def __iter__(self) -> Iterator[Any]:
        for item in super().__iter__():
            self.looked_at += 1
            yield item

    def __contains__(self, item: object) -> bool:
        self.looked_at += len(self)
        return super().__contains__(item)

    def remove(self, item: Any) -> None:
        self.looked_at += len(self)
        super().remove(item)


def test_retiring_ten_thousand_actors_looks_at_each_of_them_once(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pykka's own way looks through its whole registry for each: fifty million times."""
    stay = [loop.start(Keeper) for _ in range(10)]
    counting = CountingList(ActorRegistry._actor_refs)
    with monkeypatch.context() as patched:
        patched.setattr(ActorRegistry, "_actor_refs", counting)
        go = [Keeper.start(loop.runtime) for _ in range(MANY)]
        assert len(counting) >= MANY
        counting.looked_at = 0
        retire(go)
        assert counting.looked_at <= 2 * (MANY + 100)
        assert all(ref.actor_stopped.is_set() for ref in go)
        left = set(list.__iter__(counting))
    assert left >= set(stay)
    assert not left & set(go)

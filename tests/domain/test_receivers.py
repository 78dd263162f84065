"""Whose callback is sent next: a bound for each host, one for all, and no host in another's way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from rota.domain import receivers as module
from rota.domain.receivers import DOUBT_MAX, PROMPT_MS_MAX, Receivers, Standing

if TYPE_CHECKING:
    import pytest

SLOW_MS = PROMPT_MS_MAX + 1


class Sending:
    """Receivers, and what is being sent."""

    def __init__(self, per_host: int = 4, parallel: int = 16) -> None:
        self.receivers: Receivers[int] = Receivers(per_host_max=per_host, parallel_max=parallel)
        self.under_way: list[tuple[str, Standing]] = []

    def owe(self, host: str, count: int = 1) -> None:
        for n in range(count):
            self.receivers.add(host, n)

    def send(self) -> list[str]:
        """Send what may be sent; gives the hosts."""
        sent = []
        while (taken := self.receivers.take()) is not None:
            sent.append(taken[0])
            self.under_way.append(taken[:2])
        return sent

    def end(self, host: str, count: int = 1, *, answered: bool = True, took_ms: int = 5) -> None:
        for _ in range(count):
            place = next(place for place in self.under_way if place[0] == host)
            self.under_way.remove(place)
            self.receivers.ended(*place, answered=answered, took_ms=took_ms)

    def make_prompt(self, *hosts: str) -> None:
        for host in hosts:
            self.owe(host)
            self.send()
            self.end(host)


def test_one_host_gets_so_many_at_once_and_the_next_when_one_ends() -> None:
    sending = Sending()
    sending.owe("a", 9)
    assert sending.send() == ["a"] * 4
    sending.end("a")
    assert sending.send() == ["a"]
    assert (sending.receivers.active, sending.receivers.waiting) == (4, 4)


def test_what_waits_goes_in_its_order() -> None:
    receivers: Receivers[int] = Receivers(per_host_max=9, parallel_max=99)
    for n in range(5):
        receivers.add("a", n)
    assert [taken[2] for _ in range(5) if (taken := receivers.take())] == [0, 1, 2, 3, 4]


def test_the_turn_goes_round_the_hosts() -> None:
    sending = Sending()
    sending.owe("a", 2)
    sending.owe("b", 2)
    sending.owe("c", 1)
    assert sending.send() == ["a", "b", "c", "a", "b"]


def test_all_together_fill_no_more_than_all_places() -> None:
    sending = Sending(per_host=4, parallel=8)
    hosts = [f"h{n}" for n in range(8)]
    sending.make_prompt(*hosts)
    for host in hosts:
        sending.owe(host, 4)
    assert sorted(sending.send()) == hosts


def test_hosts_that_are_new_fill_half_and_leave_the_rest_to_those_that_answer() -> None:
    sending = Sending()
    sending.make_prompt("good")
    for n in range(200):
        sending.owe(f"new{n}", 4)
    assert len(sending.send()) == 8
    sending.owe("good", 4)
    assert sending.send() == ["good"] * 4


def test_slow_hosts_fill_no_more_than_half_together() -> None:
    sending = Sending()
    hosts = [f"slow{n}" for n in range(8)]
    for host in hosts:
        sending.owe(host)
        sending.send()
        sending.end(host, took_ms=SLOW_MS)
    for host in hosts:
        sending.owe(host, 4)
    assert len(sending.send()) == 8


def test_a_host_that_gives_no_answer_gets_one_at_once_until_it_answers() -> None:
    sending = Sending()
    sending.owe("a", 20)
    sending.send()
    sending.end("a", answered=False)
    sending.end("a", 3)
    assert sending.send() == ["a"] * 4  # three of its four answered: it is only doubted
    sending.end("a", 4, answered=False)
    assert sending.send() == ["a"]
    for _ in range(DOUBT_MAX):
        sending.end("a", took_ms=SLOW_MS)
        sending.owe("a", 4)
        if len(sending.send()) > 1:
            break
    assert len(sending.under_way) == 4


def test_silent_hosts_fill_a_quarter_together() -> None:
    sending = Sending()
    hosts = [f"dead{n}" for n in range(8)]
    for host in hosts:
        sending.owe(host)
        sending.send()
        sending.end(host, answered=False)
    for host in hosts:
        sending.owe(host, 4)
    assert sending.send() == hosts[:4]


def test_a_host_is_not_kept_waiting_by_busier_ones_of_better_standing() -> None:
    sending = Sending(per_host=4, parallel=4)
    sending.make_prompt("busy")
    sending.owe("busy", 50)
    sending.send()
    sending.owe("new")
    sending.end("busy", 2)
    assert "new" in sending.send()


def test_one_place_is_enough_for_all() -> None:
    sending = Sending(per_host=1, parallel=1)
    sending.owe("a", 2)
    sending.owe("b", 2)
    seen = []
    for _ in range(4):
        (host,) = sending.send()
        seen.append(host)
        sending.end(host, answered=host == "a")
    assert sorted(seen) == ["a", "a", "b", "b"]


def test_what_waits_can_be_forgotten_and_what_is_sent_keeps_its_places() -> None:
    sending = Sending()
    sending.owe("a", 6)
    sending.send()
    sending.receivers.forget_waiting()
    sending.owe("a", 6)
    assert sending.send() == []
    sending.end("a", 4)
    assert sending.send() == ["a"] * 4


def test_only_so_many_idle_hosts_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HOSTS_REMEMBERED_MAX", 10)
    sending = Sending()
    sending.make_prompt(*[f"h{n}" for n in range(50)])
    assert list(sending.receivers._hosts) == [f"h{n}" for n in range(40, 50)]


STEP = st.one_of(
    st.tuples(st.just("owe"), st.integers(0, 5)),
    st.tuples(st.just("end"), st.tuples(st.integers(0, 50), st.booleans(), st.booleans())),
)


@given(st.integers(1, 4), st.integers(1, 9), st.lists(STEP, max_size=120))
def test_the_bounds_hold_and_everything_is_sent_in_the_end(
    per_host: int, parallel: int, steps: list[Any]
) -> None:
    sending = Sending(per_host, parallel)
    owed = sent = 0
    for what, value in steps:
        if what == "owe":
            sending.owe(f"h{value}")
            owed += 1
        elif sending.under_way:
            at, answered, prompt = value
            host = sending.under_way[at % len(sending.under_way)][0]
            sending.end(host, answered=answered, took_ms=5 if prompt else SLOW_MS)
        sent += len(sending.send())
        hosts = [host for host, _ in sending.under_way]
        assert len(hosts) <= parallel
        assert all(hosts.count(host) <= per_host for host in set(hosts))
        assert sending.receivers.active == len(hosts)
        assert sending.receivers.waiting == owed - sent
    while sending.under_way:
        sending.end(sending.under_way[0][0])
        sent += len(sending.send())
    assert (sent, sending.receivers.waiting, sending.receivers.active) == (owed, 0, 0)

"""Places: who gives way to a newcomer."""

from __future__ import annotations

from rota.http.places import EXCESS_MAX, Places


def full(*names: str) -> Places[str]:
    places: Places[str] = Places(len(names))
    for at, name in enumerate(names):
        assert places.enter(name, float(at))
    assert places.is_full
    return places


def test_those_who_owe_give_way_the_oldest_first() -> None:
    places = full("a", "b", "c", "d")
    places.rests("a")
    assert places.giving_way() == "b"


def test_the_idle_give_way_before_a_few_newcomers_do() -> None:
    places = full("a", "b", "c", "d")
    for name in ("b", "a", "c"):
        places.rests(name)
    assert places.giving_way() == "b"


def test_whoever_is_being_served_never_gives_way() -> None:
    places = full("a", "b")
    places.served("a")
    places.served("b")
    assert places.giving_way() is None
    assert not places.enter("c", 2.0)
    assert places.giving_way() is None


def test_an_answer_that_is_not_read_gives_way_last() -> None:
    places = full("a", "b", "c", "d")
    for name in "abcd":
        places.served(name)
    places.unread("c", 4.0, 100)
    assert places.giving_way() == "c"
    places.reads("c")
    assert places.giving_way() is None


def test_time_counts_from_the_first_thing_owed() -> None:
    places = full("a", "b")
    places.owes("a", 50.0)
    assert list(places.owing_since(0.5)) == ["a"]
    places.rests("a")
    places.owes("a", 50.0)
    assert list(places.owing_since(10.0)) == ["b"]


def test_those_above_the_limit_are_bounded_and_their_time_runs_out() -> None:
    places = full("a")
    places.served("a")
    for n in range(EXCESS_MAX):
        assert not places.is_overrun
        places.enter(f"x{n}", 1.0)
    assert places.is_overrun
    assert len(list(places.owing_since(1.0))) == EXCESS_MAX
    places.leave("x0")
    assert not places.is_overrun


def test_who_leaves_makes_room() -> None:
    places = full("a", "b")
    places.leave("a")
    assert not places.is_full
    assert len(places) == 1
    places.rests("a")  # too late
    assert places.giving_way() == "b"

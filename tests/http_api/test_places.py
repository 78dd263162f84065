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


def test_those_who_wait_give_way_the_one_with_most_of_them_first() -> None:
    places = full("a1", "b1", "b2", "c", "d", "e", "f", "g")
    for name in ("a1", "b1", "b2", "c"):
        places.served(name)
        assert places.waits(name, name[0])
    for name in "defg":
        places.served(name)
    for name in ("b1", "a1", "b2", "c"):
        assert places.giving_way() == name
        places.gives_way(name)
    assert places.giving_way() is None
    assert places.waiting.held == 0


def test_callers_have_shares_of_the_places_that_may_wait_and_a_tenth_never_does() -> None:
    places = full(*(f"c{n}" for n in range(20)))
    assert [places.waits(f"c{n}", "a") for n in range(10)] == [True] * 9 + [False]
    assert [places.waits(f"c{n}", f"caller {n}") for n in range(10, 20)] == [True] * 9 + [False]
    assert places.waiting.held == 18
    places.waits_no_more("c0")
    places.leave("c1")
    assert places.waiting.held == 16


def test_an_idle_connection_gives_way_before_one_that_waits() -> None:
    places = full("a", "b", "c", "d")
    for name in "abcd":
        places.served(name)
    assert places.waits("a", "a")
    places.rests("b")
    assert places.giving_way() == "b"


def test_time_counts_from_the_first_thing_owed() -> None:
    places = full("a", "b")
    places.owes("a", 50.0)
    assert list(places.owing_since(0.5)) == ["a"]
    places.rests("a")
    places.owes("a", 50.0)
    assert list(places.owing_since(10.0)) == ["b"]


def test_those_above_the_limit_are_bounded_and_the_oldest_gives_way() -> None:
    places = full("a")
    places.served("a")
    assert places.waits("a", "anybody")
    for n in range(EXCESS_MAX):
        assert not places.is_overrun
        places.enter(f"x{n}", 1.0)
    assert places.is_overrun
    assert places.giving_way() is None, "it would be one more above the limit"
    assert len(list(places.owing_since(1.0))) == EXCESS_MAX
    places.served("x0")
    assert places.is_overrun
    assert places.oldest_excess() == "x1"
    places.leave("x0")
    assert not places.is_overrun
    assert places.giving_way() == "a"
    places.gives_way("a")
    assert places.is_overrun
    assert not places.is_full


def test_who_leaves_makes_room() -> None:
    places = full("a", "b")
    places.leave("a")
    assert not places.is_full
    assert len(places) == 1
    places.rests("a")  # too late
    assert places.giving_way() == "b"

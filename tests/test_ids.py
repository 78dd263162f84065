"""Ids: the document's form, never twice, side by side in time."""

from __future__ import annotations

import re
from itertools import pairwise
from uuid import RFC_4122, UUID

from rota import ids

NOW_US = 1_794_805_431_801_181


def draw(count: int, now_us: int = NOW_US) -> list[str]:
    taken: set[str] = set()
    for _ in range(count):
        taken.add(ids.task_id(now_us, taken.__contains__)[0])
    return sorted(taken)


def test_a_task_id_has_the_form_of_the_document() -> None:
    assert re.fullmatch(r"tsk_[0-9A-Za-z]{8}", ids.task_id(NOW_US, lambda _: False)[0])


def test_more_ids_than_a_moment_holds_are_drawn_from_the_moments_after_it() -> None:
    assert len(draw(5000)) == 5000


def test_ids_sort_by_the_time_they_were_drawn() -> None:
    by_time = [ids.task_id(NOW_US + n * 20_000, lambda _: False)[0] for n in range(200)]
    assert all(earlier < later for earlier, later in pairwise(by_time))


def test_an_id_that_is_taken_is_not_given_again() -> None:
    first, is_ahead = ids.task_id(NOW_US, lambda _: False)
    assert not is_ahead
    asked: list[str] = []

    def is_taken(found: str) -> bool:
        asked.append(found)
        return len(asked) == 1 or found == first

    assert ids.task_id(NOW_US, is_taken) == (asked[-1], False)
    assert len(asked) >= 2


def test_an_id_of_a_later_moment_is_told_as_such() -> None:
    first, _ = ids.task_id(NOW_US, lambda _: False)
    later, is_ahead = ids.task_id(NOW_US, lambda found: found[:-2] <= first[:-2])
    assert is_ahead
    assert later > first


def test_request_ids_differ() -> None:
    assert len({ids.request_id() for _ in range(2000)}) == 2000


def test_uuids_are_of_version_7_differ_and_sort_by_their_time() -> None:
    found = [ids.uuid(NOW_US + ms * 1000) for ms in range(2000)]
    assert len(set(found)) == 2000
    assert sorted(found) == found
    assert all(str(UUID(each)) == each for each in found)
    assert {(UUID(each).version, UUID(each).variant) for each in found} == {(7, RFC_4122)}
    assert int.from_bytes(UUID(found[5]).bytes[:6], "big") == NOW_US // 1000 + 5
    assert len({ids.uuid(NOW_US) for _ in range(20_000)}) == 20_000

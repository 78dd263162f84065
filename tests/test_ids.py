"""Ids: the document's form, never twice, side by side in time."""

from __future__ import annotations

import re
from itertools import pairwise
from uuid import RFC_4122, UUID

from rota import ids

NOW_US = 1_794_805_431_801_181


def draw(count: int, now_us: int = NOW_US) -> list[str]:
    drawn = ids.TaskIds()
    return [drawn.draw(now_us) for _ in range(count)]


def test_a_task_id_has_the_form_of_the_document() -> None:
    assert re.fullmatch(r"tsk_[0-9A-Za-z]{8}", draw(1)[0])


def test_no_id_is_given_twice_however_many_are_drawn_in_one_moment() -> None:
    found = draw(20_000)
    assert len(set(found)) == 20_000
    beyond = f"tsk_{ids.beginning_at(NOW_US + 1_000_000)}"
    assert max(found) < beyond, "they are drawn from the moments after it, and not from far ones"


def test_ids_sort_by_the_time_they_were_drawn() -> None:
    drawn = ids.TaskIds()
    by_time = [drawn.draw(NOW_US + n * 20_000) for n in range(200)]
    assert all(earlier < later for earlier, later in pairwise(by_time))
    assert drawn.draw(NOW_US) > by_time[-2], "the time in them never goes back"


def test_ids_are_drawn_beyond_the_one_that_was_given_before_a_start() -> None:
    last = max(draw(3000))
    drawn = ids.TaskIds()
    drawn.go_beyond(last.removeprefix("tsk_"))
    for odd in ("", "short", "not-one!", "far too long to be one"):
        drawn.go_beyond(odd)
    assert min(drawn.draw(NOW_US) for _ in range(3000)) > last
    assert drawn.draw(NOW_US + 10_000_000) > f"tsk_{ids.beginning_at(NOW_US + 10_000_000)}"


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

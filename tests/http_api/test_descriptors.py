"""As many connections as the system has file descriptors for."""

from __future__ import annotations

import resource

import pytest

from rota.http.descriptors import CONNECTIONS_MIN, RESERVED, make_room

INFINITY = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "room", "raised"),
    [
        (20_000, 20_000, 5000, 5000, None),
        (1024, 20_000, 5000, 5000, 5000 + RESERVED),
        (1024, INFINITY, 5000, 5000, 5000 + RESERVED),
        (INFINITY, INFINITY, 5000, 5000, None),
        (1024, 4096, 5000, 4096 - RESERVED, 4096),
        (256, 256, 5000, CONNECTIONS_MIN, 256),
        (256, 256, 3, 3, 256),
    ],
)
def test_the_soft_limit_is_raised_as_far_as_it_goes(
    monkeypatch: pytest.MonkeyPatch,
    soft: int,
    hard: int,
    wanted: int,
    room: int,
    raised: int | None,
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: asked.append(limits))
    assert make_room(wanted) == room
    assert asked == ([] if raised is None else [(raised, hard)])


def test_a_system_that_refuses_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int, limits: tuple[int, int]) -> None:
        raise ValueError(limits)

    monkeypatch.setattr(resource, "getrlimit", lambda _: (2048, 20_000))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert make_room(5000) == 2048 - RESERVED

"""Bugs planted in how browsers are counted, one at a time, each of which the simulator must find."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from support.planted import Plant, finds

from rota.actors import dispatcher
from rota.domain.browsers import decide_browser
from rota.projections.browsers import Browsers

if TYPE_CHECKING:
    import pytest


def nothing(*_args: Any, **_more: Any) -> None:
    """Do nothing, instead of what should be done."""


def there_is_no_bound(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(dispatcher, "decide_browser", nothing)


def starts_under_way_do_not_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Browsers, "count", property(lambda self: len(self.held)))


def only_starts_under_way_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Browsers, "count", property(lambda self: len(self._starting)))


def a_browser_that_runs_is_counted_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Browsers, "count", property(lambda self: len(self.held) + len(self._starting)))


def a_browser_that_runs_cannot_be_asked_for_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Browsers, "has", lambda _self, _name: False)


def a_snapshot_forgets_the_browsers(patch: pytest.MonkeyPatch) -> None:
    load = Browsers.load
    patch.setattr(Browsers, "load", lambda self, _held, most: load(self, {}, most))


def a_snapshot_forgets_the_starts_under_way(patch: pytest.MonkeyPatch) -> None:
    def forgetful(self: Browsers, held: dict[str, int], most: int) -> None:
        self.held, self.most = dict(held), most

    def careless(self: Browsers, record: Any, task: Any) -> None:
        with suppress(KeyError):
            freed(self, record, task)

    freed = Browsers.on_freed
    patch.setattr(Browsers, "load", forgetful)
    patch.setattr(Browsers, "on_freed", careless)


def a_start_that_is_interrupted_keeps_its_place(patch: pytest.MonkeyPatch) -> None:
    freed = Browsers.on_freed

    def forgetful(self: Browsers, record: Any, task: Any) -> None:
        if type(record.event).__name__ != "AttemptInterrupted":
            freed(self, record, task)

    patch.setattr(Browsers, "on_freed", forgetful)


def a_stop_of_all_stops_nobody(patch: pytest.MonkeyPatch) -> None:
    succeeded = Browsers.on_succeeded

    def lazy(self: Browsers, record: Any, task: Any) -> None:
        if task.action != "browser_stop_all":
            succeeded(self, record, task)

    patch.setattr(Browsers, "on_succeeded", lazy)


def one_too_many_may_start(patch: pytest.MonkeyPatch) -> None:
    def generous(task: Any, browsers: Any, most: int) -> Any:
        return decide_browser(task, browsers, most + 1) if most else None

    patch.setattr(dispatcher, "decide_browser", generous)


BUGS: list[Plant] = [
    there_is_no_bound,
    starts_under_way_do_not_count,
    only_starts_under_way_count,
    a_browser_that_runs_is_counted_twice,
    a_browser_that_runs_cannot_be_asked_for_again,
    a_snapshot_forgets_the_browsers,
    a_snapshot_forgets_the_starts_under_way,
    a_start_that_is_interrupted_keeps_its_place,
    a_stop_of_all_stops_nobody,
    one_too_many_may_start,
]

test_the_simulator_finds_the_bug = finds(BUGS)

"""The rule of browsers, worked out from the records alone.

A start of a profile that succeeded holds one until a stop of it, or of all, succeeds; starts in
flight count too. Never are there more than the limit allowed when the last one was let in, whatever
crashed in between; and a start is refused only when there is no place for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.sim_rules import Rule

if TYPE_CHECKING:
    from support.sim_model import Model, ModelTask

    from rota.domain.events import Record


def _name(task: ModelTask) -> str:
    return f"p:{task.event.key}" if task.event.key else f"t:{task.id}"


class Browsers(Rule):
    """Browsers: started, stopped, and bounded."""

    def __init__(self, model: Model) -> None:
        """Start with none."""
        super().__init__(model)
        self.held: set[str] = set()

    def taken(self) -> set[str]:
        """Name the browsers that run or are being started."""
        flying = self.model.flying.values()
        return self.held | {_name(task) for task in flying if task.action == "browser_start"}

    def on_task_assigned(self, task: ModelTask, record: Record) -> None:
        most, taken = self.model.limits.browsers, self.taken()
        is_new = task.action == "browser_start" and _name(task) not in taken
        if is_new and most and len(taken) >= most:
            self.violated(f"{task.id} starts a browser beside {len(taken)} of {most}")

    def on_task_failed(self, task: ModelTask, record: Record) -> None:
        if record.event.code != "max_concurrent_browsers":  # type: ignore[union-attr]
            return
        self.model.seen["browsers_full"] += 1
        most, taken = self.model.limits.browsers, self.taken()
        if task.action != "browser_start" or task.state != "ready":
            self.violated(f"{task.id}, which is {task.state}, failed for want of a browser")
        if not most or len(taken) < most or _name(task) in taken:
            self.violated(f"{task.id} was refused a browser beside {len(taken)} of {most}")

    def on_task_succeeded(self, task: ModelTask, record: Record) -> None:
        if task.action == "browser_start" and self.model.limits.browsers:
            if task.event.key:
                self.held.add(_name(task))
        elif task.action == "browser_stop":
            self.held.discard(_name(task))
        elif task.action == "browser_stop_all":
            self.held.clear()

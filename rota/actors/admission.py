"""Admission: who may enter, and what the limits are.

In: submissions and changes of the limits. Out: `task_submitted`, `task_rejected`,
`config_changed`. Keeps that only waiting tasks count toward the caps, and that each task of a
batch is decided on its own, in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.actors.messages import Admitted, ChangeLimits, Refused, SubmitTasks
from rota.actors.runtime import CooperativeActor
from rota.domain.admission import decide_submission
from rota.domain.commands import SETTINGS
from rota.domain.events import ConfigChanged, TaskSubmitted
from rota.projections.control import limits_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.actors.journal import Journal
    from rota.actors.runtime import Runtime
    from rota.domain.commands import SubmitTask


class AdmissionActor(CooperativeActor):
    """Decides submissions."""

    def __init__(self, runtime: Runtime, journal: Journal, new_id: Callable[[], str]) -> None:
        """Take ids for new tasks from `new_id`."""
        super().__init__(runtime)
        self._journal = journal
        self._new_id = new_id

    def on_receive(self, message: Any) -> None:
        """Decide."""
        if type(message) is SubmitTasks:
            answers = [self._submit(command) for command in message.commands]
            self._journal.answer(message.reply, answers)
        elif type(message) is ChangeLimits:
            self._change_limits(message)

    def _submit(self, command: SubmitTask) -> Admitted | Refused:
        self._journal.check_open()
        state = self._journal.state
        limits = state.control.limits
        event = decide_submission(state.backlog, limits, command, self._new_id())
        record = self._journal.record(event, by=command.by)
        if type(event) is TaskSubmitted:
            return Admitted(event.task, event.position, record.at)
        details = {
            "agentId": command.agent,
            "queued": state.backlog.total,
            "maxQueue": limits.queued,
            "maxPerAgent": limits.queued_per_agent,
        }
        return Refused(event.task, record.at, event.code, event.error, details)  # type: ignore[union-attr]

    def _change_limits(self, message: ChangeLimits) -> None:
        before = limits_to(self._journal.state.control.limits)
        after = limits_to(message.limits)
        changed = sorted(SETTINGS[name] for name in after if after[name] != before[name])
        if changed:
            event = ConfigChanged(after, changed, message.source)
            self._journal.record(event, by=message.by)
        self._journal.answer(message.reply, changed)

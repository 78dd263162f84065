"""Which projections fold which fact, in which order: facts about a task, and others.

Tasks are folded first, then what is derived from them. What several projections share is a method
of the state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.domain import events as e
from rota.domain.fold import FOLDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.domain.task import Task
    from rota.projections.state import State

    Fold = Callable[[e.Record[Any]], None]
    TaskFold = Callable[[e.Record[Any], Task], None]


def task_folds(state: State) -> dict[type[Any], tuple[TaskFold, ...]]:
    """Give who folds the facts about a task, in order."""
    backlog, slots = state.backlog, state.slots
    stats, graph, browsers = state.stats, state.graph, state.browsers
    daily = state.daily
    ended: tuple[TaskFold, ...] = (
        state.on_ended,
        backlog.on_left,
        browsers.on_freed,
        slots.on_freed,
        state.deliveries.on_ended,
    )
    return {
        e.TaskSubmitted: (backlog.on_submitted, stats.on_submitted, daily.on_submitted),
        e.TaskRejected: (stats.on_rejected,),
        e.TaskReleased: (
            FOLDS[e.TaskReleased],
            graph.on_settled,
            backlog.on_ready,
        ),
        e.TaskDelayed: (FOLDS[e.TaskDelayed], graph.on_settled),
        e.TaskHeld: (FOLDS[e.TaskHeld], graph.on_submitted, backlog.on_held),
        e.TaskRevived: (
            state.on_revived,
            state.deliveries.on_revived,
            FOLDS[e.TaskRevived],
            graph.on_submitted,
            backlog.on_submitted,
        ),
        e.TaskLogged: (FOLDS[e.TaskLogged],),
        e.TaskProgressed: (FOLDS[e.TaskProgressed],),
        e.TaskAssigned: (
            FOLDS[e.TaskAssigned],
            backlog.on_assigned,
            browsers.on_taken,
            slots.on_taken,
            stats.on_assigned,
            daily.on_assigned,
        ),
        e.TaskStarted: (FOLDS[e.TaskStarted],),
        e.TaskSucceeded: (
            browsers.on_succeeded,
            *ended,
            stats.on_succeeded,
            daily.on_succeeded,
        ),
        e.TaskFailed: (*ended, stats.on_failed, daily.on_failed),
        e.AttemptFailed: (
            FOLDS[e.AttemptFailed],
            browsers.on_freed,
            slots.on_freed,
            backlog.on_scheduled,
            stats.on_attempt_failed,
            daily.on_attempt_failed,
        ),
        e.TaskExpired: (*ended, stats.on_expired, daily.on_expired),
        e.TaskCancelled: (*ended, stats.on_cancelled),
        e.TaskReprioritised: (backlog.on_reprioritised, state.projects.on_reprioritised),
        e.AttemptInterrupted: (
            FOLDS[e.AttemptInterrupted],
            browsers.on_freed,
            slots.on_freed,
            backlog.on_ready,
            stats.on_interrupted,
        ),
    }


def other_folds(state: State) -> dict[type[Any], tuple[Fold, ...]]:
    deliveries, stats, control = state.deliveries, state.stats, state.control
    settings = (state.before_settings, control.on_settings, state.on_settings)
    return {
        e.ServerStarted: (*settings, stats.on_server_started),
        e.ServerStopped: (),
        e.ConfigChanged: settings,
        e.ActorFailed: (),
        e.ClockStepped: (state.on_clock_stepped,),
        e.AgentPaused: (control.on_paused,),
        e.AgentResumed: (control.on_resumed,),
        e.TypeDeclared: (control.on_type_declared,),
        e.TypePaused: (control.on_type_paused,),
        e.TypeResumed: (control.on_type_resumed,),
        e.SchedulerPaused: (control.on_stopped,),
        e.SchedulerResumed: (control.on_going,),
        e.TokenCreated: (state.tokens.on_created,),
        e.TokenRevoked: (state.tokens.on_revoked,),
        e.BatchSubmitted: (state.batches.on_submitted, state.keys.on_batch),
        e.BatchRejected: (),
        e.RefusalsCounted: (stats.on_refusals,),
        e.BatchFinished: (state.on_batch_finished,),
        e.WorkflowSubmitted: (state.batches.on_flow_submitted, state.keys.on_batch),
        e.WorkflowTripped: (state.on_flow_tripped,),
        e.WorkflowPaused: (state.batches.on_flow_paused,),
        e.WorkflowResumed: (state.batches.on_flow_resumed,),
        e.WorkflowClosed: (state.batches.on_flow_closed,),
        e.WorkflowCancelled: (state.batches.on_flow_cancelled,),
        e.WorkflowEnded: (state.on_flow_ended,),
        **_project_folds(state),
        e.ScheduleCreated: (state.schedules.on_created,),
        e.ScheduleChanged: (state.schedules.on_changed,),
        e.SchedulePaused: (state.schedules.on_paused,),
        e.ScheduleResumed: (state.schedules.on_resumed,),
        e.ScheduleDeleted: (state.schedules.on_deleted,),
        e.ScheduleFired: (state.schedules.on_fired,),
        e.ScheduleMissed: (state.schedules.on_missed,),
        e.ScheduleRealigned: (state.schedules.on_realigned,),
        e.ResultRefused: (stats.on_refused,),
        e.LeaseExpired: (state.daily.on_lease_over,),
        e.LeaseEnded: (state.daily.on_lease_over,),
        e.DeliverySucceeded: (deliveries.on_succeeded,),
        e.DeliveryFailed: (deliveries.on_failed,),
        e.DeliveryAbandoned: (deliveries.on_abandoned,),
    }


def _project_folds(state: State) -> dict[type[Any], tuple[Fold, ...]]:
    projects = state.projects
    return {
        e.ProjectCreated: (projects.on_created,),
        e.ProjectTaskAdded: (projects.on_added,),
        e.ProjectTaskEdited: (projects.on_edited,),
        e.ProjectTaskMoved: (projects.on_moved,),
        e.ProjectTaskRemoved: (projects.on_removed,),
        e.ProjectDeleted: (projects.on_deleted,),
        e.RunQueued: (projects.on_queued,),
        e.RunStarted: (projects.on_started,),
        e.RunTaskSelected: (projects.on_selected,),
        e.RunStopRequested: (projects.on_stop_requested,),
        e.RunEnded: (projects.on_ended,),
    }

"""What is on a project's list: what may be put there, changed, moved and taken off.

An item is a stored request. Only what no run has selected can be changed. Everything that a
stranger can make grow here is bounded: projects, items of one and of all, and their bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from rota.domain import events as e
from rota.domain.admission import check_same
from rota.domain.project_parts import Keyed, place_in, weight_of_key
from rota.domain.shares import Shares, share_of
from rota.domain.stored import write_request
from rota.errors import Conflict, InvalidRequest, NotFound, QueueFull

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rota.domain.intake import Request
    from rota.domain.project_parts import Item, Project

    Sees = Callable[[str | None], bool]
    """Says of which agents' tasks whoever asks may know; another's are not there for it."""

PROJECTS_MAX = 10_000
"""How many projects there may be; callers have shares of this and the next two."""
ITEMS_MAX = 100_000
"""How many items may be on the lists of all projects."""
ITEM_BYTES_MAX = 64 << 20
"""How large the requests of all items may be together."""
LIST_BYTES_MAX = ITEM_BYTES_MAX // 8
"""How large those of one project may be: so none has what all of them share."""

NOT_IN_A_LIST = {
    "dependsOn": "the order of the list says what comes after what",
    "workflowId": "a task belongs to its project's run",
    "dedup": "each item of a list stands for itself",
}


def sees_all(agent: str | None) -> bool:
    """Let all agents' tasks be known of."""
    del agent
    return True


class Room(NamedTuple):
    """Who has made the projects, and what is on the lists of all; how much may be on one."""

    projects: Shares
    items: Shares
    bytes: Shares
    items_max: int

    @classmethod
    def empty(cls, items_max: int = 0) -> Room:
        return cls(Shares(PROJECTS_MAX), Shares(ITEMS_MAX), Shares(ITEM_BYTES_MAX), items_max)


Keys = Mapping[tuple[str, str], Keyed]
"""What idempotency keys stand for, by whose they are and the key."""


def known_items(keys: Keys, request: Request, by: str) -> list[str]:
    """Give what an idempotency key stands for. Raises Unprocessable if it is another's."""
    key = request.plan.idempotency
    found = keys.get((by, key)) if key is not None else None
    if found is None:
        return []
    assert key is not None
    check_same(key, request.plan.digest, found.digest)
    return list(found.items)


def decide_creation(
    project: Project | None, project_id: str, by: str, room: Room
) -> e.ProjectCreated | None:
    """Make an empty project; None if there is one of that name. Raises QueueFull."""
    if project is not None:
        return None
    _check_one_more(room, share_of(by, project_id))
    return e.ProjectCreated(project_id)


def _check_one_more(room: Room, owner: str) -> None:
    if not room.projects.has_room(owner):
        msg = f"there are {PROJECTS_MAX} projects already, or as many of yours as may be"
        hint = "delete some"
        raise QueueFull(msg, code="too_many_projects", details={"max": PROJECTS_MAX}, hint=hint)


def decide_additions(
    project: Project | None,
    project_id: str,
    requests: Sequence[tuple[str, Request]],
    before: str | None,
    room: Room,
    sees: Sees = sees_all,
) -> list[e.ProjectTaskAdded]:
    """Put requests on a list under these ids: all or none. Raises NotFound or QueueFull."""
    owners = [share_of(request.by, request.agent) for _, request in requests]
    if project is None and owners:
        _check_one_more(room, owners[0])
    agent = pending_item(project, project_id, before, sees).agent if before is not None else None
    events = [
        e.ProjectTaskAdded(
            request.agent, project_id, item, write_request(request), before, before_agent=agent
        )
        for item, request in requests
    ]
    have = len(project.items) if project is not None else 0
    if have + len(events) > room.items_max:
        msg = f"the list has {have} tasks; it may have {room.items_max}"
        raise QueueFull(msg, code="project_full", details=about(project_id, max=room.items_max))
    if not room.items.have_room(Counter(owners)):
        msg = f"the lists of all projects have {ITEMS_MAX} tasks, or as many of yours as may be"
        raise QueueFull(msg, code="projects_full", details={"max": ITEMS_MAX})
    more: Counter[str] = Counter()
    for owner, event, (_, request) in zip(owners, events, requests, strict=True):
        key = request.plan.idempotency
        more[owner] += len(orjson.dumps(event.request))
        more[owner] += weight_of_key(key) if key is not None else 0
    _check_list(project, project_id, more.total())
    if not room.bytes.have_room(more):
        raise _lists_full()
    return events


def decide_edit(
    project: Project | None, project_id: str, item_id: str, request: Request, room: Room
) -> e.ProjectTaskEdited:
    """Have an item ask for something else. Raises NotFound, Conflict or QueueFull."""
    item = pending_item(project, project_id, item_id)
    if item.held:
        msg = "the task was submitted before and keeps what it asks for; it can be moved or removed"
        raise Conflict(msg, code="task_not_pending", details=about(project_id, taskId=item_id))
    written = write_request(request)
    assert project is not None
    size = len(orjson.dumps(written))
    _check_list(project, project_id, size - item.size)
    owner = share_of(request.by, request.agent)
    if not room.bytes.may_replace(owner, size, item.owner, item.size):
        raise _lists_full()
    return e.ProjectTaskEdited(request.agent, project_id, item_id, written)


def decide_move(
    project: Project | None,
    project_id: str,
    item_id: str,
    before: str | int | None,
    sees: Sees = sees_all,
) -> e.ProjectTaskMoved | None:
    """Give an item another place: before another, at a position, or at the end; None if it is so.

    Raises NotFound or Conflict.
    """
    item = pending_item(project, project_id, item_id, sees)
    assert project is not None
    rest = [each for each in project.items if each is not item]
    if isinstance(before, int):
        before = rest[before].id if before < len(rest) else None
    elif before is not None:
        if before == item_id:
            return None
        pending_item(project, project_id, before, sees)
    if project.items[place_in(rest, item.priority, before)] is item:
        return None
    agent = next((each.agent for each in rest if each.id == before), None)
    return e.ProjectTaskMoved(item.request.agent, project_id, item_id, before, agent)


def decide_removal(
    project: Project | None,
    project_id: str,
    item_id: str,
    reason: str,
    sees: Sees = sees_all,
) -> e.ProjectTaskRemoved:
    """Take an item off its list. Raises NotFound, or Conflict if it has been selected."""
    item = pending_item(project, project_id, item_id, sees)
    return e.ProjectTaskRemoved(item.request.agent, project_id, item_id, reason)


def decide_deletion(
    project: Project | None, project_id: str, reason: str, sees: Sees = sees_all
) -> e.ProjectDeleted:
    """Drop a project and its list. Raises NotFound, or Conflict while it runs.

    A list with tasks that the caller may not know of is not its to drop.
    """
    is_its = project is not None and all(sees(item.agent) for item in project.items)
    if known(project if is_its else None).run is not None:
        raise already_running(project_id)
    return e.ProjectDeleted(project_id, reason)


def known(project: Project | None) -> Project:
    """Give a project that there is. Raises NotFound."""
    if project is None:
        hint = "add a task to its list first"
        raise NotFound("project not found", code="project_not_found", hint=hint)
    return project


def pending_item(
    project: Project | None, project_id: str, item_id: str, sees: Sees = sees_all
) -> Item:
    """Give an item that has not been selected. Raises NotFound or Conflict."""
    project = known(project)
    item = project.find(item_id)
    if item is not None and sees(item.agent):
        return item
    details = about(project_id, taskId=item_id)
    taken = project.taken
    is_taken = taken is not None and taken.id == item_id and sees(taken.agent)
    if is_taken or any(done.task == item_id and sees(done.agent) for done in project.done):
        msg = "the task has started: only what has not can be changed"
        raise Conflict(msg, code="task_not_pending", details=details)
    raise not_listed(project_id, item_id)


def not_listed(project_id: str, item_id: str) -> NotFound:
    details = about(project_id, taskId=item_id[:200])
    return NotFound("task not found on this list", code="task_not_found", details=details)


def check_fits(request: Request) -> None:
    """Refuse what makes no sense in a list. Raises InvalidRequest."""
    for field, is_said in (
        ("dependsOn", bool(request.depends)),
        ("workflowId", request.plan.workflow is not None),
        ("dedup", request.dedup is not None),
    ):
        if is_said:
            msg = f"field '{field}': a list takes no such thing: {NOT_IN_A_LIST[field]}"
            raise InvalidRequest(msg, details={"field": field})


def _check_list(project: Project | None, project_id: str, more: int) -> None:
    have = project.bytes if project is not None else 0
    if more > 0 and have + more > LIST_BYTES_MAX:
        msg = f"the list has {have} bytes; it may have {LIST_BYTES_MAX}"
        details = about(project_id, maxBytes=LIST_BYTES_MAX)
        raise QueueFull(msg, code="project_full", details=details)


def _lists_full() -> QueueFull:
    msg = f"the lists of all projects have {ITEM_BYTES_MAX >> 20} MiB, or yours as much as may be"
    return QueueFull(msg, code="projects_full", details={"maxBytes": ITEM_BYTES_MAX})


def about(project_id: str, **more: Any) -> dict[str, Any]:
    return {"projectId": project_id, **more}


def already_running(project_id: str) -> Conflict:
    msg = "Queue is already processing tasks for this project"
    return Conflict(msg, code="queue_already_running", details=about(project_id))

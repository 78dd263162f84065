"""Intake: what somebody asks for and the rules of its type become a command.

The one way in. HTTP, batches and whatever submits tasks from inside make a `Request`, in which
what was not said is absent; here, and nowhere else, it is filled in: first by what was said, then
by the rules of the type, then by what is usual where the request comes from. The rules are plain
values that come into the state with the configuration (rota.projections.control). Whether the
command is granted is admission's to decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rota.domain.commands import PULL, Dedup, Flow, SubmitBatch, SubmitTask
from rota.domain.declared import NOT_DECLARED
from rota.domain.plan import DEADLINE_S_MAX, NO_PLAN, TIMEOUT_MS_MAX, Plan
from rota.domain.retry import RetryPolicy
from rota.domain.tokens import ROTA
from rota.errors import InvalidRequest

if TYPE_CHECKING:
    from rota.domain.declared import Declarations, Declared

EVERY_TYPE = "*"
"""The name of the rules for types that have none of their own."""
BUILTIN = "builtin"
BUILTIN_ACTIONS = ("echo", "sleep", "fail")
CHAT = "chat"
"""The type of BrowserOS tasks."""
PRIORITY = 2
NATIVE = "native"


class TypeRules(NamedTuple):
    """What tasks of one type get unless they say otherwise, and the most they may ask for.

    `retry` is a `RetryPolicy` written out; an empty one never tries again. `follow_up` is a
    `FollowUp` (rota.domain.derived) written out: what each success is followed by; an empty one is
    followed by nothing.
    """

    executor: str = PULL
    timeout_ms: int | None = None
    timeout_ms_max: int = TIMEOUT_MS_MAX
    queue_timeout_ms: int | None = None
    retry: dict[str, Any] | None = None
    on_interrupt: str = "retry"
    follow_up: dict[str, Any] | None = None


class Rules(NamedTuple):
    """The rules of every type, and who runs actions that have none: tabs and chats, if any.

    `retry` is the policy of native tasks where neither they nor their type have one. What workers
    have `declared` is for tasks that they come for, where the rules of the type say nothing.
    """

    types: dict[str, TypeRules] = {}  # noqa: RUF012 - never changed, only replaced with the rules
    tab: str | None = None
    chat: str | None = None
    retry: dict[str, Any] | None = None
    declared: Declarations | None = None

    def of(self, action: str) -> TypeRules:
        """Give the rules of a type: its own, or those for every type."""
        return self.types.get(action) or self.types.get(EVERY_TYPE, NO_RULES)

    def follow_up_of(self, action: str, *, is_follow_up: bool) -> dict[str, Any] | None:
        """Give what follows a success; the rule for every type is not for what itself follows."""
        own = self.types.get(action, NO_RULES).follow_up
        if own is not None:
            return own or None
        return (not is_follow_up and self.types.get(EVERY_TYPE, NO_RULES).follow_up) or None

    def executor_for(self, action: str, *, has_tab: bool = False, needs_tab: bool = False) -> str:
        """Name the executor of an action.

        It is its type's, the tab's, the builtin, the chat, that of every type, or `pull`. What
        needs a tab and has none is the builtin executor's to refuse.
        """
        rules = self.types.get(action)
        if rules is not None:
            return rules.executor
        if self.tab is not None and (has_tab or (needs_tab and action not in BUILTIN_ACTIONS)):
            return self.tab
        if action in BUILTIN_ACTIONS or (needs_tab and not has_tab):
            return BUILTIN
        chat = self.chat if action == CHAT and not needs_tab else None
        return chat or self.types.get(EVERY_TYPE, NO_RULES).executor

    def to_dict(self) -> dict[str, Any]:
        """Write what differs from no rules at all, for an event."""
        written = _differing(self._replace(declared=None), Rules())
        if self.types:
            written["types"] = {name: _differing(r, NO_RULES) for name, r in self.types.items()}
        return written

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Rules:
        """Read what `to_dict` wrote; names that are not known are left out."""
        known = {name: value for name, value in data.items() if name in cls._fields}
        types = {
            name: TypeRules(**{n: v for n, v in rules.items() if n in TypeRules._fields})
            for name, rules in data.get("types", {}).items()
        }
        return cls(**{**known, "types": types})


NO_RULES = TypeRules()


def _differing(rules: Rules | TypeRules, none: Rules | TypeRules) -> dict[str, Any]:
    values = zip(rules._fields, rules, none, strict=True)
    return {name: value for name, value, usual in values if value != usual}


class Usual(NamedTuple):
    """What a request gets where neither it nor its type says: the defaults of where it comes from.

    `deadline_ms` counts from the intake.
    """

    timeout_ms: int | None = None
    timeout_ms_max: int = TIMEOUT_MS_MAX
    retry: dict[str, Any] | None = None
    deadline_ms: int | None = None


NOTHING_USUAL = Usual()


class Request(NamedTuple):
    """What can be asked of one task; what is absent was not said.

    Times are microseconds. `depends` are ids, and in a batch also `ref:name` or the index of
    another item; `wanted_id` is the id that the client chose. `retries` changes the policy that the
    task gets from its type, where `plan.retry` would replace it. What `needs_tab` is run by tabs
    only. An `executor` is named by who knows better than the rules.
    """

    agent: str
    action: str
    executor: str | None = None
    params: dict[str, Any] | None = None
    priority: int | None = None
    dialect: str = "native"
    tab: str | None = None
    ref: str | None = None
    callback: str | None = None
    deadline: int | None = None
    timeout_ms: int | None = None
    on_interrupt: str | None = None
    by: str = ROTA
    wanted_id: str | None = None
    depends: tuple[str | int, ...] = ()
    on_missing: str = "wait"
    dedup: Dedup | None = None
    plan: Plan = NO_PLAN
    retries: dict[str, Any] | None = None
    usual: Usual = NOTHING_USUAL
    needs_tab: bool = False

    @property
    def names_a_moment(self) -> bool:
        """Whether something of it is judged by the clock."""
        return (
            self.deadline is not None
            or self.plan.not_before is not None
            or self.usual.deadline_ms is not None
        )


class BatchRequest(NamedTuple):
    """What can be asked of tasks that go in together; with a `flow` they are a workflow.

    `wanted_id` is the id that the client chose for a workflow.
    """

    tasks: tuple[Request, ...]
    dialect: str = "native"
    parallelism: int | None = None
    callback: str | None = None
    by: str = ROTA
    idempotency: str | None = None
    digest: str | None = None
    flow: Flow | None = None
    wanted_id: str | None = None


class TimeoutTooLong(InvalidRequest):
    """An attempt may not take as long as was asked for; `most_ms` is the most."""

    def __init__(self, most_ms: int) -> None:
        super().__init__(
            f"field 'timeoutMs': is more than {most_ms}, the most for this type",
            details={"field": "timeoutMs"},
        )
        self.most_ms = most_ms


def take_in(request: Request, rules: Rules, now: int) -> SubmitTask:
    """Make the command that a request asks for. Raises InvalidRequest."""
    kind, usual = rules.of(request.action), request.usual
    executor = request.executor or _executor(request, rules)
    declared_for, declared = NOT_DECLARED
    if rules.declared is not None and executor == PULL:
        declared_for, declared = rules.declared.of(request.agent, request.action)
    most_ms = min(kind.timeout_ms_max, usual.timeout_ms_max)
    timeout_ms = request.timeout_ms or kind.timeout_ms
    if timeout_ms is None and declared.timeout_ms is not None:
        timeout_ms = min(declared.timeout_ms, most_ms)
    timeout_ms = timeout_ms or usual.timeout_ms
    if timeout_ms is not None and timeout_ms > most_ms:
        raise TimeoutTooLong(most_ms)
    deadline = request.deadline
    if deadline is not None:
        _check_within_reason("deadline", deadline, now)
    elif usual.deadline_ms is not None:
        deadline = now + usual.deadline_ms * 1000
    on_interrupt = request.on_interrupt or kind.on_interrupt
    if request.plan.requires and executor != PULL:
        raise _bad("requires", f"is for tasks that workers come for; '{executor}' runs this one")
    return SubmitTask(
        request.agent,
        request.action,
        executor,
        request.params,
        PRIORITY if request.priority is None else request.priority,
        request.dialect,
        request.tab,
        request.ref,
        request.callback,
        deadline,
        timeout_ms,
        "fail" if on_interrupt == "fail" else None,
        request.by,
        request.wanted_id,
        request.depends,
        request.on_missing,
        request.dedup,
        _planned(request, rules, now, declared_for, declared),
    )


def take_in_batch(batch: BatchRequest, rules: Rules, now: int) -> SubmitBatch:
    """Make the command that a batch asks for. Raises InvalidRequest."""
    return SubmitBatch(
        tuple([take_in(request, rules, now) for request in batch.tasks]),
        batch.dialect,
        batch.parallelism,
        batch.callback,
        batch.by,
        batch.idempotency,
        batch.digest,
        batch.flow,
        batch.wanted_id,
    )


def _executor(request: Request, rules: Rules) -> str:
    tab = request.tab
    has_tab = bool(tab) if request.needs_tab else tab is not None
    return rules.executor_for(request.action, has_tab=has_tab, needs_tab=request.needs_tab)


def _planned(
    request: Request, rules: Rules, now: int, declared_for: str, declared: Declared
) -> Plan:
    plan, kind = request.plan, rules.of(request.action)
    usual = request.usual.retry
    if usual is None and request.dialect == NATIVE:
        usual = rules.retry
    if declared.retry is not None:
        usual = declared.retry
    if plan is NO_PLAN and kind is NO_RULES and usual is None and not declared_for:
        return plan  # as most do
    changes = _moment(plan, now)
    retry = _retry(request, kind, usual)
    if retry != plan.retry:
        changes["retry"] = retry
    if not plan.queue_timeout_ms and kind.queue_timeout_ms:
        changes["queue_timeout_ms"] = kind.queue_timeout_ms
    if declared.max_concurrent is not None:
        changes["declared_for"] = declared_for
    if plan.requires:
        changes["requires"] = sorted(set(plan.requires))
    return plan._replace(**changes) if changes else plan


def _moment(plan: Plan, now: int) -> dict[str, Any]:
    """Say what changes about the moment that a task waits for. Raises InvalidRequest."""
    if plan.not_before is not None:
        if plan.delay_ms is not None:
            raise _bad("delayMs", "give either notBefore or delayMs, not both")
        if plan.not_before <= now:
            return {"not_before": None}
        _check_within_reason("notBefore", plan.not_before, now)
    return {"delay_ms": None} if plan.delay_ms == 0 else {}


def _retry(
    request: Request, kind: TypeRules, usual: dict[str, Any] | None
) -> dict[str, Any] | None:
    """Write the policy that a task gets: None if nobody says, empty to try once."""
    retry = request.plan.retry
    if retry is None:
        retry = usual if kind.retry is None else kind.retry
        if retry is not None and request.retries:
            retry = RetryPolicy(**{**retry, **request.retries}).to_dict()
    return retry


def _check_within_reason(field: str, at: int, now: int) -> None:
    if at > now + DEADLINE_S_MAX * 1_000_000:
        raise _bad(field, f"is more than {DEADLINE_S_MAX // 86400} days away")


def _bad(field: str, problem: str) -> InvalidRequest:
    return InvalidRequest(f"field '{field}': {problem}", details={"field": field})

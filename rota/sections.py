"""Tables of the configuration: how rota listens, its limits, namespaces, types and follow-ups.

A namespace says only what is its own; what it leaves out is as in `[scheduler]` and `[server]`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel

from rota.domain.derived import FollowUp
from rota.domain.intake import TypeRules
from rota.domain.placeholders import names_in
from rota.domain.plan import DEADLINE_S_MAX, TIMEOUT_MS_MAX
from rota.domain.retry import ATTEMPTS, RetryPolicy
from rota.domain.tokens import RESERVED
from rota.durations import IN_SECONDS
from rota.setting_names import without_zeros
from rota.wording import NAMESPACE, ORIGIN, RETRY_ON, known_only

LIMIT_MAX = 100_000_000
DEFAULT = "default"
"""The namespace that is always there, and is meant where none is named."""
NamespaceName = Annotated[str, Field(pattern=NAMESPACE)]


def _as_browsers_say(origin: str) -> str:
    """Write an origin as browsers send it: in small letters, IDNA, without the default port."""
    scheme, _, host = origin.partition("://")
    try:
        host = host.lower().encode("idna").decode()
    except UnicodeError:
        msg = "must be an origin whose host has 1 to 63 characters between its dots"
        raise ValueError(msg) from None
    return f"{scheme}://{host.removesuffix(':443' if scheme == 'https' else ':80')}"


Origin = Annotated[str, Field(pattern=ORIGIN), AfterValidator(_as_browsers_say)]
FOLLOW_UP_NAMES = ("result", "task")
"""What the placeholders in the params of a follow-up may begin with."""
NAME_CHARS_MAX = 200
FOLLOW_PRIORITY_MAX = 1_000_000
RETRY_ATTEMPTS_MAX = 100
RETRY_MS_MAX = 24 * 3600 * 1000
RETRY_ON_MAX = 50
FOR_ALL = ("enabled",)
READ: ConfigDict = {
    "frozen": True,
    "extra": "forbid",
    "alias_generator": to_camel,
    "populate_by_name": True,
    "hide_input_in_errors": True,
}


class Section(BaseModel):
    """A table of the file."""

    ignores_zeros: ClassVar[bool] = True

    model_config = ConfigDict(**READ)

    @model_validator(mode="before")
    @classmethod
    def _ignore_zeros(cls, data: Any) -> Any:
        return without_zeros(cls, data) if isinstance(data, dict) else data


class FollowUpSettings(BaseModel):
    """The task that follows each success of a type; `false` instead of a table is none."""

    model_config = ConfigDict(**READ, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _known_only(cls, data: Any) -> Any:
        return known_only(cls, data)

    type: Annotated[str, Field(min_length=1, max_length=NAME_CHARS_MAX)]
    agent: Annotated[str | None, Field(min_length=1, max_length=NAME_CHARS_MAX)] = None
    params: dict[str, Any] = Field(default_factory=dict)
    priority: Annotated[int | None, Field(ge=0, le=FOLLOW_PRIORITY_MAX)] = None
    joins: bool = False

    @model_validator(mode="after")
    def _says_what_is_known(self) -> FollowUpSettings:
        for name in names_in(self.params):
            if name.partition(".")[0] not in FOLLOW_UP_NAMES:
                known = " or ".join(FOLLOW_UP_NAMES)
                msg = f"params: the placeholder '{{{{{name[:100]}}}}}' must begin with {known}"
                raise ValueError(msg)
        return self

    @model_serializer(mode="wrap")
    def _shown(self, write: SerializerFunctionWrapHandler) -> Any:
        return write(self) if self.type else False

    def rule(self) -> dict[str, Any]:
        """Write the rule as events carry it; an empty one makes nothing."""
        if not self.type:
            return {}
        joins = self.joins or None
        rule = FollowUp(self.type, self.agent, self.params or None, self.priority, joins)
        return {name: value for name, value in rule._asdict().items() if value is not None}


NO_FOLLOW_UP = FollowUpSettings.model_construct(type="")
"""What `followUp = false` is: a type without one, also where `[types."*"]` has one."""


class RetrySettings(BaseModel):
    """When to try a failed attempt again."""

    model_config = ConfigDict(**READ, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _known_only(cls, data: Any) -> Any:
        return known_only(cls, data)

    kind: Literal["exponential", "quadratic", "linear", "fixed"] = "exponential"
    base_ms: Annotated[int, Field(ge=0, le=RETRY_MS_MAX)] = 1000
    multiplier: Annotated[float, Field(ge=1, le=100, allow_inf_nan=False)] = 2.0
    jitter_ms: Annotated[int, Field(ge=0, le=RETRY_MS_MAX)] = 0
    max_ms: Annotated[int, Field(ge=0, le=RETRY_MS_MAX)] = 60_000
    max_attempts: Annotated[int, Field(ge=1, le=RETRY_ATTEMPTS_MAX)] = ATTEMPTS
    retry_on: (
        Annotated[
            list[Annotated[str, Field(pattern=RETRY_ON, max_length=120)]],
            Field(max_length=RETRY_ON_MAX, fail_fast=True),
        ]
        | None
    ) = None

    def policy(self) -> RetryPolicy:
        return RetryPolicy(**self.model_dump())

    def written(self) -> dict[str, Any]:
        """Give it as events and rules carry it: what differs from trying once."""
        return self.policy().to_dict()


def _or_none_at_all(said: Any) -> Any:
    return NO_FOLLOW_UP if said is False else said


class TypeSettings(Section):
    """What tasks of one action get unless they say otherwise."""

    executor: str = "pull"
    timeout_ms: Annotated[int | None, Field(ge=1, le=TIMEOUT_MS_MAX)] = None
    timeout_ms_max: Annotated[int, Field(ge=1, le=TIMEOUT_MS_MAX)] = TIMEOUT_MS_MAX
    queue_timeout_ms: Annotated[int | None, Field(ge=1, le=TIMEOUT_MS_MAX)] = None
    max_concurrent: Annotated[int | None, Field(strict=True, ge=1, le=LIMIT_MAX)] = None
    retry: RetrySettings | None = None
    on_interrupt: Literal["retry", "fail"] = "retry"
    follow_up: Annotated[FollowUpSettings | None, BeforeValidator(_or_none_at_all)] = None

    def over(self, every: TypeSettings) -> TypeSettings:
        """Lay what is said of one type over what is said of every type, but for its follow-up."""
        own = {name: getattr(self, name) for name in self.model_fields_set}
        return every.model_copy(update={"follow_up": None, **own})

    def rules(self) -> TypeRules:
        return TypeRules(
            executor=self.executor,
            timeout_ms=self.timeout_ms,
            timeout_ms_max=self.timeout_ms_max,
            queue_timeout_ms=self.queue_timeout_ms,
            retry=self.retry.written() if self.retry is not None else None,
            on_interrupt=self.on_interrupt,
            follow_up=self.follow_up.rule() if self.follow_up is not None else None,
        )


class SchedulerSettings(Section):
    """The limits, by PinchTab's names; all but `enabled` can be reloaded.

    Counts are generous and bytes bound the rest; PinchTab's own numbers are its preset's.
    """

    enabled: bool = True
    strategy: Literal["fair-fifo", "priority-fifo"] = "fair-fifo"
    max_queue_size: Annotated[int, Field(strict=True, ge=1, le=LIMIT_MAX)] = 100_000
    max_per_agent: Annotated[int, Field(strict=True, ge=1, le=LIMIT_MAX)] = 10_000
    max_inflight: Annotated[int, Field(strict=True, ge=1, le=LIMIT_MAX)] = 1000
    max_per_agent_inflight: Annotated[
        int,
        Field(
            strict=True,
            ge=1,
            le=LIMIT_MAX,
            validation_alias=AliasChoices(
                "maxPerAgentInflight",
                "maxPerAgentFlight",
                "max_per_agent_inflight",
                "max_per_agent_flight",
            ),
        ),
    ] = 1000
    result_ttl_sec: Annotated[
        int,
        Field(
            strict=True,
            ge=1,
            le=LIMIT_MAX,
            validation_alias=AliasChoices(
                "resultTTLSec", "resultTtlSec", "result_ttl_sec", "resultTTL", "result_ttl"
            ),
            serialization_alias="resultTTLSec",
        ),
        IN_SECONDS,
    ] = 300
    worker_count: Annotated[int, Field(strict=True, ge=1, le=LIMIT_MAX)] = 64
    max_per_key: Annotated[int, Field(strict=True, ge=1, le=LIMIT_MAX)] = 1
    aging_ms: Annotated[int, Field(strict=True, ge=0, le=TIMEOUT_MS_MAX)] = 0
    start_paused: bool = False
    max_queue_bytes: Annotated[int, Field(strict=True, ge=1 << 20, le=1 << 50)] = 1 << 30
    max_ended_tasks: Annotated[int, Field(strict=True, ge=1, le=LIMIT_MAX)] = 100_000
    max_ended_bytes: Annotated[int, Field(strict=True, ge=1 << 20, le=1 << 50)] = 64 << 20
    sticky_ms: Annotated[int, Field(strict=True, ge=0, le=60_000)] = 200
    max_log_bytes_per_minute: Annotated[int, Field(strict=True, ge=1 << 20, le=1 << 50)] = 2 << 30

    def said(self) -> dict[str, Any]:
        """Give what the file says of it, without the defaults."""
        return self.model_dump(include=self.model_fields_set)


class TlsSettings(Section):
    """Serves HTTPS with a certificate, both in PEM files; SIGHUP has them read again."""

    cert: Annotated[str, Field(min_length=1)]
    key: Annotated[str, Field(min_length=1)]


class ServerSettings(Section):
    """How the process listens and stores."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 9867
    data_dir: str = "rota-data"
    tokens: dict[str, str] = Field(default_factory=dict)
    body_bytes_max: Annotated[int, Field(ge=1024, le=1 << 30)] = 4 << 20
    body_timeout_s: Annotated[float, Field(gt=0, le=3600)] = 10.0
    header_timeout_s: Annotated[float, Field(gt=0, le=600)] = 10.0
    connections_max: Annotated[int, Field(ge=1)] = 5000
    grace_s: Annotated[float, Field(ge=0, le=3600)] = 10.0
    map_bytes: Annotated[int, Field(ge=1 << 16)] = 16 << 30
    snapshot_every_events: Annotated[int, Field(ge=100)] = 100_000
    allow_origins: tuple[Origin, ...] = ()
    allow_network_fs: bool = False
    on_event: tuple[str, ...] = ()
    tls: TlsSettings | None = None


class ProjectSettings(Section):
    """How many projects are processed at once, and how long their lists may be."""

    max_concurrent: Annotated[int, Field(strict=True, ge=0, le=LIMIT_MAX)] = 0
    max_items: Annotated[int, Field(strict=True, ge=1, le=100_000)] = 1000
    kill_wait_ms: Annotated[int, Field(strict=True, ge=1, le=600_000)] = 10_000
    run_timeout_ms: Annotated[int, Field(strict=True, ge=0, le=DEADLINE_S_MAX * 1000)] = 86_400_000


class NamespaceSettings(Section):
    """A scheduler of its own beside the default one: a log in a folder of its own."""

    data_dir: str | None = None
    tokens: dict[str, str] = {}
    scheduler: SchedulerSettings = SchedulerSettings()

    @model_validator(mode="after")
    def _has_only_its_own(self) -> NamespaceSettings:
        for name in FOR_ALL:
            if name in self.scheduler.model_fields_set:
                msg = f"scheduler.{name} is one for all namespaces: set it in [scheduler]"
                raise ValueError(msg)
        return self


def folder_of(name: str, data_dir: str | Path, own: str | None = None) -> Path:
    """Give the folder of a namespace's log: its own, or one inside of the default's."""
    if own is not None:
        return Path(own)
    return Path(data_dir) if name == DEFAULT else Path(data_dir) / "namespaces" / name


def check_tokens(common: dict[str, str], namespaces: dict[str, NamespaceSettings]) -> None:
    """See that a token says who it is, and where it may go. Raises ValueError."""
    for name in (*common, *(name for each in namespaces.values() for name in each.tokens)):
        if name in RESERVED:
            msg = f"tokens.{name}: this is what rota calls callers itself; give it another name"
            raise ValueError(msg)
        if "/" in name:  # what is written between a token's name and its worker's
            msg = f"tokens.{name}: a token's name has no '/'; give it another one"
            raise ValueError(msg)
    seen = {secret: f"server.tokens.{name}" for name, secret in common.items()}
    for namespace, settings in namespaces.items():
        for name, secret in settings.tokens.items():
            where = f"namespaces.{namespace}.tokens.{name}"
            if name in common:
                msg = f"{where}: this name is taken by server.tokens.{name}"
                raise ValueError(msg)
            if secret in seen:
                msg = f"{where}: this is the token of {seen[secret]}; each needs one of its own"
                raise ValueError(msg)
            seen[secret] = where

"""The configuration: one TOML or JSON file, frozen once read.

Keys are read in camelCase and in snake_case. Zero values are ignored (the default, or on reload
the value in force, stays). An unknown key or a wrong type is an error that names the key. Every
queue, batch, body and retry has its maximum here, with its unit in its name.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from rota.domain.commands import Limits
from rota.errors import ConfigError

ID_CHARS_MAX = 200
ACTION_CHARS_MAX = 200
REASON_CHARS_MAX = 500
URL_CHARS_MAX = 2048
PRIORITY_MAX = 1_000_000
PINCHTAB_BATCH_MAX = 50
PAGE_ROWS_MAX = 1000
PAGE_ROWS = 100
LIST_ROWS_MAX = 10_000
RESULT_BYTES_MAX = 1 << 20
ERROR_CHARS_MAX = 2000
STREAMS_MAX = 1000
TIMEOUT_MS_MAX = 24 * 3600 * 1000
DEADLINE_S_MAX = 366 * 24 * 3600
PINCHTAB_DEADLINE_S = 60
LIMIT_MAX = 100_000_000
BUILTIN_ACTIONS = ("echo", "sleep", "fail")


class Section(BaseModel):
    """A table of the file."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        hide_input_in_errors=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _ignore_zeros(cls, data: Any) -> Any:
        """Drop zero numbers and empty strings: they mean `as it was` (port 0 is a free port)."""
        if isinstance(data, dict):
            return {
                key: value
                for key, value in data.items()
                if value != "" and (value != 0 or value is False or key == "port")
            }
        return data


class ServerSettings(Section):
    """How the process listens and stores."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 9867
    data_dir: str = "rota-data"
    tokens: dict[str, str] = {}
    body_bytes_max: Annotated[int, Field(ge=1024, le=1 << 30)] = 4 << 20
    body_timeout_s: Annotated[float, Field(gt=0, le=3600)] = 10.0
    connections_max: Annotated[int, Field(ge=1)] = 5000
    grace_s: Annotated[float, Field(ge=0, le=3600)] = 10.0
    map_bytes: Annotated[int, Field(ge=1 << 16)] = 16 << 30
    snapshot_every_events: Annotated[int, Field(ge=100)] = 100_000
    allow_network_fs: bool = False


class SchedulerSettings(Section):
    """The limits of the PinchTab document; all but `enabled` and `strategy` can be reloaded."""

    enabled: bool = True
    strategy: Literal["fair-fifo"] = "fair-fifo"
    max_queue_size: Annotated[int, Field(strict=True, ge=1, le=LIMIT_MAX)] = 1000
    max_per_agent: Annotated[int, Field(strict=True, ge=1, le=LIMIT_MAX)] = 100
    max_inflight: Annotated[int, Field(strict=True, ge=1, le=LIMIT_MAX)] = 20
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
    ] = 10
    result_ttl_sec: Annotated[
        int,
        Field(
            strict=True,
            ge=1,
            le=LIMIT_MAX,
            validation_alias=AliasChoices("resultTTLSec", "resultTtlSec", "result_ttl_sec"),
            serialization_alias="resultTTLSec",
        ),
    ] = 300
    worker_count: Annotated[int, Field(strict=True, ge=1, le=LIMIT_MAX)] = 4


class WebhookSettings(Section):
    """How callbacks are delivered."""

    allow_hosts: tuple[str, ...] = ()
    secret: str | tuple[str, ...] = ()
    timeout_ms: Annotated[int, Field(ge=1, le=600_000)] = 10_000
    attempts: Annotated[int, Field(ge=1, le=50)] = 6
    parallel: Annotated[int, Field(ge=1, le=1000)] = 16

    @property
    def secrets(self) -> tuple[str, ...]:
        """Give the signing secrets, newest first."""
        return (self.secret,) if isinstance(self.secret, str) else self.secret


class ExecutorSettings(Section):
    """One way to run tasks, at one address."""

    kind: Literal["http", "tab"]
    url: Annotated[str, Field(pattern=r"^https?://[^\s]+$", max_length=URL_CHARS_MAX)]
    headers: dict[str, str] = {}


class TypeSettings(Section):
    """What tasks of one action get unless they say otherwise."""

    executor: str = "pull"
    timeout_ms: Annotated[int | None, Field(ge=1, le=TIMEOUT_MS_MAX)] = None
    max_concurrent: Annotated[int | None, Field(strict=True, ge=1, le=LIMIT_MAX)] = None
    on_interrupt: Literal["retry", "fail"] = "retry"


class Settings(Section):
    """The whole file."""

    server: ServerSettings = ServerSettings()
    scheduler: SchedulerSettings = SchedulerSettings()
    webhooks: WebhookSettings = WebhookSettings()
    executors: dict[str, ExecutorSettings] = {}
    types: dict[str, TypeSettings] = {}

    @model_validator(mode="after")
    def _executors_exist(self) -> Settings:
        for name, kind in self.types.items():
            if kind.executor not in ("pull", "builtin", *self.executors):
                msg = f"types.{name}.executor names no executor: {kind.executor!r}"
                raise ValueError(msg)
            if kind.executor == "builtin" and name not in BUILTIN_ACTIONS:
                msg = f"types.{name} is not a builtin action; those are {BUILTIN_ACTIONS}"
                raise ValueError(msg)
        for name in self.executors:
            if name in ("pull", "builtin"):
                msg = f"executors.{name}: this name is taken by rota itself"
                raise ValueError(msg)
        return self

    def limits(self) -> Limits:
        """Give the limits that the core goes by."""
        s = self.scheduler
        types = {n: t.max_concurrent for n, t in self.types.items() if t.max_concurrent}
        return Limits(
            queued=s.max_queue_size,
            queued_per_agent=s.max_per_agent,
            inflight=s.max_inflight,
            inflight_per_agent=s.max_per_agent_inflight,
            push=s.worker_count,
            result_ttl_s=s.result_ttl_sec,
            strategy=s.strategy,
            types=tuple(sorted(types.items())),
        )

    def executor_for(self, action: str, *, wants_tab: bool) -> str:
        """Name the executor of an action: configured, built in, the tabs', or a worker's pull."""
        kind = self.types.get(action)
        if kind is not None:
            return kind.executor
        if action in BUILTIN_ACTIONS:
            return "builtin"
        tabs = (name for name, e in self.executors.items() if e.kind == "tab")
        return next(tabs, "pull") if wants_tab else "pull"


def shown(settings: Settings) -> dict[str, Any]:
    """Give settings for people to see: secrets are named, never shown."""
    values = settings.model_dump(mode="json", by_alias=True)
    values["server"]["tokens"] = sorted(values["server"]["tokens"])
    values["webhooks"]["secret"] = "set" if settings.webhooks.secrets else ""
    for executor in values["executors"].values():
        executor["headers"] = sorted(executor["headers"])
        executor["url"] = re.sub(r"(?<=://)[^/@]*@", "", executor["url"])
    return values


def parse_settings(data: Any) -> Settings:
    """Make settings of a parsed file. Raises ConfigError naming the key."""
    try:
        return Settings.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part)[:100] for part in first["loc"])
        problem = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            problem = "no such setting"
        msg = f"{where}: {problem}" if where else problem
        raise ConfigError(msg, hint="`rota config` prints every setting") from None


def load_settings(path: str | Path | None) -> Settings:
    """Read a TOML or JSON file; without one, the defaults. Raises ConfigError."""
    if path is None:
        return Settings()
    path = Path(path)
    try:
        raw = path.read_bytes()
        data = orjson.loads(raw) if path.suffix == ".json" else tomllib.loads(raw.decode())
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror}"
        raise ConfigError(msg) from error
    except (ValueError, UnicodeDecodeError) as error:
        kind = "JSON" if path.suffix == ".json" else "TOML"
        msg = f"{path} is not {kind}: {error}"
        raise ConfigError(msg) from error
    return parse_settings(data)


def scheduler_changes(changes: dict[str, Any]) -> dict[str, Any]:
    """Read changes of the scheduler's settings; zero values are none. Raises ConfigError."""
    parsed = parse_settings({"scheduler": changes}).scheduler
    return parsed.model_dump(include=parsed.model_fields_set)

"""The configuration: one TOML or JSON file, frozen once read.

Keys are read in every spelling they have (rota.setting_names). Zero values are ignored (the
default, or on reload the value in force, stays), unless 0 is a value of the setting. An unknown key
or a wrong type is an error that names the key. Every queue, batch, body and retry has its maximum
here, with its unit in its name.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from pydantic import AliasChoices, ConfigDict, Field, ValidationError, model_validator

from rota.command_section import CommandSettings, check_kind
from rota.domain.commands import Limits
from rota.domain.derived import circle_of
from rota.domain.intake import BUILTIN_ACTIONS, CHAT, EVERY_TYPE, Rules
from rota.domain.plan import TIMEOUT_MS_MAX
from rota.environment import MAX_CONCURRENT, with_environment
from rota.errors import ConfigError
from rota.presets import PRESETS, flat, layered
from rota.sections import (
    DEFAULT,
    FOR_ALL,
    LIMIT_MAX,
    NamespaceName,
    NamespaceSettings,
    ProjectSettings,
    RetrySettings,
    SchedulerSettings,
    Section,
    ServerSettings,
    TypeSettings,
    check_tokens,
    folder_of,
)
from rota.setting_names import canonical, names_at, spellings, undotted, without_zeros, zeros
from rota.wording import API_PATH, HTTP_URL, UNKNOWN, all_wrong, guess

ID_CHARS_MAX = 200
ACTION_CHARS_MAX = 200
REASON_CHARS_MAX = 500
URL_CHARS_MAX = 2048
PRIORITY_MAX = 1_000_000
PINCHTAB_BATCH_MAX = 50
BROWSEROS_BATCH_MAX = 100
BATCH_MAX = 1000
BROWSEROS_PARALLELISM_MAX = 10
DEPENDS_MAX = 1000
BATCH_EDGES_MAX = 20_000
BODY_VALUES_MAX = 100_000
KEY_CHARS_MAX = 200
INSTRUCTION_CHARS_MAX = 100_000
WAIT_MS_MAX = 60_000
DEDUP_MS_MAX = 30 * 24 * 3600 * 1000
PAGE_ROWS_MAX = 1000
PAGE_BYTES_MAX = 8 << 20
PAGE_ROWS = 100
LIST_ROWS_MAX = 10_000
RESULT_BYTES_MAX = 1 << 20
ERROR_CHARS_MAX = 2000
STREAMS_MAX = 1000
SEQ_MAX = 1 << 62
TOKEN_MS_MAX = 10 * 366 * 24 * 3600 * 1000
PINCHTAB_DEADLINE_S = 60


class WebhookSettings(Section):
    """How callbacks are delivered."""

    allow_hosts: tuple[str, ...] = ()
    secret: str | tuple[str, ...] = ()
    timeout_ms: Annotated[int, Field(ge=1, le=600_000)] = 10_000
    attempts: Annotated[int, Field(ge=1, le=50)] = 6
    parallel: Annotated[int, Field(ge=1, le=1000)] = 128
    per_host: Annotated[int, Field(ge=1, le=1000)] = 16

    @property
    def secrets(self) -> tuple[str, ...]:
        """Give the signing secrets, newest first."""
        return (self.secret,) if isinstance(self.secret, str) else self.secret


class ExecutorSettings(CommandSettings):
    """One way to run tasks: at one address, or by one command."""

    kind: Literal["http", "tab", "chat", "command"]
    url: Annotated[str, Field(pattern=HTTP_URL, max_length=URL_CHARS_MAX)] = ""
    headers: dict[str, str] = Field(default_factory=dict)
    cancel_url: Annotated[str, Field(pattern=HTTP_URL, max_length=URL_CHARS_MAX)] | None = None
    _goes_together = model_validator(mode="after")(check_kind)


class DefaultSettings(Section):
    """What native tasks get where neither they nor their type say otherwise."""

    retry: RetrySettings | None = None


class BrowserOSSettings(Section):
    """What BrowserOS tasks get, as in its document, unless `[types.chat]` says otherwise.

    `max_concurrent` lifts the limits of the scheduler that would not let so many run at once.
    """

    agent: str = "browseros"
    max_concurrent: Annotated[
        int,
        Field(
            strict=True,
            ge=1,
            le=LIMIT_MAX,
            validation_alias=AliasChoices(
                "maxConcurrent", "max_concurrent", "TASK_QUEUE_MAX_CONCURRENT"
            ),
        ),
    ] = 1
    timeout_ms: Annotated[int, Field(ge=1, le=TIMEOUT_MS_MAX)] = 120_000
    timeout_ms_max: Annotated[int, Field(ge=1, le=TIMEOUT_MS_MAX)] = 600_000
    retry: RetrySettings = RetrySettings()


class BrowserManagerSettings(Section):
    """Where BrowserManager jobs come in: paths under /api, each for one type of job."""

    agent: str = "browsermanager"
    routes: dict[
        Annotated[str, Field(pattern=API_PATH, max_length=200)],
        Annotated[str, Field(min_length=1, max_length=ACTION_CHARS_MAX)],
    ] = Field(default_factory=dict)


class BrowserManagerLimits(Section):
    """The limits of the BrowserManager document, by its names; they go before the scheduler's."""

    max_concurrent_jobs: Annotated[int | None, Field(strict=True, ge=1, le=LIMIT_MAX)] = None
    max_concurrent_browsers: Annotated[int | None, Field(strict=True, ge=1, le=LIMIT_MAX)] = None
    max_queue_size: Annotated[int | None, Field(strict=True, ge=1, le=LIMIT_MAX)] = None
    max_jobs_per_profile: Annotated[int | None, Field(strict=True, ge=1, le=LIMIT_MAX)] = None


class Settings(Section):
    """The whole file."""

    model_config = ConfigDict(populate_by_name=False)

    server: ServerSettings = ServerSettings()
    scheduler: SchedulerSettings = SchedulerSettings()
    webhooks: WebhookSettings = WebhookSettings()
    executors: dict[str, ExecutorSettings] = Field(default_factory=dict)
    types: dict[str, TypeSettings] = Field(default_factory=dict)
    defaults: DefaultSettings = DefaultSettings()
    browseros: BrowserOSSettings = BrowserOSSettings()
    browsermanager: BrowserManagerSettings = BrowserManagerSettings()
    job_limits: Annotated[BrowserManagerLimits, Field(alias="agent")] = BrowserManagerLimits()
    projects: ProjectSettings = ProjectSettings()
    namespaces: dict[NamespaceName, NamespaceSettings] = Field(default_factory=dict)
    presets: tuple[str, ...] = ()
    _data_dirs: tuple[str, ...] = ()
    _file: str | None = None
    _layers: tuple[tuple[str, dict[str, Any]], ...] = ()
    _preset_options: tuple[str, ...] = ()
    _zeros: tuple[frozenset[str], dict[str, frozenset[str]]] = (frozenset(), {})

    @model_validator(mode="after")
    def _executors_exist(self) -> Settings:
        for name, kind in self.types.items():
            known = ("pull", "builtin", *self.executors)
            if kind.executor not in known:
                meant = guess(kind.executor, known)
                msg = f"types.{name}.executor names no executor: {kind.executor!r}{meant}"
                raise ValueError(msg)
            if kind.executor == "builtin" and name not in BUILTIN_ACTIONS:
                msg = f"types.{name} is not a builtin action; those are {BUILTIN_ACTIONS}"
                raise ValueError(msg)
        if EVERY_TYPE in self.types and self.types[EVERY_TYPE].max_concurrent is not None:
            msg = "types.*.maxConcurrent: this is a limit of one type; give it to types by name"
            raise ValueError(msg)
        for path, name in self.browsermanager.routes.items():
            if name not in self.types:
                msg = f"browsermanager.routes: {path} names no type: {name!r}"
                raise ValueError(msg)
        for name in self.executors:
            if name in ("pull", "builtin"):
                msg = f"executors.{name}: this name is taken by rota itself"
                raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _follow_ups_end(self) -> Settings:
        rules = {name: k.follow_up for name, k in self.types.items() if name != EVERY_TYPE}
        circle = circle_of({name: rule.type for name, rule in rules.items() if rule is not None})
        if circle is not None:
            way = " -> ".join(circle)
            why = "leads back to itself" if circle[-1] in circle[:-1] else "goes on too long"
            msg = f"types.{circle[0]}.followUp {why}: {way}"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _namespaces_are_apart(self) -> Settings:
        check_tokens(self.server.tokens, self.namespaces)
        if DEFAULT in self.namespaces and self.namespaces[DEFAULT].data_dir is not None:
            msg = "namespaces.default.dataDir: the default's folder is server.dataDir"
            raise ValueError(msg)
        return self

    def of_namespace(self, name: str) -> Settings:
        """Give the settings of one namespace: its own folder and limits over those for all."""
        own = self.namespaces.get(name, NamespaceSettings())
        folder = folder_of(name, self.server.data_dir, own.data_dir)
        update: dict[str, Any] = {
            "server": self.server.model_copy(update={"data_dir": str(folder)}),
            "scheduler": self.scheduler.model_copy(update=own.scheduler.said()),
        }
        if name != DEFAULT:
            update["namespaces"] = {}
        made = self.model_copy(update=update)
        made._data_dirs = self.data_dirs()  # noqa: SLF001 - one of the same kind
        for_all, by_name = self._zeros
        kept = (for_all - own.scheduler.said().keys()) | by_name.get(name, frozenset())
        made._zeros = (kept, {})  # noqa: SLF001 - likewise
        return made

    def scheduler_after(self, before: SchedulerSettings) -> SchedulerSettings:
        """Give the limits in force after a reload: the file's, over what lies under it.

        What it says 0 of stays as it was before, and so does what holds from the start on.
        """
        kept = (*FOR_ALL, "start_paused", *self._zeros[0])
        return self.scheduler.model_copy(update={name: getattr(before, name) for name in kept})

    @property
    def preset_options(self) -> tuple[str, ...]:
        """Give the presets of the command line, which a reload of the file leaves."""
        return self._preset_options

    def sources(self) -> dict[str, str]:
        """Say where settings have their values from that a preset, the file or the environment set.

        Each goes before those named here before it.
        """
        values = dict(flat(self.model_dump(mode="json", by_alias=True)))
        return {
            key: source
            for source, table in self._layers
            for key, value in flat(table)
            if key in values and values[key] == value
        }

    def data_dirs(self) -> tuple[str, ...]:
        """Give the folders of all namespaces of the server."""
        root, own = self.server.data_dir, self.namespaces.items()
        return self._data_dirs or (root, *(str(folder_of(n, root, o.data_dir)) for n, o in own))

    def secret_files(self) -> tuple[Path, ...]:
        """Give the files that no sandboxed command may read: the configuration and the TLS key."""
        tls = self.server.tls
        named = (self._file, tls.key if tls is not None else None)
        return tuple(Path(each).absolute() for each in named if each is not None)

    def limits(self) -> Limits:
        s, own = self.scheduler, self.job_limits
        types = {n: t.max_concurrent for n, t in self.types.items() if t.max_concurrent}
        chats = types[CHAT] = self.chats().max_concurrent or 0
        jobs, queue = own.max_concurrent_jobs, own.max_queue_size
        return Limits(
            queued=queue or s.max_queue_size,
            queued_per_agent=max(queue or 0, s.max_per_agent),
            inflight=max(jobs or s.max_inflight, chats),
            inflight_per_agent=max(jobs or 0, s.max_per_agent_inflight, chats),
            push=max(jobs or 0, s.worker_count, chats),
            result_ttl_s=s.result_ttl_sec,
            strategy=s.strategy,
            types=tuple(sorted(types.items())),
            per_key=own.max_jobs_per_profile or s.max_per_key,
            aging_ms=s.aging_ms,
            browsers=own.max_concurrent_browsers or 0,
            queued_bytes=s.max_queue_bytes,
            ended=s.max_ended_tasks,
            ended_bytes=s.max_ended_bytes,
            sticky_ms=s.sticky_ms,
            projects=self.projects.max_concurrent,
            project_items=self.projects.max_items,
            run_timeout_ms=self.projects.run_timeout_ms,
            written_per_minute=s.max_log_bytes_per_minute,
        )

    def rules(self) -> Rules:
        types = {name: self.type_settings(name).rules() for name in self.types}
        retry = self.defaults.retry.written() if self.defaults.retry is not None else None
        return Rules(types, self._first("tab"), self._first("chat"), retry)

    def type_settings(self, name: str) -> TypeSettings:
        """Give what holds for a type: its own table over `[types."*"]`."""
        every = self.types.get(EVERY_TYPE, TypeSettings())
        own = self.types.get(name, TypeSettings())
        return every if own is every else own.over(every)

    def chats(self) -> TypeSettings:
        """Give what BrowserOS's tasks get: `[types.chat]`, and its own section for the rest."""
        own = self.browseros
        kind = self.type_settings(CHAT)
        if CHAT not in self.types:
            kind = kind.model_copy(update={"executor": self.rules().executor_for(CHAT)})
        most = min(own.timeout_ms_max, kind.timeout_ms_max)
        rest = {
            "timeout_ms": kind.timeout_ms or own.timeout_ms,
            "timeout_ms_max": most,
            "max_concurrent": kind.max_concurrent or own.max_concurrent,
            "retry": kind.retry or own.retry,
        }
        return kind.model_copy(update=rest)

    def _first(self, kind: str) -> str | None:
        return next((name for name, e in self.executors.items() if e.kind == kind), None)


def parse_settings(data: Any) -> Settings:
    """Make settings of a parsed file. Raises ConfigError naming the key."""
    if isinstance(data, dict):
        data = canonical(Settings, data)
    try:
        return Settings.model_validate(data)
    except ValidationError as error:
        problems = [_problem(*each) for each in all_wrong(error)]
        hint, details = "`rota config` prints every setting", {"problems": problems}
        raise ConfigError(problems[0], hint=hint, details=details) from None


def _problem(kind: str, where: str, problem: str) -> str:
    if kind in ("extra_forbidden", UNKNOWN):
        *table, name = where.split(".")
        problem = f"no such setting{guess(name, names_at(Settings, table))}"
    return f"{where}: {problem}" if where else problem


def with_presets(data: dict[str, Any], presets: tuple[str, ...] = ()) -> dict[str, Any]:
    """Lay a parsed file over the presets that it, or the caller, names. Raises ConfigError."""
    return layered(canonical(Settings, data), presets)


def load_settings(path: str | Path | None, presets: tuple[str, ...] = ()) -> Settings:
    """Read a TOML or JSON file over presets, under the environment. Raises ConfigError."""
    try:
        file = data = _read(Path(path)) if path is not None else {}
        if isinstance(file, dict):
            data = with_environment(with_presets(file, presets))
        settings = parse_settings(data)
    except RecursionError:
        msg = f"{path} is nested too deep"
        raise ConfigError(msg) from None
    settings._file = None if path is None else str(path)  # noqa: SLF001 - nobody else knows it
    settings._preset_options = presets  # noqa: SLF001 - likewise
    settings._zeros = _zeros_of(undotted(file, spellings(Settings)))  # noqa: SLF001 - likewise
    settings._layers = (  # noqa: SLF001 - likewise
        *((f"preset {name}", PRESETS[name]) for name in settings.presets),
        ("file", canonical(Settings, file)),
        (f"environment {MAX_CONCURRENT}", with_environment({"types": {"chat": {}}})),
    )
    return settings


def _zeros_of(file: dict[str, Any]) -> tuple[frozenset[str], dict[str, frozenset[str]]]:
    """Name the scheduler's settings of which a file says `as it was`: for all, by namespace."""
    tables = {name: own.get("scheduler", {}) for name, own in file.get("namespaces", {}).items()}
    own = {name: zeros(SchedulerSettings, table) for name, table in tables.items()}
    return zeros(SchedulerSettings, file.get("scheduler", {})), own


def _read(path: Path) -> Any:
    try:
        raw = path.read_bytes()
        return orjson.loads(raw) if path.suffix == ".json" else tomllib.loads(raw.decode())
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror}"
        raise ConfigError(msg) from error
    except (ValueError, UnicodeDecodeError) as error:
        kind = "JSON" if path.suffix == ".json" else "TOML"
        msg = f"{path} is not {kind}: {error}"
        raise ConfigError(msg) from error


def scheduler_changes(changes: dict[str, Any]) -> dict[str, Any]:
    """Read changes of the scheduler's settings; zero values are none. Raises ConfigError."""
    known, changes = spellings(SchedulerSettings), without_zeros(SchedulerSettings, changes)
    unknown = next((key for key in changes if key not in known), None)
    if unknown is not None:
        changes = {unknown: changes[unknown]}  # the first is complained of; there may be any number
    parsed = parse_settings({"scheduler": changes}).scheduler
    return parsed.said()

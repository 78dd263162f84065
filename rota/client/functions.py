"""The functions of a worker: how one takes its params, is run, and what comes of it.

A function names what it wants: `ctx` (or anything annotated as Context), `params` (the whole dict),
and params by their names; those annotated with a pydantic model are validated. A model that is the
only parameter takes all params, also as `Annotated[Model, ...]` or `Model | None`; a task without
params leaves its default alone (without one: None if that may be). What it returns must be JSON,
and is written as such at once.
Whatever happens becomes an `Outcome` as `settle` takes it; only a cancelled attempt has none.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import traceback
from collections.abc import Sequence
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin, get_type_hints

import orjson
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    create_model,
    model_validator,
)

from rota.client import fields
from rota.client.context import Context, Fail, Retry
from rota.errors import ConfigError
from rota.wording import first_wrong, known_only

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rota.client.steps import Json
    from rota.client.threads import Threads

ERROR_CHARS_MAX = 2000
CODE_CHARS_MAX = 100
TRACE_LINES_MAX = 50
_EMPTY = inspect.Parameter.empty

Outcome = dict[str, Any]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _known_only(cls, data: Any) -> Any:
        return known_only(cls, data)


_RETRY_HINTS = get_type_hints(fields.RetryFields) | {"retry_on": Sequence[str]}
_RETRY: Any = {name: (hint, None) for name, hint in _RETRY_HINTS.items()}


class Declares(_Strict):
    """What `Worker.task` may declare beside a function, by the names of its arguments."""

    retry: create_model("Retry", __base__=_Strict, **_RETRY) | None  # type: ignore[valid-type]
    timeout: Annotated[float, Field(ge=0.001)] | None
    concurrency: Annotated[int, Field(ge=1)] | None


class Function:
    """One function, and how it is called."""

    def __init__(self, function: Callable[..., Any], names: Mapping[str, Any]) -> None:
        """Look at the signature; `names` are those known where the function is written.

        Raises ConfigError if it cannot be served.
        """
        self.call = function
        self.name = getattr(function, "__name__", repr(function))
        self.is_async = inspect.iscoroutinefunction(function)
        self._signature = inspect.signature(function)
        self._ctx = self._whole = None
        self._models: dict[str, TypeAdapter[Any]] = {}
        hints: dict[str, Any] = {}
        for name, parameter in self._signature.parameters.items():
            hint = _hint_of(parameter, function, names)
            self._check(parameter, hint)
            if hint is Context or (name == "ctx" and not isinstance(hint, type)):
                self._ctx = name
            elif name == "params" and _gives_json(parameter) and not _names_model(hint):
                self._whole = name
            else:
                hints[name] = hint
        for name, hint in hints.items():
            if _names_model(hint):
                self._models[name] = TypeAdapter(hint)
        lone = next(iter(hints), "")
        is_alone = len(hints) == 1 and self._whole is None
        self._takes_all = lone if is_alone and _is_model(hints[lone]) else None
        self._has_default = is_alone and self._signature.parameters[lone].default is not _EMPTY
        self._may_be_none = is_alone and NoneType in _arms(hints[lone])

    def _check(self, parameter: inspect.Parameter, hint: Any) -> None:
        """Refuse a parameter that no task could fill. Raises ConfigError."""
        name = parameter.name
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            msg = f"{self.name} has a parameter without a name: {name}"
            raise ConfigError(msg, hint="params are given by their names")
        if hint is Context and (self._ctx is not None or not _gives_json(parameter)):
            raise ConfigError(
                f"{self.name} cannot be given a context as {name}", hint="ask for one"
            )
        if _names_model(hint) and not _gives_json(parameter):
            msg = f"{self.name} asks for any number of models: **{name}"
            raise ConfigError(msg, hint=f"name them one by one, or take them in {name}: list[...]")

    def arguments(self, ctx: Context) -> dict[str, Any]:
        """Say what to call it with. Raises Fail `bad_params`."""
        params = ctx.params
        given = dict(params)
        if (lone := self._takes_all) is not None and (params or not self._has_default):
            given = {lone: params or (None if self._may_be_none else {})}
        if self._whole is not None:  # it has them all, so those without a name are no mistake
            given = {name: params[name] for name in params.keys() & self._signature.parameters}
            given[self._whole] = ctx.params
        if self._ctx is not None:
            given[self._ctx] = ctx
        try:
            self._signature.bind(**given)
        except TypeError as error:
            raise Fail(f"{self.name}: {error}", code="bad_params") from error
        for name in self._models.keys() & given.keys():
            try:
                given[name] = self._models[name].validate_python(given[name])
            except ValidationError as error:
                within = () if self._takes_all is not None else (name,)
                raise Fail(_wrong(error, within), code="bad_params") from error
        return given

    def check_declares(self, **declares: Any) -> None:
        """Refuse a declaration that no server takes. Raises ConfigError."""
        try:
            Declares(**declares)
        except ValidationError as error:
            _, where, problem = first_wrong(error)
            raise ConfigError(f"{self.name}: {where} {problem}") from None

    async def perform(self, ctx: Context, threads: Threads) -> Outcome:
        """Run it, and give what came of it. Raises CancelledError alone."""
        try:
            given = self.arguments(ctx)
            if self.is_async:
                result = await self.call(**given)
            else:
                result = await threads.run(self.call, given)
                if inspect.isawaitable(result):
                    result = await result
            return {"outcome": "complete", "result": encoded(result)}
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if ctx.cancelled or (task is not None and task.cancelling()):
                raise
            return failed("the function was cancelled from inside", code="cancelled")
        except Retry as error:
            after_ms = None if error.after is None else max(0, round(error.after * 1000))
            return failed(str(error), code=error.code, retryable=True, retryAfterMs=after_ms)
        except Fail as error:
            details = error.details
            return failed(str(error), code=error.code, retryable=False, details=details)
        except BaseException as error:  # noqa: BLE001 - SystemExit of a task is its failure, too
            ctx.log(*_traced(error), level="error")
            return failed(f"{type(error).__name__}: {error}", code=type(error).__name__)


def _hint_of(
    parameter: inspect.Parameter, function: Callable[..., Any], names: Mapping[str, Any]
) -> Any:
    """Read an annotation, written out or as text; None if only a type checker can read it."""
    hint = parameter.annotation
    if not isinstance(hint, str):
        return None if hint is _EMPTY else hint
    known = {**getattr(function, "__globals__", {}), **names}
    try:
        return eval(hint, known)  # noqa: S307 - it is the source of the function that is read
    except Exception:  # noqa: BLE001 - whatever it takes to read it, it is not here
        return Context if hint.rpartition(".")[2] == "Context" else None


def encoded(result: Any) -> bytes | None:
    """Write a result once, where it was made. Raises Fail `bad_result`."""
    if result is None:
        return None
    if isinstance(result, BaseModel):
        result = result.model_dump(mode="json")
    elif dataclasses.is_dataclass(result) and isinstance(result, type):
        raise Fail("the result is a class, not JSON", code="bad_result")
    try:
        return orjson.dumps(result)
    except TypeError as error:
        raise Fail(f"the result is not JSON: {error}", code="bad_result") from error


def failed(error: str, *, code: str | None = None, **more: Any) -> Outcome:
    """Make the outcome of a failed attempt."""
    told: Json = {"outcome": "fail", "error": error[:ERROR_CHARS_MAX] or "failed"}
    told |= {"code": code[:CODE_CHARS_MAX] if code else None, **more}
    return {name: value for name, value in told.items() if value is not None}


def _gives_json(parameter: inspect.Parameter) -> bool:
    return parameter.kind is not parameter.VAR_KEYWORD


def _arms(hint: Any) -> list[Any]:
    """Give the types that a value may have, without what `Annotated` says of them."""
    if get_origin(hint) is Annotated:
        return _arms(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return [arm for each in get_args(hint) for arm in _arms(each)]
    return [hint]


def _is_model(hint: Any) -> bool:
    """Whether a value is a model, or one of several, or None."""
    arms = [arm for arm in _arms(hint) if arm is not NoneType]
    return bool(arms) and all(isinstance(arm, type) and issubclass(arm, BaseModel) for arm in arms)


def _names_model(hint: Any) -> bool:
    """Whether a model is all or a part of it, as of `list[Model]`."""
    return _is_model(hint) or any(_names_model(part) for part in get_args(hint))


def _wrong(error: ValidationError, within: tuple[str, ...]) -> str:
    told = [
        f"{'.'.join(str(part) for part in (*within, *each['loc'])) or 'params'}: {each['msg']}"
        for each in error.errors(include_url=False, include_input=False, include_context=False)
    ]
    return "; ".join(told)


def _traced(error: BaseException) -> list[str]:
    """Give the last lines of a traceback, without this module's own frames."""
    inner = error.__traceback__.tb_next if error.__traceback__ is not None else None
    text = "".join(traceback.format_exception(type(error), error, inner, limit=-20))
    return text.splitlines()[-TRACE_LINES_MAX:]

"""What is wrong with a value is said in rota's own words, whatever the value and the model."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel, ValidationError

from rota import config
from rota.errors import ConfigError
from rota.http import models
from rota.http.dialects import models as dialects
from rota.http.problems import invalid
from rota.wording import first_wrong

if TYPE_CHECKING:
    from collections.abc import Iterator

FOREIGN = re.compile(
    r"[Vv]alue error|[Ii]nput should|validat|[Ee]xtra inputs|permitted|should|pattern '|[Dd]ictionary"
    r"|is not valid|of the right form|constrained|function-|pydantic|instance of|tuple"
    r"|\b(int|str|dict|bool|float|None|True|False)\b"
)
"""Words of the library, of Python, and of whoever had nothing better to say."""


MODELS = sorted(
    {
        model
        for module in (models, dialects, config)
        for model in vars(module).values()
        if isinstance(model, type)
        and issubclass(model, BaseModel)
        and model.__module__.startswith("rota.")
    },
    key=lambda model: model.__name__,
)
ODD: list[Any] = [
    None, True, False, 0, 1, -1, 1.5, -0.5, 1e300, 2**63, -(2**63), float("nan"), float("inf"), "",
    " ", "x", "a\nb", "x" * 5000, "12", [], [1], [None], [[]], ["x" * 500] * 3, [{}], {}, {"x": 1},
    {"x": {"y": []}}, {"key": "a", "ttlMs": -1}, {"max_attempts": 0, "retryOn": ["x"]}, ["a"] * 2000,
    [{"action": ""}], [{"action": "a", "colour": 1}], [{"instruction": " "}], [-1], {"kind": "ftp"},
    {"a": {"kind": "http", "url": "x"}}, {"a": {"executor": "nobody"}}, {"/x": "y"}, {"/api/x": ""},
    {"multiplier": 0.5}, {"baseMs": "soon"}, {"retryOn": ["status:9xx"] * 100},
]  # fmt: skip


def complaints(model: type[BaseModel]) -> Iterator[tuple[Any, ValidationError]]:
    """Fill each field of a model, or nothing, with each odd value."""
    bodies: list[Any] = [*ODD]
    for name, field in model.model_fields.items():
        bodies += [{field.alias or name: value} for value in ODD]
    good = {"agentId": "a", "action": "b", "instruction": "c", "jobType": "d", "progress": 1}
    known = {name: value for name, value in good.items() if name in model.model_fields}
    bodies += [{**known, **body} for body in bodies if isinstance(body, dict)]
    for body in bodies:
        try:
            model.model_validate(body)
        except ValidationError as error:
            yield body, error


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_no_complaint_speaks_in_foreign_words(model: type[BaseModel]) -> None:
    for body, error in complaints(model):
        said = first_wrong(error)[2]
        assert not FOREIGN.search(said), (body, said, error.errors()[0])
        message = invalid(error).message
        assert re.match(r"field '|missing required field '|unknown field '|[a-z]", message)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"agentId": 1, "action": "b"}, "field 'agentId': must be a string"),
        ({"agentId": "x" * 201, "action": "b"}, "field 'agentId': must have at most 200 characters"),
        ({"agentId": " ", "action": "b"}, "field 'agentId': must not be blank"),
        ({"agentId": "a"}, "missing required field 'action'"),
        ({"agentId": "a", "action": "b", "colour": 1}, "unknown field 'colour'"),
        ({"agentId": "a", "action": "b", "priority": []},
         "field 'priority': must be a whole number or a string"),
        ({"agentId": "a", "action": "b", "timeoutMs": 0}, "field 'timeoutMs': must be at least 1"),
        ({"agentId": "a", "action": "b", "onInterrupt": "x"},
         "field 'onInterrupt': must be 'retry' or 'fail'"),
        ({"agentId": "a", "action": "b", "dependsOn": ["a", 5]},
         "field 'dependsOn.1': must be a string"),
        ({"agentId": "a", "action": "b", "dependsOn": ["a"] * 1001},
         "field 'dependsOn': must have at most 1000 items"),
        ({"agentId": "a", "action": "b", "retry": {"retryOn": ["x"]}},
         "field 'retry.retryOn.0': must be timeout, connection, status:503, status:5xx or code:NAME"),
        ({"agentId": "a", "action": "b", "retry": {"int": 1}}, "unknown field 'retry.int'"),
        ({"agentId": "a", "action": "b", "type": "c"}, "give either action or type, not both"),
        ([], "the body must be a JSON object"),
    ],
)  # fmt: skip
def test_a_complaint_names_the_field_and_what_it_should_be(body: Any, message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        models.SubmitBody.model_validate(body)
    assert invalid(caught.value).message == message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"server": {"port": "x"}}, "server.port: must be a whole number"),
        ({"server": {"port": 70000}}, "server.port: must be at most 65535"),
        ({"server": {"colour": 1}}, "server.colour: no such setting"),
        ({"servr": {}}, "servr: no such setting; did you mean 'server'?"),
        (
            {"scheduler": {"max_infligth": 1}},
            "scheduler.max_infligth: no such setting; did you mean 'maxInflight'?",
        ),
        (
            {"types": {"x": {"executr": "pull"}}},
            "types.x.executr: no such setting; did you mean 'executor'?",
        ),
        (
            {"types": {"x": {"retry": {"base_m": 1}}}},
            "types.x.retry.base_m: no such setting; did you mean 'baseMs'?",
        ),
        (
            {"namespaces": {"a": {"scheduler": {"stratgy": "x"}}}},
            "namespaces.a.scheduler.stratgy: no such setting; did you mean 'strategy'?",
        ),
        (
            {"executors": {"web": {"kind": "http", "ulr": "http://a"}}},
            "executors.web.ulr: no such setting; did you mean 'url'?",
        ),
        ({"colour": 1}, "colour: no such setting"),
        ({"types": {"x": {"retry": {"colour": 1}}}}, "types.x.retry.colour: no such setting"),
        ({"executors": {"x": {"kind": "http", "url": "ftp://x"}}},
         "executors.x.url: must be a URL that begins with http:// or https://"),
        ({"types": {"x": {"executor": "nobody"}}}, "types.x.executor names no executor: 'nobody'"),
        (
            {
                "types": {"x": {"executor": "agnt"}},
                "executors": {"agent": {"kind": "http", "url": "http://a"}},
            },
            "types.x.executor names no executor: 'agnt'; did you mean 'agent'?",
        ),
        (5, "must be an object"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_named_in_our_words(data: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.parse_settings(data)
    assert caught.value.message == message


def test_a_preset_that_is_not_there_gets_a_guess() -> None:
    with pytest.raises(ConfigError, match="no preset 'pinchtabb'; did you mean 'pinchtab'?"):
        config.with_presets({"preset": "pinchtabb"})


@pytest.mark.parametrize("model", [models.SubmitBody, models.BatchBody, models.ReasonBody])
def test_only_the_first_of_many_unknown_fields_is_looked_at(model: type[BaseModel]) -> None:
    with pytest.raises(ValidationError) as caught:
        model.model_validate({f"k{n}": n for n in range(1000)})
    assert caught.value.error_count() == 1


def test_only_the_first_of_many_bad_items_is_looked_at() -> None:
    item = {"action": "b", **{f"k{n}": 1 for n in range(300)}}
    for tasks in ([item] * 1000, [1] * 100_000):
        with pytest.raises(ValidationError) as caught:
            models.BatchBody.model_validate({"agentId": "a", "tasks": tasks})
        assert caught.value.error_count() == 1

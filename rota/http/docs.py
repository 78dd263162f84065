"""/openapi.json, generated from the models that validate, and /docs, a page that shows it.

The page is one file without anything from elsewhere: it works on a machine with no network.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import orjson
from pydantic.json_schema import models_json_schema

from rota import __version__
from rota.config import KEY_CHARS_MAX, WAIT_MS_MAX
from rota.domain import schedule, workflow
from rota.domain.task import TaskState
from rota.domain.tokens import ROLES
from rota.eventlog.codec import CLASSES
from rota.http import agents, answers
from rota.http.call import VIEWS
from rota.http.dialects import automechanica, browsermanager, browseros, pinchtab
from rota.http.examples import EXAMPLES
from rota.http.namespaces import HEADER
from rota.http.route import NAMESPACE_QUERY
from rota.http.v1 import events
from rota.sight.room import room_of
from rota.wording import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic import BaseModel

    from rota.http.call import Call
    from rota.http.routes import Route

_REF = "#/components/schemas/{model}"
_PROBLEMS: dict[str, type[BaseModel]] = {
    "browsermanager": answers.Envelope,
    "projects": answers.PlainProblem,
}
"""How dialects tell errors, where not as natively."""


def document(routes: tuple[Route, ...]) -> dict[str, Any]:
    """Write the table of routes as an OpenAPI 3.1 document."""
    used = {model for r in routes for model in (r.body, r.answer) if model is not None}
    used |= {answers.Problem, *_PROBLEMS.values()}
    ordered = sorted(used, key=lambda model: model.__name__)
    _, schemas = models_json_schema([(model, "validation") for model in ordered], ref_template=_REF)
    paths: dict[str, Any] = {}
    defs: dict[str, Any] = schemas.get("$defs", {})
    _mark_moments(defs)
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, defs)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "rota",
            "version": __version__,
            "description": "A durable task scheduler for fleets of agents.",
        },
        "paths": paths,
        "components": {
            "schemas": defs,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _one_or_more(words: Iterable[str]) -> dict[str, Any]:
    """Take some of these words, separated by commas."""
    known = sorted(set(words))
    one = "|".join(known)
    return {"pattern": f"^({one})(,({one}))*$", "examples": known}


def _mark_moments(defs: dict[str, Any]) -> None:
    """Say of the fields that are moments, by their names, that their text is one."""
    for schema in defs.values():
        for name, field in schema.get("properties", {}).items():
            if _MOMENT.fullmatch(name):
                for each in (field, field.get("items", {}), *field.get("anyOf", ())):
                    if each.get("type") == "string":
                        each["format"] = "date-time"


def _takes_key(body: type[BaseModel], defs: dict[str, Any]) -> bool:
    """Whether a body, or one of those that it may be, can have an idempotency key."""
    schema = defs[body.__name__]
    refs = [each.get("$ref", "") for each in schema.get("anyOf", ())]
    several = [schema, *(defs[ref.rpartition("/")[2]] for ref in refs if ref)]
    fields = {name for each in several for name in each.get("properties", ())}
    return bool(fields & {"idempotencyKey", "idempotency_key"})


def _operation(route: Route, defs: dict[str, Any]) -> dict[str, Any]:
    has_envelope = route.dialect == "browsermanager"
    problem = _content(_PROBLEMS.get(route.dialect, answers.Problem))
    answer = _answer(route, answers.Envelope if has_envelope else route.answer)
    name = route.path.strip("/").replace("/", "_").replace("{", "").replace("}", "")
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": f"{route.method.lower()}_{name.replace('.', '_')}",
        "tags": [route.dialect or "native"],
        "description": _whose(route),
        "responses": {
            "4XX": {"description": "the request cannot be served as it is", **problem},
            "503": {"description": "the log takes no writes, or the server stops", **problem},
            **{str(status): answer for status in (route.status, *route.also)},
        },
    }
    parameters = [
        {"name": part[1:-1], "in": "path", "required": True, "schema": {"type": "string"}}
        for part in route.path.split("/")
        if part.startswith("{")
    ]
    parameters += [
        {
            "name": name,
            "in": "query",
            "required": False,
            "description": _ASKED[name][0],
            "schema": _ASKED[name][1] | _CHOICES.get((route.path, name), {}),
        }
        for name in route.query
    ]
    parameters += [_NAMESPACE, {**_NAMESPACE, "name": NAMESPACE_QUERY, "in": "query"}]
    operation["parameters"] = parameters
    if route.body is not None:
        if _takes_key(route.body, defs):
            parameters.append(_IDEMPOTENCY_KEY)
        required = any(f.is_required() for f in route.body.model_fields.values())
        content = _content(route.body)
        content["content"]["application/json"]["example"] = EXAMPLES[route.body.__name__]
        operation["requestBody"] = {"required": required, **content}
    return operation


def _whose(route: Route) -> str:
    """Say whose tokens may ask for it."""
    if route.public:
        return "for all, without a token"
    return f"for tokens of role {', '.join(r for r, may in ROLES.items() if route.needs in may)}"


_NAMESPACE = {
    "name": str(HEADER),
    "in": "header",
    "required": False,
    "description": "the namespace that is meant; the token's, or the default one, if none is named",
    "schema": {"type": "string", "pattern": NAMESPACE},
}
_IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "a repeat of this request with the same key gives what the first one made",
    "schema": {"type": "string", "maxLength": KEY_CHARS_MAX},
}
_MOMENT = re.compile(
    r"at|.*(At|_at)|deadline|notBefore|createdBefore|lastSeen|moment|lastMoment|firedUntil|upcoming"
)
_TEXT = {"type": "string"}
_ROWS = {"type": "integer", "minimum": 1}
_PLACE = {"type": "integer", "minimum": 0}
_DAY = {"type": "string", "format": "date"}
_ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "after": ("only what was recorded after this seq", _PLACE),
    "agent": ("only what makes something for this agent", _TEXT),
    "agentId": ("only of this agent", _TEXT),
    "agent_name": ("only of this agent", _TEXT),
    "at": ("as it was after a record (its seq), or at a moment (RFC 3339)", _TEXT),
    "batchId": ("only of this batch", _TEXT),
    "code": ("only failures with this code", _TEXT),
    "cursor": ("the `nextCursor` of the page before", _TEXT),
    "from": ("the first day, such as 2026-03-08", _DAY),
    "jobType": ("only of this type", _TEXT),
    "kind": ("only these kinds of events, separated by commas", _TEXT),
    "limit": ("so many rows at most", _ROWS),
    "makes": ("only schedules that make this", _TEXT),
    "name": ("only of this name", _TEXT),
    "page": ("which page, from 1 on", _ROWS),
    "pageSize": ("rows of a page", _ROWS),
    "profileId": ("only of this profile", _TEXT),
    "project": ("only of this project", _TEXT),
    "q": ("only failures whose error has these words", _TEXT),
    "state": ("only in this state", _TEXT),
    "status": ("only in this state", _TEXT),
    "task": ("only of this task, batch or workflow", _TEXT),
    "task_type": ("only of this type", _TEXT),
    "to": ("the last day, such as 2026-03-08", _DAY),
    "type": ("only of this type", _TEXT),
    "view": (
        "in the words of this document; rota's own are native",
        {**_TEXT, "enum": list(VIEWS)},
    ),
    "waitMs": (
        "answer when it has ended, or after so long",
        {"type": "integer", "minimum": 0, "maximum": WAIT_MS_MAX},
    ),
    "workflowId": ("only of this workflow", _TEXT),
}
"""What each query parameter means, and its type."""
_EVENT_VIEWS, _EVENT_KINDS = {"enum": list(events.KINDS)}, _one_or_more(CLASSES)
_CHOICES: dict[tuple[str, str], dict[str, Any]] = {
    ("/v1/tasks", "state"): _one_or_more(TaskState),
    ("/tasks", "state"): _one_or_more({*pinchtab.STATES.values(), *browseros.STATES.values()}),
    ("/api/jobs", "status"): _one_or_more(browsermanager.STATES.values()),
    ("/automechanica/tasks", "status"): _one_or_more(automechanica.STATES.values()),
    ("/v1/workflows", "state"): _one_or_more(workflow.STATES),
    ("/automechanica/workflows", "state"): _one_or_more(workflow.STATES),
    ("/v1/agents", "state"): {"enum": list(agents.STATES)},
    ("/v1/schedules", "state"): {"enum": list(schedule.STATES)},
    ("/v1/schedules", "makes"): {"enum": list(schedule.KINDS)},
    ("/v1/events", "view"): _EVENT_VIEWS,
    ("/v1/events", "kind"): _EVENT_KINDS,
    ("/v1/events/stream", "view"): _EVENT_VIEWS,
    ("/v1/events/stream", "kind"): _EVENT_KINDS,
}
"""The values that a parameter of one path may have."""


def _answer(route: Route, model: type[Any] | None) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": "as asked"}
    if route.status in (101, 302):
        return answer
    if model is not None:
        return answer | _content(model, is_one_of_many="view" in route.query)
    schema = {"type": "object" if route.media == "application/json" else "string"}
    return answer | {"content": {route.media: {"schema": schema}}}


def _content(model: type[Any], *, is_one_of_many: bool = False) -> dict[str, Any]:
    schema: dict[str, Any] = {"$ref": _REF.format(model=model.__name__)}
    if is_one_of_many:
        other = {"type": "object", "description": "with `view`: in the words of that dialect"}
        schema = {"anyOf": [schema, other]}
    return {"content": {"application/json": {"schema": schema}}}


@lru_cache(maxsize=4)
def rendered(routes: tuple[Route, ...]) -> bytes:
    """Write the document as JSON, once for each table of routes."""
    return orjson.dumps(document(routes), option=orjson.OPT_INDENT_2)


async def openapi(call: Call) -> Any:
    """GET /openapi.json. Each answer holds a copy until it is read, so it takes room."""
    body, room = rendered(call.app.routes), room_of.get()
    if room is not None and not room.take(len(body)):
        await room.wait(len(body))
    return call.raw(body)


async def home(call: Call) -> Any:
    """GET /: whoever looks is shown the API."""
    answer = call.raw(b"", status=302, content_type="text/plain")
    answer.headers["Location"] = "/docs"
    return answer


async def page(call: Call) -> Any:
    """GET /docs."""
    answer = call.raw(_PAGE.encode(), content_type="text/html; charset=utf-8")
    answer.headers["Content-Security-Policy"] = (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
        "connect-src 'self'"
    )
    return answer


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>rota API</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root{color-scheme:light dark;--line:#8884;--soft:#8881}
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{margin-bottom:0}h2{margin-top:2.5rem;border-bottom:1px solid var(--line)}
details{border:1px solid var(--line);border-radius:6px;margin:.5rem 0}
summary{padding:.5rem .8rem;cursor:pointer;display:flex;gap:.8rem;align-items:baseline}
summary b{min-width:3.5rem;font:600 12px ui-monospace,monospace}
.GET{color:#1a7f37}.POST{color:#b35900}.DELETE{color:#c00}
code,pre{font:13px ui-monospace,monospace}
pre{background:var(--soft);padding:.8rem;overflow:auto;margin:0}
.in{padding:0 .8rem .8rem}table{border-collapse:collapse;width:100%}
td,th{text-align:left;padding:.25rem .6rem .25rem 0;border-bottom:1px solid var(--line)}
span{opacity:.75}
input{font:inherit;width:100%;box-sizing:border-box;padding:.5rem .8rem;border-radius:6px;
border:1px solid var(--line)}
</style></head><body><h1>rota API</h1>
<p>Generated from the models that validate. Machines read <a href="/openapi.json">openapi.json</a>.
</p><label>Search <input id="q" type="search" placeholder="a path, a field, a word"></label>
<main id="m">loading</main>
<script>
const el=(t,x,c)=>{const e=document.createElement(t);if(x!=null)e.textContent=x;if(c)e.className=c;
return e};
const kind=s=>s.$ref?s.$ref.split('/').pop():s.anyOf?s.anyOf.map(kind).join(' | ')
:s.enum?s.enum.join(' | '):s.type==='array'?kind(s.items||{})+'[]':s.const||s.type||'any';
fetch('/openapi.json').then(r=>r.json()).then(d=>{const m=document.getElementById('m');
m.textContent='';const groups={};
for(const[p,ms]of Object.entries(d.paths))for(const[v,o]of Object.entries(ms))
(groups[o.tags[0]]??=[]).push([v.toUpperCase(),p,o]);
for(const[g,rows]of Object.entries(groups)){m.append(el('h2',g));for(const[v,p,o]of rows){
const D=el('details'),S=el('summary');S.append(el('b',v,v),el('code',p),el('span',o.summary));
D.append(S);const I=el('div',null,'in');
const schema=(title,c)=>{let s=c?.content?.['application/json']?.schema;if(!s)return;
s=s.anyOf?s.anyOf[0]:s;
const def=d.components.schemas[kind(s)];I.append(el('h4',title+': '+kind(s)));if(!def)return;
const T=el('table');for(const[n,f]of Object.entries(def.properties||{})){const R=el('tr');
R.append(el('td',n+((def.required||[]).includes(n)?' *':'')),el('td',kind(f)),
el('td',f.description||''));T.append(R)}I.append(T)};
if(o.description)I.append(el('p',o.description));
if(o.parameters){I.append(el('h4','Parameters'));const T=el('table');
for(const x of o.parameters){const R=el('tr');R.append(el('td',x.name+(x.required?' *':'')),
el('td',x.in),el('td',kind(x.schema)),
el('td',[x.description,(x.schema.examples||[]).join(', ')].filter(Boolean).join(': ')));
T.append(R)}I.append(T)}
const sample=o.requestBody?.content?.['application/json']?.example;
if(sample){I.append(el('h4','Example'),el('pre',v+' '+p+'\n'+JSON.stringify(sample,null,2)))}
schema('Body',o.requestBody);schema('Answer',Object.entries(o.responses).find(([s])=>s<'4')?.[1]);
D.append(I);m.append(D)}}
const q=document.getElementById('q');q.addEventListener('input',()=>{
const words=q.value.toLowerCase().split(/\\s+/);let seen=false,head=null;
const close=()=>{if(head)head.hidden=!seen;seen=false};
for(const e of m.children){if(e.tagName==='H2'){close();head=e;continue}
const text=e.textContent.toLowerCase();e.hidden=!words.every(w=>text.includes(w));
seen||=!e.hidden}close()})});
</script></body></html>
"""

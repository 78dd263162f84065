"""/openapi.json, generated from the models that validate, and /docs, a page that shows it.

The page is one file without anything from elsewhere: it works on a machine with no network.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import orjson
from pydantic.json_schema import models_json_schema

from rota import __version__
from rota.config import WAIT_MS_MAX
from rota.domain.tokens import ROLES
from rota.http import answers
from rota.http.namespaces import HEADER
from rota.http.route import NAMESPACE_QUERY
from rota.wording import NAMESPACE

if TYPE_CHECKING:
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
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "rota",
            "version": __version__,
            "description": "A durable task scheduler for fleets of agents.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas.get("$defs", {}),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _operation(route: Route) -> dict[str, Any]:
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
            "schema": _QUERY.get(name, {"type": "string"}),
        }
        for name in route.query
    ]
    parameters += [_NAMESPACE, {**_NAMESPACE, "name": NAMESPACE_QUERY, "in": "query"}]
    operation["parameters"] = parameters
    if route.body is not None:
        required = any(f.is_required() for f in route.body.model_fields.values())
        operation["requestBody"] = {"required": required, **_content(route.body)}
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
_ROWS = {"type": "integer", "minimum": 1}
_PLACE = {"type": "integer", "minimum": 0}
_QUERY: dict[str, dict[str, Any]] = {
    "limit": _ROWS,
    "pageSize": _ROWS,
    "page": _ROWS,
    "cursor": _PLACE,
    "after": _PLACE,
    "waitMs": {"type": "integer", "minimum": 0, "maximum": WAIT_MS_MAX},
    "view": {
        "type": "string",
        "enum": ["native", "pinchtab", "browseros", "browsermanager", "automechanica"],
    },
}
"""The types of query parameters; the others are strings."""


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
    """GET /openapi.json."""
    return call.raw(rendered(call.app.routes))


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
</style></head><body><h1>rota API</h1>
<p>Generated from the models that validate. Machines read <a href="/openapi.json">openapi.json</a>.
</p><main id="m">loading</main>
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
if(o.parameters){I.append(el('h4','Parameters'));
I.append(el('code',o.parameters.map(x=>x.name+' ('+x.in+')').join(', ')))}
schema('Body',o.requestBody);schema('Answer',Object.entries(o.responses).find(([s])=>s<'4')?.[1]);
D.append(I);m.append(D)}}});
</script></body></html>
"""

"""The same as JSON: the objects that the commands print with `--json`. docs/how-to/dashboard.md."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dshpc_setup import __version__
from dshpc_setup.dashboard import workflow_pages
from dshpc_setup.dashboard.board import Seen
from dshpc_setup.dashboard.site import Site, get, job_id, post
from dshpc_setup.errors import DshpcError, Exit, usage_error
from dshpc_setup.methods import description
from dshpc_setup.settings.shown import settings_json
from dshpc_setup.usage import sums

# Path -> command, schema
_READ = {
    "/api/status": ("dshpc status --json", "dshpc.status/1"),
    "/api/gpus": ("dshpc gpus --json", "dshpc.gpus/1"),
    "/api/jobs": ("dshpc job list --json", "dshpc.jobs/1"),
    "/api/jobs/{job}": ("dshpc job show ID --json", "dshpc.job-report/1"),
    "/api/methods": ("dshpc method list --json", "dshpc.method-list/1"),
    "/api/methods/{name}": ("dshpc method show NAME --json", "dshpc.method/1"),
    "/api/workflows": ("dshpc workflow list --json", "dshpc.workflow-list/1"),
    "/api/workflows/{name}": ("dshpc workflow status NAME --json", "dshpc.workflow/1"),
    "/api/usage": ("dshpc usage --json", "dshpc.usage/1"),
    "/api/doctor": ("dshpc doctor --json", "dshpc.doctor/1"),
    "/api/settings": ("dshpc config show --json", "dshpc.settings/1"),
    "/api/config-diff": ("dshpc config diff --json", "dshpc.config-diff/1"),
}
_QUERY: dict[str, tuple[tuple[str, str, list[str]], ...]] = {
    "/api/jobs": (("all", "1: older ones, too", ["1"]),),
    "/api/usage": (
        ("by", "what the hours are added up by; user where it is not given", [*sums.BY]),
    ),
}
_DONE = {
    "/api/jobs/{job}/cancel": "dshpc job cancel ID",
    "/api/jobs/{job}/requeue": "dshpc scontrol requeue ID",
}


def routes(site: Site) -> list[Any]:
    return [
        get("/api/openapi.json", openapi, site),
        get("/api/status", status, site),
        get("/api/gpus", gpus, site),
        get("/api/jobs", jobs, site),
        get("/api/jobs/{job}", job, site),
        get("/api/methods", methods, site),
        get("/api/methods/{name}", method, site),
        get("/api/workflows", workflows, site),
        get("/api/workflows/{name}", workflow, site),
        get("/api/usage", usage, site),
        get("/api/doctor", doctor, site),
        get("/api/settings", settings, site),
        get("/api/config-diff", config_diff, site),
        post("/api/jobs/{job}/cancel", cancel, site),
        post("/api/jobs/{job}/requeue", requeue, site),
    ]


def _of(seen: Seen[Any], value: Any) -> Response:
    """What was sampled last; raises DshpcError where the last question had no answer."""
    if seen.error is not None:
        raise seen.error
    if seen.value is None:
        raise DshpcError(
            "It has not been asked yet.", "", ("Ask again in a moment.",), Exit.INCOMPLETE
        )
    return JSONResponse(value(seen.value))


def status(site: Site, request: Request) -> Response:
    return _of(site.board.look().status, lambda value: value.to_json())


def gpus(site: Site, request: Request) -> Response:
    now = site.board.look()
    others = now.others.value or ()
    return _of(now.gpus, lambda value: replace(value, others=others).to_json())


def jobs(site: Site, request: Request) -> Response:
    if request.query_params.get("all") == "1":
        return JSONResponse(site.source.jobs(older=True).told)
    return _of(site.board.look().jobs, lambda value: value.told)


def job(site: Site, request: Request) -> Response:
    return JSONResponse(site.source.job(job_id(request)).told)


def methods(site: Site, request: Request) -> Response:
    found = [description.listed(each) for each in site.source.methods()]
    return JSONResponse({"schema": "dshpc.method-list/1", "methods": found})


def method(site: Site, request: Request) -> Response:
    found = site.source.method(request.path_params["name"])
    told = description.as_json(found)
    return JSONResponse({"schema": "dshpc.method/1", "method": told})


def workflows(site: Site, request: Request) -> Response:
    return JSONResponse(site.source.workflows())


def workflow(site: Site, request: Request) -> Response:
    told = site.source.workflow(workflow_pages.name_of(request))
    return JSONResponse({name: value for name, value in told.items() if name != "lines"})


def usage(site: Site, request: Request) -> Response:
    asked = request.query_params.get("by", "user")
    by = next((each for each in sums.BY if each == asked), None)
    if by is None:
        raise usage_error(f"by={asked!r} is none of {', '.join(sums.BY)}.", "", "by=user")
    return JSONResponse(sums.told(site.source.usage(), by))


def doctor(site: Site, request: Request) -> Response:
    return _of(site.board.look().doctor, lambda value: value.to_json())


def settings(site: Site, request: Request) -> Response:
    return JSONResponse(settings_json(*site.source.settings()))


def config_diff(site: Site, request: Request) -> Response:
    return JSONResponse(site.source.differences().to_json())


def cancel(site: Site, request: Request, form: object) -> Response:
    number = job_id(request)
    result = site.source.cancel(number)
    site.board.jobs.now.set()
    return _acted(number, result)


def requeue(site: Site, request: Request, form: object) -> Response:
    number = job_id(request)
    site.source.requeue(number)
    site.board.jobs.now.set()
    return _acted(number, "requeued")


def _acted(number: str, result: str) -> Response:
    told = {"job_id": number, "result": result}
    return JSONResponse({"schema": "dshpc.job-act/1", "exit_code": 0, **told})


def openapi(site: Site, request: Request) -> Response:
    return JSONResponse(described())


def described() -> dict[str, Any]:
    """The OpenAPI document."""
    paths: dict[str, Any] = {}
    for path, (command, schema) in _READ.items():
        paths[path] = {"get": _operation(path, f"What `{command}` prints.", schema)}
    for path, command in _DONE.items():
        paths[path] = {"post": _operation(path, f"Does what `{command}` does.", "dshpc.job-act/1")}
    return {
        "openapi": "3.1.0",
        "info": {"title": "dshpc dashboard", "version": __version__},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The token of the address that `dshpc dashboard` prints.",
                }
            },
            "schemas": {"error": _object("dshpc.error/1")},
        },
    }


def _operation(path: str, summary: str, schema: str) -> dict[str, Any]:
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    found: dict[str, Any] = {
        "summary": summary,
        "responses": {
            "200": {
                "description": f"A {schema} object.",
                "content": {"application/json": {"schema": _object(schema)}},
            },
            "401": {"description": "Neither the token nor the cookie was given."},
            **({"404": _why_not("There is none of that name or number.")} if names else {}),
            "default": _why_not("Why there is no answer."),
        },
    }
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in names
    ]
    for name, about, values in _QUERY.get(path, ()):
        described = {"name": name, "in": "query", "description": about}
        parameters.append({**described, "schema": {"type": "string", "enum": values}})
    return {**found, "parameters": parameters} if parameters else found


def _why_not(description: str) -> dict[str, Any]:
    error = {"$ref": "#/components/schemas/error"}
    return {"description": description, "content": {"application/json": {"schema": error}}}


def _object(schema: str) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["schema"],
        "properties": {"schema": {"const": schema}},
    }

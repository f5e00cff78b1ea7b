"""The dashboard as an application of ASGI: its pages behind its guard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from dshpc_setup import resources
from dshpc_setup.dashboard import (
    api,
    file_pages,
    job_pages,
    joining_pages,
    live,
    pages,
    run_pages,
    state_pages,
    terminal_pages,
    workflow_pages,
)
from dshpc_setup.dashboard.guard import Guard
from dshpc_setup.dashboard.site import FOLDER, Site, get, not_found

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_KINDS = {"js": "text/javascript", "css": "text/css"}
_KEPT = {"Cache-Control": "private, max-age=3600"}


def script(site: Site, request: Request) -> Response:
    """One of the browser's files."""
    name = request.path_params["name"]
    found = site.browser.file(name)
    if found is None:
        raise HTTPException(404)
    return Response(found, media_type=_KINDS[name.rpartition(".")[2]], headers=_KEPT)


def application(site: Site) -> ASGIApp:
    """The whole of it."""
    static = resources.package() / FOLDER / "static"
    routes = [
        *api.routes(site),
        *live.routes(site),
        *run_pages.routes(site),
        *state_pages.routes(site),
        *workflow_pages.routes(site),
        *terminal_pages.routes(site),
        *joining_pages.routes(site),
        *pages.routes(site),
        *file_pages.routes(site),
        *job_pages.routes(site),
        get("/static/browser/{name}", script, site),
        Mount("/static", StaticFiles(directory=static)),
    ]
    return Guard(Starlette(routes=routes, exception_handlers=not_found(site)), site.access)

"""The dashboard as an application of ASGI: its pages behind its guard."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from dshpc_setup import resources
from dshpc_setup.dashboard import api, live, pages, run_pages, state_pages
from dshpc_setup.dashboard.guard import Guard
from dshpc_setup.dashboard.site import FOLDER, Site, not_found

if TYPE_CHECKING:
    from starlette.types import ASGIApp


def application(site: Site, browser: Path | None = None) -> ASGIApp:
    """`browser`: the folder that holds `site.scripts`."""
    static = resources.package() / FOLDER / "static"
    served = [Mount("/static", StaticFiles(directory=static))]
    if browser is not None:
        served.insert(0, Mount("/static/browser", StaticFiles(directory=browser)))
    routes = [
        *api.routes(site),
        *live.routes(site),
        *run_pages.routes(site),
        *state_pages.routes(site),
        *pages.routes(site),
        *served,
    ]
    return Guard(Starlette(routes=routes, exception_handlers=not_found(site)), site.access)

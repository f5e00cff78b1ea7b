"""The pages about health and set-up: what doctor found, the settings and where they come from."""

from __future__ import annotations

from collections import Counter
from typing import Any

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from dshpc_setup.cluster.config_diff import Differences
from dshpc_setup.dashboard.site import Site, get, post, seen_other
from dshpc_setup.diagnose import catalogue, findings_pages
from dshpc_setup.diagnose.report import groups
from dshpc_setup.errors import DshpcError
from dshpc_setup.settings.edited import as_text
from dshpc_setup.settings.shown import settings_json

_STATES = ("ok", "error", "warn", "crashed", "info", "skipped")


def routes(site: Site) -> list[Any]:
    return [
        get("/health", health, site),
        post("/health", look_again, site),
        get("/health/{identity}", finding, site),
        get("/setup", setup, site),
    ]


def health(site: Site, request: Request) -> Response:
    now = site.board.look()
    report = now.doctor.value
    sections: dict[str, Counter[str]] = {}
    for each in report.every if report else ():
        sections.setdefault(each.section, Counter())[each.state] += 1
    return site.page(
        "health.html",
        here="health",
        now=now,
        causes=groups(report.findings) if report else [],
        sections=sections,
        states=_STATES,
    )


def look_again(site: Site, request: Request, form: object) -> Response:
    site.board.doctor.ask_again()
    return seen_other("/health")


def finding(site: Site, request: Request) -> Response:
    """The page of a finding, from its Markdown."""
    identity = request.path_params["identity"]
    if identity not in {check.id for check in catalogue()}:
        raise HTTPException(404, "There is no such finding.")
    from markdown_it import MarkdownIt

    text = MarkdownIt("commonmark", {"html": False}).enable("table").render(
        findings_pages.page(identity)
    )  # fmt: skip
    # Its own title is the page's
    body = Markup(text.replace("<h1>", "<h2>").replace("</h1>", "</h2>"))
    return site.page("finding.html", here="health", identity=identity, text=body)


def setup(site: Site, request: Request) -> Response:
    values, kept_out = site.source.settings()
    told = settings_json(values, kept_out)["settings"]
    rows = [
        {**each, "name": name, "value": as_text(getattr(values, name)) or "-"}
        for name, each in told.items()
    ]
    differences: Differences | None = None
    error: DshpcError | None = None
    try:
        differences = site.source.differences()
    except DshpcError as why:
        error = why
    return site.page("setup.html", here="setup", rows=rows, differences=differences, error=error)

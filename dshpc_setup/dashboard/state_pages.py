"""The pages about health and set-up: what doctor found, the settings and where they come from."""

from __future__ import annotations

import shlex
from collections import Counter
from typing import Any

from markupsafe import Markup
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from dshpc_setup.cluster.config_diff import Differences
from dshpc_setup.dashboard.fixing import mark
from dshpc_setup.dashboard.site import Site, get, post, seen_other
from dshpc_setup.diagnose import catalogue, findings_pages
from dshpc_setup.diagnose.report import groups
from dshpc_setup.errors import DshpcError
from dshpc_setup.repair import outcome as repairs
from dshpc_setup.settings import BY_NAME
from dshpc_setup.settings.edited import as_text
from dshpc_setup.settings.shown import settings_json
from dshpc_setup.usage import sums

_MOST_ROWS = 53
_STATES = ("ok", "error", "warn", "crashed", "info", "skipped")


def routes(site: Site) -> list[Any]:
    return [
        get("/health", health, site),
        post("/health", look_again, site),
        get("/health/fix", fixes, site),
        post("/health/fix", fix, site),
        get("/usage", usage, site),
        get("/health/{identity}", finding, site),
        get("/setup", setup, site),
        get("/setup/try", tried, site),
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


def fixes(site: Site, request: Request) -> Response:
    """What doctor would repair, each with a button; while one is done, how it goes."""
    fixing = site.fixing
    seen = site.board.fixes.seen if fixing.runs else site.board.fresh(site.board.fixes)
    plan = seen.value.done if seen.value is not None else ()
    return site.page(
        "fix.html",
        here="health",
        seen=seen,
        fixing=fixing,
        repairs=[(mark(each.repair), each.repair) for each in plan],
        done=repairs.lines(fixing.outcome) if fixing.outcome is not None else (),
    )


def fix(site: Site, request: Request, form: FormData) -> Response:
    """Begin what was agreed to; the page tells how it goes."""
    agreed = [each for each in form.getlist("repair") if isinstance(each, str)]
    if not agreed:
        raise HTTPException(400, "No repair was named.")

    def over() -> None:
        site.board.fixes.forget()
        site.board.doctor.ask_again()
        site.board.changed()

    site.fixing.begin(agreed, over)
    return seen_other("/health/fix")


_TITLES: dict[sums.By, str] = {
    "user": "user",
    "method": "method",
    "gpu-type": "type of GPU",
    "week": "week",
}


def usage(site: Site, request: Request) -> Response:
    """GPU hours, held and used; of weeks the last ones."""
    seen = site.board.fresh(site.board.usage)
    tables = []
    most: dict[str, float] = {}
    for by, title in _TITLES.items():
        found = sums.grouped(seen.value or (), by)
        found = found[::-1] if by == "week" else found
        most[by] = max((each.held_s for each in found), default=0.0) or 1.0
        rows = [(getattr(each, by.replace("-", "_")), each) for each in found[:_MOST_ROWS]]
        if rows:
            tables.append((by, title, rows, len(found) - len(rows)))
    return site.page("usage.html", here="usage", seen=seen, tables=tables, most=most)


def setup(site: Site, request: Request) -> Response:
    values, kept_out = site.source.settings()
    told, in_force = settings_json(values, kept_out)["settings"], site.source.in_force()
    rows = [
        {
            **each,
            "name": name,
            "value": as_text(getattr(values, name)) or in_force.get(name, "-"),
        }
        for name, each in told.items()
    ]
    differences: Differences | None = None
    error: DshpcError | None = None
    try:
        differences = site.source.differences()
    except DshpcError as why:
        error = why
    return site.page("setup.html", here="setup", rows=rows, differences=differences, error=error)


def tried(site: Site, request: Request) -> Response:
    """What another value of a setting would change."""
    name, value = (request.query_params.get(key, "") for key in ("name", "value"))
    if name not in BY_NAME:
        raise HTTPException(404, "There is no such setting.")
    report = site.source.tried(name, value)
    changes = [(each.path, text) for each in report.changes if (text := each.diff())]
    flag = f"{BY_NAME[name].flag} {shlex.quote(value)}"
    return site.page(
        "try.html", here="setup", setting=name, value=value, report=report, changes=changes, flag=flag,
        to_set=f"dshpc config set {name} {shlex.quote(value)}",
    )  # fmt: skip

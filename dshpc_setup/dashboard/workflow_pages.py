"""The pages of workflows: a list, and each as a picture with its states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from dshpc_setup.dashboard import graph
from dshpc_setup.dashboard.site import Site, get, post, seen_other
from dshpc_setup.errors import DshpcError
from dshpc_setup.methods.structure import differences
from dshpc_setup.workflows.schema import TOP

_NEEDED = ("name", "kind", "words", "job_id", "why", "on", "seconds", "reused")
_AGE_S = 3.0


def routes(site: Site) -> list[Any]:
    return [
        get("/workflows", workflows, site),
        get("/workflows/{name}", workflow, site),
        get("/workflows/{name}/cancel", confirm, site),
        post("/workflows/{name}/cancel", cancel, site),
    ]


def workflows(site: Site, request: Request) -> Response:
    seen = site.board.fresh(site.board.workflows, _AGE_S)
    rows = (seen.value or {}).get("workflows", ())
    return site.page("workflows.html", here="workflows", seen=seen, rows=rows)


def name_of(request: Request) -> str:
    """Raises HTTPException (404) for what is no workflow's name."""
    name = str(request.path_params["name"])
    if list(differences(name, TOP["name"])):
        raise HTTPException(404, "There is no such workflow.")
    return name


def workflow(site: Site, request: Request) -> Response:
    told = site.workflow(name_of(request))
    jobs = [_job(each) for each in told.get("jobs", ())]
    drawn = graph.graph(
        {
            each["name"]: [(need["job"], need["ending"]) for need in each["requires"]]
            for each in jobs
        }
    )
    return site.page(
        "workflow.html",
        here="workflows",
        told=told,
        jobs=jobs,
        by_name={each["name"]: each for each in jobs},
        flow=drawn,
        most=graph.MOST,
        wide=graph.WIDE,
        high=graph.HIGH,
        said=request.query_params.get("said", ""),
    )


def _job(told: Mapping[str, Any]) -> dict[str, Any]:
    """Raises DshpcError where the image is of another version."""
    if any(name not in told for name in _NEEDED):
        raise DshpcError(
            "The cluster's image is of another version: its workflows cannot be read.",
            "",
            ("Rebuild the image: configure-environment",),
        )
    return {**told, "requires": told.get("requires", ())}


def confirm(site: Site, request: Request) -> Response:
    return site.page("workflow_cancel.html", here="workflows", flow=name_of(request))


def cancel(site: Site, request: Request, form: object) -> Response:
    name = name_of(request)
    site.source.cancel_workflow(name)
    site.board.jobs.now.set()
    return seen_other(f"/workflows/{name}?said=cancelled")

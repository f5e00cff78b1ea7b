"""The page of machines that join: a token by button, its line to paste, who has come with it."""

from __future__ import annotations

import time
from typing import Any

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response

from dshpc_setup.dashboard.site import Site, get, post, seen_other
from dshpc_setup.dashboard.source import Joining
from dshpc_setup.errors import DshpcError
from dshpc_setup.join import giving
from dshpc_setup.join.giving import Made

_REFUSED = {"expired": "its time is over", "revoked": "revoked", "used": "used"}


def routes(site: Site) -> list[Any]:
    return [
        get("/joining", joining, site),
        get("/joining/revoke", confirm, site),
        post("/joining/token", give, site),
        post("/joining/revoke", revoke, site),
    ]


def joining(site: Site, request: Request) -> Response:
    return _page(site, said=request.query_params.get("said", ""))


def _page(site: Site, made: Made | None = None, said: str = "") -> Response:
    told: Joining | None = None
    error: DshpcError | None = None
    try:
        told = site.source.joining()
    except DshpcError as why:
        error = why
    now = time.time()
    return site.page(
        "joining.html",
        here="overview",
        made=made,
        line=giving.line(made) if made else "",
        said=said,
        error=error,
        told=told,
        came=came(told) if told else (),
        state={
            each.id: _REFUSED[each.refusal(now, "") or "used"] if not each.lives(now) else ""
            for each in (told.tokens if told else ())
        },
        any_lives=any(each.lives(now) for each in (told.tokens if told else ())),
    )


def came(told: Joining) -> list[tuple[str, str, str | None]]:
    """Who was given the cluster's key, by which token; its state in Slurm, None before it has one."""
    states = {f"{each.name} at {each.address}": each.state for each in told.nodes}
    return [(who, each.id, states.get(who)) for each in told.tokens for who in each.used_by]


def give(site: Site, request: Request, form: FormData) -> Response:
    ttl = form.get("ttl")
    made = site.source.give_token(
        ttl.strip() if isinstance(ttl, str) and ttl.strip() else "24h", once=form.get("once") == "1"
    )
    return _page(site, made)


def confirm(site: Site, request: Request) -> Response:
    return site.page("joining_revoke.html", here="overview")


def revoke(site: Site, request: Request, form: FormData) -> Response:
    site.source.revoke_tokens()
    return seen_other("/joining?said=revoked")

"""The pages of terminals, and the WebSocket that joins a page to one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import secrets
from functools import partial
from typing import Any, TypeGuard

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from dshpc_setup.dashboard.site import Site, get, job_id, no_page, post, seen_other
from dshpc_setup.dashboard.terminals import Terminal
from dshpc_setup.dashboard.threads import in_thread
from dshpc_setup.documents import foreign
from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.jobs import request_building
from dshpc_setup.jobs.request_building import CommandLine
from dshpc_setup.machine.pseudo_terminal import Size
from dshpc_setup.methods.model import Resources
from dshpc_setup.slurm import shells

_WAIT_S = 15.0
_MOST_KEYS = 1 << 16
_MOST_CELLS = 1000
ELSEWHERE, NONE_THERE = 4001, 4004
_TYPE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
# Of xterm.js: it makes styles as it runs, which this page's own secret lets in, and colours single letters
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; "
    "style-src-attr 'unsafe-inline'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)


def routes(site: Site) -> list[Any]:
    async def socket(asked: WebSocket) -> None:
        found = site.terminals.find(asked.path_params["key"])
        await asked.accept()
        if found is None:
            await asked.close(NONE_THERE)
        else:
            await _joined(asked, found)

    return [
        post("/terminals", begin, site),
        get("/terminals/{key}", terminal, site),
        post("/terminals/{key}/end", end, site),
        post("/jobs/{job}/terminal", begin_in_job, site),
        WebSocketRoute("/terminals/{key}/socket", socket),
    ]


def begin(site: Site, request: Request, form: FormData) -> Response:
    given = {
        name: text.strip() for name, text in form.items() if isinstance(text, str) and text.strip()
    }
    return _opened(site, shells.new(wanted(given)))


def wanted(given: dict[str, str]) -> shells.Wanted:
    """As the form has it; raises DshpcError (usage)."""
    asked = CommandLine(
        gpus=given.get("gpus"), cpus=given.get("cpus"), memory=given.get("memory"),
        time=given.get("time"),
    )  # fmt: skip
    found = request_building.with_asked(Resources(), asked)
    kind = given.get("gpu_type")
    if kind is not None and not _TYPE.fullmatch(kind):
        raise usage_error(f"{kind} is no type of GPU.", "", "See the types: dshpc gpus")
    gpus = found.gpus or (1 if kind and asked.gpus is None else 0)
    return shells.Wanted(gpus, kind, found.cpus, found.memory_mb, found.time_limit)


def begin_in_job(site: Site, request: Request, form: FormData) -> Response:
    return _opened(site, shells.within(job_id(request)))


def _opened(site: Site, words: tuple[str, ...]) -> Response:
    if not site.browser.terminal.names:
        raise DshpcError(
            "The script of terminals is not there.",
            "It is fetched from npm's registry when the dashboard starts.",
            (f"Type this in a terminal: dshpc {' '.join(words)}",),
        )
    return seen_other(f"/terminals/{site.terminals.open(words).key}")


def terminal(site: Site, request: Request) -> Response:
    nonce = secrets.token_urlsafe(16)
    page = site.page("terminal.html", here="run", nonce=nonce, one=_found(site, request))
    page.headers["Content-Security-Policy"] = _POLICY.format(nonce=nonce)
    return page


def end(site: Site, request: Request, form: FormData) -> Response:
    _found(site, request).child.hang_up()
    return seen_other("/run#terminal")


def _found(site: Site, request: Request) -> Terminal:
    return site.terminals.find(request.path_params["key"]) or no_page()


async def _joined(asked: WebSocket, one: Terminal) -> None:
    """What it prints goes to the page, what is typed comes from there, until either ends."""
    page, begin_at = one.attach()
    sending = asyncio.ensure_future(_told(asked, one, page, begin_at))
    hearing = asyncio.ensure_future(_heard(asked, one))
    try:
        await asyncio.wait((sending, hearing), return_when=asyncio.FIRST_COMPLETED)
    finally:
        one.detach(page)
        for each in (sending, hearing):
            each.cancel()
        for each in (sending, hearing):
            # The page has gone in the middle of a word
            with contextlib.suppress(asyncio.CancelledError, WebSocketDisconnect, RuntimeError):
                await each


async def _told(asked: WebSocket, one: Terminal, page: int, at: int) -> None:
    while True:
        printed = await in_thread(partial(one.next, page, at, _WAIT_S))
        if printed is None:
            await asked.close(ELSEWHERE)
            return
        if printed.data:
            await asked.send_bytes(printed.data)
        at = printed.end
        if printed.code is not None:
            await asked.send_text(json.dumps({"ended": printed.code}))
            await asked.close()
            return


async def _heard(asked: WebSocket, one: Terminal) -> None:
    while True:
        message = await asked.receive()
        if message["type"] == "websocket.disconnect":
            return
        keys, text = message.get("bytes"), message.get("text")
        if keys:
            await in_thread(partial(one.child.type, keys[:_MOST_KEYS]))
        elif text and (size := size_of(text)) is not None:
            one.child.resize(size)


def size_of(text: str) -> Size | None:
    """Of a page's word about it; None for what is none."""
    try:
        value = foreign.value(text)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    rows, columns = value.get("rows"), value.get("columns")
    if not (_is_count(rows) and _is_count(columns)):
        return None
    return Size(rows, columns)


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 < value <= _MOST_CELLS

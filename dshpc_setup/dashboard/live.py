"""Live parts of pages, as Server-Sent Events: sent when they are others than before, within a second."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from html import escape

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from dshpc_setup.dashboard import files
from dshpc_setup.dashboard.job_pages import jobs_values, sampled
from dshpc_setup.dashboard.pages import gpu_values, overview_values
from dshpc_setup.dashboard.site import Site, job_id
from dshpc_setup.dashboard.threads import in_thread
from dshpc_setup.errors import DshpcError
from dshpc_setup.jobs.view import View

_TICK_S = 0.5
_CLOCK_S = 5.0  # how long jobs have run changes by itself
_GZIP = 16 + zlib.MAX_WBITS
_ALIVE_S = 15.0  # a line that says nothing would be closed by what lies between


def routes(site: Site) -> list[Route]:
    async def overview(request: Request) -> Response:
        return _stream(
            site, request, lambda: site.fragment("_overview.html", **overview_values(site.board))
        )

    async def jobs(request: Request) -> Response:
        asked = dict(request.query_params)
        if asked.get("all") == "1":  # older ones are asked for once, and do not change
            raise HTTPException(404)
        return _stream(
            site, request, lambda: site.fragment("_jobs.html", **jobs_values(site, asked))
        )

    async def gpu(request: Request) -> Response:
        index = int(request.path_params["index"])
        return _stream(site, request, lambda: site.fragment("_gpu.html", **gpu_values(site, index)))

    async def job(request: Request) -> Response:
        return _of_job(site, request)

    return [
        Route("/live/overview", overview),
        Route("/live/jobs", jobs),
        Route("/live/gpus/{index:int}", gpu),
        Route("/live/jobs/{job}", job),
    ]


def event(name: str, text: str) -> str:
    """One event; a line of the text is a line of its data."""
    lines = "".join(f"data: {line}\n" for line in text.split("\n"))
    return f"event: {name}\n{lines}\n"


def _stream(site: Site, request: Request, render: Callable[[], str]) -> Response:
    async def events() -> AsyncIterator[str]:
        before, said = "", time.monotonic()
        seen: tuple[int, ...] = ()
        drawn = 0.0
        while not site.board.is_over:
            now = site.board.look().stamp
            text = before
            if now != seen or time.monotonic() - drawn > _CLOCK_S:
                seen, drawn = now, time.monotonic()
                with suppress(DshpcError, HTTPException):  # the page that is loaded next says what
                    text = await in_thread(render)
            if text != before:
                yield event("part", text)
                before, said = text, time.monotonic()
            elif time.monotonic() - said > _ALIVE_S:
                yield ": alive\n\n"
                said = time.monotonic()
            await asyncio.sleep(_TICK_S)

    return _events(request, events())


def _of_job(site: Site, request: Request) -> Response:
    """Its state, and what it has printed since."""
    number, begin = job_id(request), request.query_params.get("from", "")

    async def events() -> AsyncIterator[str]:
        before, said = "", time.monotonic()
        at = int(begin) if begin.isdecimal() else 0
        while not site.board.is_over:
            one = await in_thread(lambda: sampled(site.board, number))
            text = "" if one is None else site.fragment("_job.html", one=one)
            if text != before:
                yield event("part", text)
                before, said = text, time.monotonic()
            part = await in_thread(partial(_log_from, one, site.source.work, at))
            if part is not None and part.end != at:
                yield event("log", escape(part.text))
                at, said = part.end, time.monotonic()
            if time.monotonic() - said > _ALIVE_S:
                yield ": alive\n\n"
                said = time.monotonic()
            await asyncio.sleep(_TICK_S)

    return _events(request, events())


def _log_from(one: View | None, work: str, at: int) -> files.Part | None:
    if one is None or one.log is None:
        return None
    try:
        return files.log(one, work, at)
    except DshpcError:  # it has not begun, or its workspace is gone
        return None


def _events(request: Request, events: AsyncIterator[str]) -> Response:
    """Packed where the browser takes that: a part is mostly what the part before was, and shrinks to what
    differs."""
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return StreamingResponse(events, media_type="text/event-stream")
    headers = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return StreamingResponse(packed(events), media_type="text/event-stream", headers=headers)


async def packed(events: AsyncIterator[str]) -> AsyncIterator[bytes]:
    packer = zlib.compressobj(wbits=_GZIP)
    async for each in events:
        yield packer.compress(each.encode(errors="replace")) + packer.flush(zlib.Z_SYNC_FLUSH)

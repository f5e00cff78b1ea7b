"""The pages of what a job has written: its log, and the files of its workspace."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from dshpc_setup.dashboard import files
from dshpc_setup.dashboard.job_pages import one_of
from dshpc_setup.dashboard.site import Site, get, job_id, no_page

_ROWS = 200
_BLOCK = 1 << 18
_FILE_POLICY = "sandbox; default-src 'none'"  # of what a job has written


def routes(site: Site) -> list[Any]:
    return [
        get("/jobs/{job}/log", job_log, site),
        get("/jobs/{job}/files/{path:path}", job_files, site),
        get("/jobs/{job}/raw/{path:path}", raw_file, site),
    ]


def job_log(site: Site, request: Request) -> Response:
    """All of the log, as a file."""
    one = one_of(site, request)
    handle, size = files.opened_log(one, site.source.work)
    return _sent(handle, size, f"job-{one.id}.log", None)


def job_files(site: Site, request: Request) -> Response:
    """A folder of the workspace, or a file of it as a page."""
    one, parts = one_of(site, request), _parts(request)
    values: dict[str, Any] = {"one": one, "number": job_id(request), "parts": parts, "here": "jobs"}
    if files.is_folder(one, site.source.work, parts):
        entries, more = files.listing(one, site.source.work, parts)
        return site.page("files.html", entries=entries, more=more, **values)
    ending = os.path.splitext(parts[-1])[1].lower()
    if ending in files.PICTURES:
        return site.page("file.html", picture=True, part=None, rows=None, **values)
    part = files.text(one, site.source.work, parts)
    rows = _rows(part.text) if part is not None and ending == ".csv" else None
    return site.page("file.html", picture=False, part=part, rows=rows, **values)


def _rows(text: str) -> list[list[str]]:
    rows = []
    try:
        for row in csv.reader(io.StringIO(text)):
            rows.append(row[:50])
            if len(rows) == _ROWS:
                break
    except csv.Error:
        return []
    return rows


def raw_file(site: Site, request: Request) -> Response:
    """A file of the workspace as it is: a picture to be shown in a page, all else as a download."""
    one, parts = one_of(site, request), _parts(request)
    if not parts:
        no_page()
    handle, size = files.opened(one, site.source.work, parts)
    shown = request.query_params.get("shown") == "1"
    kind = files.PICTURES.get(os.path.splitext(parts[-1])[1].lower()) if shown else None
    return _sent(handle, size, parts[-1], kind)


def _parts(request: Request) -> tuple[str, ...]:
    """Behind /jobs/JOB/files/ or raw/, as it was sent: a file's name may be no UTF-8."""
    path = os.fsdecode(unquote_to_bytes(request.scope["raw_path"]))
    return tuple(part for part in path.split("/")[4:] if part)


def _sent(handle: int, size: int, name: str, picture: str | None) -> Response:
    """As a download, unless it is a picture."""
    headers = {"Content-Security-Policy": _FILE_POLICY, "Content-Length": str(size)}
    if picture is None:
        headers["Content-Disposition"] = (
            f"attachment; filename*=UTF-8''{quote(os.fsencode(name), safe='')}"
        )

    def blocks() -> Iterator[bytes]:
        left = size  # a log may grow meanwhile
        with open(handle, "rb") as file:
            while left > 0 and (block := file.read(min(_BLOCK, left))):
                left -= len(block)
                yield block

    return StreamingResponse(
        blocks(), headers=headers, media_type=picture or "application/octet-stream"
    )

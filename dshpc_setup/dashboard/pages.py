"""The pages that look: overview, a GPU, jobs, one job with its log and its files."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn
from urllib.parse import quote, urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from dshpc_setup.cluster.gpus import Card
from dshpc_setup.dashboard import charts, files
from dshpc_setup.dashboard.board import Board, Seen, Snapshot
from dshpc_setup.dashboard.history import HOUR_S, WEEK_S, Sample, key
from dshpc_setup.dashboard.site import Site, get, job_id, post, seen_other
from dshpc_setup.dashboard.source import JobReport
from dshpc_setup.diagnose.report import groups
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.jobs import view
from dshpc_setup.jobs.view import View
from dshpc_setup.observed.cluster_status import ClusterStatus
from dshpc_setup.slurm import job_states

PAGE = 100
_QUEUE, _RECENT, _ROWS = 20, 10, 200
_BLOCK = 1 << 18
_FILE_POLICY = "sandbox; default-src 'none'"  # of what a job has written
_SORTS = {
    "id": view.in_order,
    "name": lambda one: one.name.casefold(),
    "user": lambda one: one.user or "",
    "state": lambda one: one.words,
    "time": lambda one: one.seconds(one.ended or one.started or 0.0) or 0.0,
    "submitted": lambda one: one.submitted or 0.0,
}


def routes(site: Site) -> list[Any]:
    return [
        get("/", overview, site),
        get("/jobs", jobs, site),
        get("/jobs/{job}", job, site),
        get("/jobs/{job}/log", job_log, site),
        get("/jobs/{job}/files/{path:path}", job_files, site),
        get("/jobs/{job}/raw/{path:path}", raw_file, site),
        get("/jobs/{job}/{act}", confirm, site),
        post("/jobs/{job}/cancel", cancel, site),
        post("/jobs/{job}/requeue", requeue, site),
        get("/gpus/{index:int}", gpu, site),
        get("/nodes/{name}", node, site),
    ]


# Overview


def overview(site: Site, request: Request) -> Response:
    return site.page("overview.html", here="overview", **overview_values(site.board))


def overview_values(board: Board) -> dict[str, Any]:
    now = board.look()
    views = now.jobs.value.views if now.jobs.value else ()
    waiting = [one for one in views if one.state == "PENDING"]
    running = [one for one in views if not one.is_over and one.state != "PENDING"]
    ended = sorted((one for one in views if one.is_over), key=_ended, reverse=True)
    found = groups(now.doctor.value.findings) if now.doctor.value else []
    return {
        "now": now,
        "free": free(now.status.value),
        "cards": now.gpus.value.cards() if now.gpus.value else (),
        "waiting": waiting[:_QUEUE],
        "running": running[:_QUEUE],
        "more": max(0, len(waiting) - _QUEUE) + max(0, len(running) - _QUEUE),
        "ended": ended[:_RECENT],
        "causes": found,
        "why": {
            each.job: each.why for each in (now.status.value and now.status.value.pending) or ()
        },
    }


def _ended(one: View) -> float:
    return one.ended or 0.0


@dataclass(frozen=True)
class Free:
    """GPUs of a type, on all nodes that take jobs."""

    kind: str
    free: int
    total: int


def free(status: ClusterStatus | None) -> tuple[Free, ...]:
    """By type, as the nodes that take jobs have them."""
    total: dict[str, int] = {}
    used: dict[str, int] = {}
    for one in status.nodes if status is not None else ():
        for name, count in one.gres_total.items():
            if name.split(":")[0] == "gpu":
                kind = name.partition(":")[2] or "gpu"
                total[kind] = total.get(kind, 0) + count
                in_use = one.gres_in_use.get(name, 0) if one.usable else count
                used[kind] = used.get(kind, 0) + in_use
    return tuple(Free(kind, count - used[kind], count) for kind, count in total.items())


# A GPU and a node


def gpu(site: Site, request: Request) -> Response:
    return site.page("gpu.html", here="overview", **gpu_values(site, request.path_params["index"]))


@dataclass(frozen=True)
class Drawn:
    """A curve with its words."""

    title: str
    unit: str
    hour: charts.Curve
    week: charts.Curve


def gpu_values(site: Site, index: int) -> dict[str, Any]:
    now = site.board.look()
    cards = now.gpus.value.cards() if now.gpus.value else ()
    card = next((each for each in cards if each.device.index == index), None)
    if card is None:
        _need(now.gpus)
        raise HTTPException(404, f"There is no GPU {index}.")
    end = site.board.time()
    hour, week = site.board.history.hour(key(card)), site.board.history.week(key(card))
    return {
        "now": now,
        "card": card,
        "index": index,
        "drawn": _drawn(card, hour, week, end),
        "spans": charts.spans([(each.at, each.jobs) for each in hour], end - HOUR_S, end),
        "findings": _about(now, card),
    }


def _need(seen: Seen[Any]) -> None:
    """Raises DshpcError where there is no answer yet, so that nobody knows what there is."""
    if seen.error is not None:
        raise seen.error
    if seen.value is None:
        raise DshpcError(
            "It has not been asked yet.", "", ("Look again in a moment.",), Exit.INCOMPLETE
        )


def _drawn(
    card: Card, hour: Sequence[Sample], week: Sequence[Sample], end: float
) -> tuple[Drawn, ...]:
    curves = (
        ("Use", "%", "utilization_percent", 100.0),
        ("Memory", "MiB", "memory_used_mib", card.memory_total_mib),
        ("Temperature", "°C", "temperature_c", 100.0),
        ("Power", "W", "power_w", card.reading.power_limit_w),
    )

    def of(samples: Sequence[Sample], name: str, begin: float, top: float | None) -> charts.Curve:
        return charts.curve([(each.at, getattr(each, name)) for each in samples], begin, end, top)

    return tuple(
        Drawn(title, unit, of(hour, name, end - HOUR_S, top), of(week, name, end - WEEK_S, top))
        for title, unit, name, top in curves
    )


def _about(now: Snapshot, card: Card) -> list[Any]:
    """What doctor finds wrong of GPUs, where this one has a problem."""
    report = now.doctor.value
    return [each for each in (report.findings if report else ()) if each.id in card.device.problems]


def node(site: Site, request: Request) -> Response:
    now = site.board.look()
    name = request.path_params["name"]
    nodes = now.status.value.nodes if now.status.value else ()
    found = next((each for each in nodes if each.name == name), None)
    if found is None:
        _need(now.status)
        raise HTTPException(404, "There is no such node.")
    views = now.jobs.value.views if now.jobs.value else ()
    return site.page(
        "node.html",
        here="overview",
        now=now,
        node=found,
        cards=now.gpus.value.cards() if now.gpus.value else (),
        running=[one for one in views if not one.is_over and one.state != "PENDING"],
    )


# Jobs


def jobs(site: Site, request: Request) -> Response:
    return site.page("jobs.html", here="jobs", **jobs_values(site, dict(request.query_params)))


def jobs_values(site: Site, asked: dict[str, str]) -> dict[str, Any]:
    now = site.board.look()
    older = asked.get("all") == "1"
    told = site.source.jobs(older=True) if older else now.jobs.value
    every = told.views if told else ()
    found = [one for one in every if _is_wanted(one, asked)]
    by = asked.get("sort", "id")
    found.sort(key=_SORTS.get(by, view.in_order), reverse=asked.get("up") != "1")
    pages = max(1, -(-len(found) // PAGE))
    page = min(pages, max(1, int(asked["page"]))) if asked.get("page", "").isdecimal() else 1
    kept = {
        name: asked[name] for name in ("state", "user", "q", "sort", "up", "all") if asked.get(name)
    }
    return {
        "now": now,
        "views": found[(page - 1) * PAGE : page * PAGE],
        "count": len(found),
        "states": sorted({one.words for one in every}),
        "users": sorted({one.user for one in every if one.user}),
        "asked": asked,
        "page": page,
        "pages": pages,
        "notes": told.notes if told else (),
        "link": lambda **more: "/jobs?" + urlencode({**kept, **more}),
        "live": "/live/jobs?" + urlencode({**kept, "page": page}),
    }


def _is_wanted(one: View, asked: dict[str, str]) -> bool:
    words = asked.get("q", "").casefold()
    return (
        asked.get("state", "") in ("", one.words)
        and asked.get("user", "") in ("", one.user)
        and (not words or words in one.name.casefold() or words in one.id)
    )


def job(site: Site, request: Request) -> Response:
    number = job_id(request)
    values = job_values(site, number)
    one = values["one"]
    values["log"], values["no_log"] = _log_of(one, site.source.work)
    values["hits"], words = None, request.query_params.get("search", "")
    if words and one.log:
        values["hits"] = files.hits(one, site.source.work, words)
    return site.page(
        "job.html",
        here="jobs",
        search=words,
        said=request.query_params.get("said", ""),
        **values,
    )


def job_values(site: Site, number: str) -> dict[str, Any]:
    """The job as it was sampled last, else as it is told now; and what it was made from."""
    now = site.board.look()
    known = [one for one in (now.jobs.value.views if now.jobs.value else ()) if _is_of(one, number)]
    report: JobReport | None = None
    untold: DshpcError | None = None
    try:
        report = site.report(number, again=not known)
    except DshpcError as error:
        if not known:
            raise
        untold = error
    views = known or list(report.views if report else ())
    if not views:
        raise HTTPException(404, f"There is no job {number}.")
    return {
        "now": now,
        "number": number,
        "one": views[0],
        "views": views[:PAGE],
        "report": report,
        "untold": untold,
    }


def _is_of(one: View, number: str) -> bool:
    job = job_states.parse_id(number)
    return one.number == job.number and job.task in (None, one.task)


def sampled(board: Board, number: str) -> View | None:
    """The job as it was sampled last."""
    told = board.look().jobs.value
    return next((one for one in (told.views if told else ()) if _is_of(one, number)), None)


def _log_of(one: View, work: str) -> tuple[files.Part | None, str]:
    if one.log is None:
        return None, ""
    try:
        return files.log(one, work), ""
    except DshpcError as error:
        return None, error.brief


def job_log(site: Site, request: Request) -> Response:
    """All of the log, as a file."""
    one = _one(site, request)
    handle, size = files.opened_log(one, site.source.work)
    return _sent(handle, size, f"job-{one.id}.log", None)


def _one(site: Site, request: Request) -> View:
    number = job_id(request)
    known = sampled(site.board, number)
    return known if known is not None else site.source.job(number).views[0]


def job_files(site: Site, request: Request) -> Response:
    """A folder of the workspace, or a file of it as a page."""
    one, parts = _one(site, request), _parts(request)
    values: dict[str, Any] = {"one": one, "number": job_id(request), "parts": parts, "here": "jobs"}
    kind = _kind(one, site.source.work, parts)
    if kind == "folder":
        entries, more = files.listing(one, site.source.work, parts)
        return site.page("files.html", entries=entries, more=more, **values)
    ending = os.path.splitext(parts[-1])[1].lower()
    if ending in files.PICTURES:
        return site.page("file.html", picture=True, part=None, rows=None, **values)
    part = files.text(one, site.source.work, parts)
    rows = _rows(part.text) if part is not None and ending == ".csv" else None
    return site.page("file.html", picture=False, part=part, rows=rows, **values)


def _kind(one: View, work: str, parts: tuple[str, ...]) -> str:
    """Raises DshpcError for what is neither a folder nor a file."""
    if not parts:
        return "folder"
    entries, _ = files.listing(one, work, parts[:-1])
    found = next((each.kind for each in entries if each.name == parts[-1]), "")
    return found if found == "folder" else "file"


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
    one, parts = _one(site, request), _parts(request)
    if not parts:
        _no_page()
    handle, size = files.opened(one, site.source.work, parts)
    shown = request.query_params.get("shown") == "1"
    kind = files.PICTURES.get(os.path.splitext(parts[-1])[1].lower()) if shown else None
    return _sent(handle, size, parts[-1], kind)


def _parts(request: Request) -> tuple[str, ...]:
    return tuple(part for part in str(request.path_params["path"]).split("/") if part)


def _sent(handle: int, size: int, name: str, picture: str | None) -> Response:
    """As a download, unless it is a picture."""
    headers = {"Content-Security-Policy": _FILE_POLICY, "Content-Length": str(size)}
    if picture is None:
        headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(name, safe='')}"

    def blocks() -> Iterator[bytes]:
        left = size  # a log may grow meanwhile
        with open(handle, "rb") as file:
            while left > 0 and (block := file.read(min(_BLOCK, left))):
                left -= len(block)
                yield block

    return StreamingResponse(
        blocks(), headers=headers, media_type=picture or "application/octet-stream"
    )


# What is done to a job


def confirm(site: Site, request: Request) -> Response:
    """Asks before a job is stopped."""
    act = request.path_params["act"]
    if act not in ("cancel", "requeue"):
        _no_page()
    one = _one(site, request)
    return site.page("confirm.html", here="jobs", act=act, one=one, number=job_id(request))


def cancel(site: Site, request: Request, form: object) -> Response:
    number = job_id(request)
    site.source.cancel(number)
    site.board.jobs.now.set()
    return seen_other(f"/jobs/{number}?said=cancelled")


def requeue(site: Site, request: Request, form: object) -> Response:
    number = job_id(request)
    site.source.requeue(number)
    site.board.jobs.now.set()
    return seen_other(f"/jobs/{number}?said=requeued")


def _no_page() -> NoReturn:
    raise HTTPException(404, "There is no such page.")

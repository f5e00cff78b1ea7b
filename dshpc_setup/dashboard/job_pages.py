"""The pages of jobs: the list, one job with its log and what it has used, and what is done to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from dshpc_setup.dashboard import charts, files, graph
from dshpc_setup.dashboard.board import Board
from dshpc_setup.dashboard.history import HOUR_S, key
from dshpc_setup.dashboard.site import Site, get, job_id, no_page, outcome, post, seen_other
from dshpc_setup.dashboard.source import JobReport, Jobs
from dshpc_setup.errors import DshpcError
from dshpc_setup.jobs import view
from dshpc_setup.jobs.view import View
from dshpc_setup.slurm import job_states
from dshpc_setup.usage import words as usage_words

PAGE = 100
_MOST_SQUARES = 1000
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
        get("/jobs", jobs, site),
        get("/jobs/{job}", job, site),
        get("/jobs/{job}/{act}", confirm, site),
        post("/jobs/{job}/cancel", cancel, site),
        post("/jobs/{job}/requeue", requeue, site),
    ]


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
    said = request.query_params.get("said", "")
    if len(values["squares"]) > 1:
        return site.page("array.html", here="jobs", said=said, **values)
    values["log"], values["no_log"] = _log_of(one, site.source.work)
    values["hits"], words = None, request.query_params.get("search", "")
    if words and one.log:
        values["hits"] = files.hits(one, site.source.work, words)
    return site.page(
        "job.html",
        here="jobs",
        search=words,
        said=said,
        **values,
    )


def job_values(site: Site, number: str) -> dict[str, Any]:
    """The job as it was sampled last, else as it is told now; and what it was made from."""
    now = site.board.look()
    known = _of(now.jobs.value, number)
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
        **_tasks(views),
        "used": _used(views[0]) if len(views) == 1 else (),
        "drawn": _drawn(site, views[0]) if len(views) == 1 else (),
        "report": report,
        **_made(report),
        "untold": untold,
    }


def _made(report: JobReport | None) -> dict[str, Any]:
    """What it was made from; a job's user can write there whatever he likes."""
    made = (report.request if report is not None else None) or {}
    sets = made.get("parameters")
    one = sets[0] if isinstance(sets, list) and len(sets) == 1 else None
    return {"made": made, "parameters": one if isinstance(one, dict) else {}}


@dataclass(frozen=True)
class Square:
    """Of a task, in the picture of its array."""

    one: View
    x: int
    y: int


def _tasks(views: Sequence[View]) -> dict[str, Any]:
    """The picture of an array, and how many are in which state."""
    shown = views[:_MOST_SQUARES]
    counts: Counter[str] = Counter()
    for one in views:  # tasks that wait are told together
        counts[outcome(one)] += job_states.tasks(one.id)
    return {
        "squares": [Square(one, *graph.place(index)) for index, one in enumerate(shown)],
        "more": len(views) - len(shown),
        "counts": counts.most_common(),
        "goes_on": not all(one.is_over for one in views),
        "side": graph.SIDE,
        "row": graph.ROW,
        "number_of": number_of,
    }


def number_of(one: View) -> str:
    """By which its page is found: of tasks that are told together, that of the array."""
    return str(one.number) if one.task is None else f"{one.number}_{one.task}"


def _used(one: View) -> list[tuple[str, str | None]]:
    """As `dshpc job show` has it."""
    return usage_words.rows(one.use, [gpu.index for gpu in one.gpus]) if one.use else []


@dataclass(frozen=True)
class Drawn:
    title: str
    unit: str
    curve: charts.Curve


def _drawn(site: Site, one: View) -> list[Drawn]:
    """What its GPUs measured while it held them, as far as that was sampled in the last hour."""
    end = site.board.time()
    gpus = site.board.snapshot.gpus.value
    cards = {key(card): card for card in (gpus.cards() if gpus else ())}
    found = []
    for gpu, samples in site.board.history.of_job(one.id).items():
        card = cards.get(gpu)
        if card is None:
            continue
        begin = max(end - HOUR_S, samples[0].at)
        for title, unit, name, top in (
            ("use", "%", "utilization_percent", 100.0),
            ("memory", "MiB", "memory_used_mib", card.memory_total_mib),
        ):
            points = [(each.at, getattr(each, name)) for each in samples]
            curve = charts.curve(points, begin, end, top)
            found.append(Drawn(f"GPU {card.device.index} {title}", unit, curve))
    return found


def _of(told: Jobs | None, number: str) -> list[View]:
    """Of all jobs those that the number means: a job, a task, or all tasks of an array."""
    job = job_states.parse_id(number)
    return [
        one
        for one in (told.views if told is not None else ())
        if one.number == job.number and job.task in (None, one.task)
    ]


def sampled(board: Board, number: str) -> View | None:
    """The job as it was sampled last."""
    return next(iter(_of(board.look().jobs.value, number)), None)


def _log_of(one: View, work: str) -> tuple[files.Part | None, str]:
    if one.log is None:
        return None, ""
    try:
        return files.log(one, work), ""
    except DshpcError as error:
        return None, error.brief


def one_of(site: Site, request: Request) -> View:
    number = job_id(request)
    known = sampled(site.board, number)
    return known if known is not None else site.source.job(number).views[0]


# What is done to a job


def confirm(site: Site, request: Request) -> Response:
    """Asks before a job is stopped."""
    act = request.path_params["act"]
    if act not in ("cancel", "requeue"):
        no_page()
    one = one_of(site, request)
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

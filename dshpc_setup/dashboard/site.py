"""What all pages share: the templates, the forms' own token, errors as pages."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cached_property
from http import HTTPStatus
from typing import Any, NoReturn
from urllib.parse import quote

import jinja2
from markupsafe import Markup
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from dshpc_setup import resources
from dshpc_setup.dashboard.access import Access
from dshpc_setup.dashboard.board import Board
from dshpc_setup.dashboard.browser_files import Browser, Scripts
from dshpc_setup.dashboard.fixing import Fixing
from dshpc_setup.dashboard.guard import BEARER
from dshpc_setup.dashboard.notebooks import Notebook
from dshpc_setup.dashboard.source import JobReport, Source
from dshpc_setup.dashboard.terminals import Terminals
from dshpc_setup.dashboard.threads import in_thread
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.jobs import view
from dshpc_setup.jobs.view import View
from dshpc_setup.methods import description
from dshpc_setup.problems import in_words
from dshpc_setup.slurm import job_states
from dshpc_setup.terminal.amounts import size
from dshpc_setup.terminal.command_names import as_called
from dshpc_setup.terminal.sanitize import counted, harmless

FOLDER = "dashboard"
_MOST_REPORTS = 100
_FLOW_S = 30.0  # how long its jobs have run changes by itself
_CODES = {
    Exit.USAGE: HTTPStatus.BAD_REQUEST,
    Exit.INCOMPLETE: HTTPStatus.SERVICE_UNAVAILABLE,
}


@dataclass(frozen=True)
class _Flow:
    """A workflow as it was told when the jobs were of that version."""

    version: int
    at: float
    told: dict[str, Any]


@dataclass(frozen=True)
class Site:
    """`browser`: the scripts that there are; without them pages refresh themselves."""

    source: Source
    board: Board
    access: Access
    browser: Browser = field(default_factory=lambda: Browser(Scripts((), ()), Scripts((), ())))
    _reports: dict[str, JobReport] = field(default_factory=dict, repr=False)
    _flows: dict[str, _Flow] = field(default_factory=dict, repr=False)

    @property
    def scripts(self) -> tuple[str, ...]:
        return self.browser.pages.names

    @cached_property
    def fixing(self) -> Fixing:
        return Fixing(self.source)

    @cached_property
    def terminals(self) -> Terminals:
        return Terminals(self.source.terminal)

    @cached_property
    def notebook(self) -> Notebook:
        return Notebook(self.source.notebook)

    @cached_property
    def _templates(self) -> jinja2.Environment:
        environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(resources.package() / FOLDER / "templates"),
            undefined=jinja2.StrictUndefined,
            autoescape=True,
            auto_reload=False,  # pages are those of the program that runs
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_shown,
        )
        environment.filters |= {
            "gib": lambda mib: "-" if mib is None else f"{mib / 1024:.1f}",
            "called": lambda text: as_called(str(text)),
            "counted": counted,
            "duration": view.duration,
            "clock": _clock,
            "outcome": outcome,
            "gpus": view.which,
            "part": lambda text: quote(str(text), safe="", errors="replace"),  # of an address
            "way": lambda path: quote(os.fsencode(path)),  # a file's name may be any bytes
            "hours": lambda seconds: f"{seconds / 3600:.2f}",
            "problems": in_words,
            "whole": lambda value: "-" if value is None else f"{value:.0f}",
            "size": size,
            "needs": description.needs,
            "shell": shlex.join,
        }
        return environment

    def prepare(self) -> None:
        """Read the templates, which takes longer than all else of a first page."""
        for name in self._templates.list_templates():
            self._templates.get_template(name)

    def fragment(self, name: str, **values: Any) -> str:
        return self._templates.get_template(name).render(site=self, time=time.time(), **values)

    def page(self, name: str, code: int = 200, **values: Any) -> HTMLResponse:
        return HTMLResponse(self.fragment(name, **values), code)

    def report(self, number: str, *, again: bool) -> JobReport:
        """What is told of a job; what it was made from stays the same, and does unless `again`."""
        if again or number not in self._reports:
            report = self.source.job(number)
            while len(self._reports) >= _MOST_REPORTS:
                self._reports.pop(next(iter(self._reports)), None)
            self._reports[number] = report
        return self._reports[number]

    def workflow(self, name: str) -> dict[str, Any]:
        """A `dshpc.workflow/1`, asked for again once any job is other than it was."""
        now, at = self.board.look().jobs.version, self.board.time()
        kept = self._flows.get(name)
        if kept is not None and kept.version == now and at - kept.at < _FLOW_S:
            return kept.told
        told = self.source.workflow(name)
        while len(self._flows) >= _MOST_REPORTS:
            self._flows.pop(next(iter(self._flows)), None)
        self._flows[name] = _Flow(now, at, told)
        return told

    def failed(self, error: DshpcError, code: int | None = None) -> HTMLResponse:
        """The error as a page; where it may pass by itself, the page looks again."""
        told = code or _code(error)
        again = told == HTTPStatus.SERVICE_UNAVAILABLE
        return self.page("error.html", told, error=error, here="", again=again)


def _shown(value: Any) -> Any:
    """Whatever a template prints: signs that turn the direction of letters, or command a terminal that it
    is copied into, become question marks. What is markup of ours has another type."""
    return harmless(value) if type(value) is str else value


def outcome(one: View) -> str:
    return view.outcome(one) if one.is_over else one.words


def _clock(at: float | None) -> Markup | str:
    """In this machine's zone; static/zone.js shows it in the viewer's."""
    if not at:
        return ""
    here = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    known = datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="seconds")
    return Markup('<time datetime="{}">{}</time>').format(known, here)


def _code(error: DshpcError) -> int:
    if error.absent:
        return HTTPStatus.NOT_FOUND
    return _CODES.get(Exit(error.exit_code), HTTPStatus.CONFLICT) if error.exit_code in list(
        Exit
    ) else HTTPStatus.CONFLICT  # fmt: skip


Handler = Callable[[Site, Request], Response]
FormHandler = Callable[[Site, Request, FormData], Response]


def get(path: str, handler: Handler, site: Site) -> Route:
    """A page: made in a thread, as it may ask; what it cannot be asked for is a page, too."""

    async def answer(request: Request) -> Response:
        try:
            return await in_thread(lambda: handler(site, request))
        except DshpcError as error:
            return _failed(site, request, error)

    return Route(path, answer, methods=["GET"], name=path)


def post(path: str, handler: FormHandler, site: Site) -> Route:
    """What a form of ours sends, or a program that has the token."""

    async def answer(request: Request) -> Response:
        async with request.form(max_files=20, max_fields=200) as form:
            given = form.get("csrf") or request.headers.get("x-csrf-token", "")
            known = isinstance(given, str) and site.access.is_csrf(given)
            if not (known or request.scope.get(BEARER)):
                raise HTTPException(403, "This form is not of this run: load the page again.")
            try:
                return await in_thread(lambda: handler(site, request, form))
            except DshpcError as error:
                return _failed(site, request, error)

    return Route(path, answer, methods=["POST"], name=f"POST {path}")


def _failed(site: Site, request: Request, error: DshpcError) -> Response:
    if request.url.path.startswith("/api/"):
        return JSONResponse(error.to_object(), _code(error))
    return site.failed(error)


def not_found(site: Site) -> dict[Any, Callable[[Request, Exception], Awaitable[Response]]]:
    """Pages for what goes wrong outside of the handlers."""

    async def told(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            return _coded(site, request, DshpcError(error.detail), error.status_code)
        defect = DshpcError(
            "A defect of dsHPC setup itself.",
            type(error).__name__,
            ("Start the dashboard with DSHPC_DEBUG=1, and report what it says.",),
        )
        return _coded(site, request, defect, 500)

    return {HTTPException: told, 500: told}


def _coded(site: Site, request: Request, error: DshpcError, code: int) -> Response:
    if request.url.path.startswith("/api/"):
        return JSONResponse(error.to_object(), code)
    return site.failed(error, code)


def job_id(request: Request) -> str:
    """Of the path; raises HTTPException (404) for what is none."""
    text = str(request.path_params["job"])
    try:
        return str(job_states.parse_id(text))
    except DshpcError:
        raise HTTPException(404, "There is no such job.") from None


def seen_other(path: str) -> RedirectResponse:
    """Where to look after something was done: a reload then does nothing again."""
    return RedirectResponse(path, 303)


def no_page() -> NoReturn:
    raise HTTPException(404, "There is no such page.")

"""Forms made from what methods declare, and from what a command can ask for."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import Response

from dshpc_setup.dashboard.site import Site, get, post, seen_other
from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.jobs.request_building import CommandLine
from dshpc_setup.methods.model import Method

_RESOURCES = ("gpus", "gpu_type", "gpu_memory", "cpus", "memory", "time", "partition")
_OF_PARAMETER = "p-"


def routes(site: Site) -> list[Any]:
    return [
        get("/run", run, site),
        get("/run/{name}", run_method, site),
        get("/notebook", notebook, site),
        post("/notebook", begin_notebook, site),
        post("/run", submit_command, site),
        post("/run/{name}", submit_method, site),
    ]


def run(site: Site, request: Request) -> Response:
    """The forms; with `from` that of a command as a job was started with it."""
    told = _before(site, request)
    return _command_page(site, _as_command(told) if told.get("kind") == "command" else {})


def _before(site: Site, request: Request) -> Mapping[str, Any]:
    """What the job was made from that `from` names; nothing where none is named, or that is not known."""
    number = request.query_params.get("from", "")
    return (site.source.job(number).request or {}) if _is_job(number) else {}


def _is_job(text: str) -> bool:
    return text.isascii() and text.replace("_", "").isdecimal() and len(text) <= 20


def _as_command(told: Mapping[str, Any]) -> dict[str, str]:
    argv, wants = told.get("argv"), told.get("resources")
    given = {"command": shlex.join(map(str, argv))} if isinstance(argv, list) else {}
    if not isinstance(wants, dict):
        return given
    for name, key, unit in (
        ("gpus", "gpus", ""),
        ("gpu_type", "gpu_type", ""),
        ("gpu_memory", "gpu_memory_mb", "M"),
        ("cpus", "cpus", ""),
        ("memory", "memory_mb", "M"),
        ("time", "time_limit", "m"),
    ):
        if wants.get(key):
            given[name] = f"{wants[key]}{unit}"
    return given


def _command_page(site: Site, given: Mapping[str, str], **more: Any) -> Response:
    values = {"error": None, "answer": None, "typed": "", **more}
    methods = site.source.methods()
    return site.page("run.html", here="run", methods=methods, method=None, given=given, **values)


def notebook(site: Site, request: Request) -> Response:
    return site.page("notebook.html", here="run", one=site.notebook)


def begin_notebook(site: Site, request: Request, form: FormData) -> Response:
    given = _resources(_texts(form))
    words = [f"--{name.replace('_', '-')}={text}" for name, text in given.items()]
    site.notebook.begin(["lab", "--no-browser", *words])
    return seen_other("/notebook")


def run_method(site: Site, request: Request) -> Response:
    """The form; with `from` as a job was started with it."""
    method = site.source.method(request.path_params["name"])
    sets = _before(site, request).get("parameters")
    first = sets[0] if isinstance(sets, list) and sets and isinstance(sets[0], dict) else {}
    given = {f"{_OF_PARAMETER}{name}": _as_given(value) for name, value in first.items()}
    return _method_page(site, method, given)


def _as_given(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)


def _method_page(site: Site, method: Method, given: Mapping[str, str], **more: Any) -> Response:
    values = {"error": None, "answer": None, "typed": "", **more}
    return site.page("run_method.html", here="run", method=method, given=given, **values)


def submit_method(site: Site, request: Request, form: FormData) -> Response:
    method = site.source.method(request.path_params["name"])
    given = _texts(form)
    parameters = tuple(
        f"{each.name}={given[_OF_PARAMETER + each.name]}"
        for each in method.parameters
        if given.get(_OF_PARAMETER + each.name)
    )
    with _inputs(form, given) as inputs:
        asked = CommandLine(method.name, parameters=parameters, inputs=inputs, **_resources(given))
        typed = _typed("dshpc method run " + shlex.quote(method.name), asked)
        try:
            return _done(site, form, asked) or _method_page(
                site, method, given, typed=typed, answer=_answer(site, asked)
            )
        except DshpcError as error:
            return _method_page(site, method, given, typed=typed, error=error)


def submit_command(site: Site, request: Request, form: FormData) -> Response:
    given = _texts(form)
    try:
        words = tuple(shlex.split(given.get("command", "")))
    except ValueError as error:
        wrong = usage_error("The command is not whole.", f"{error}.")
        return _command_page(site, given, error=wrong)
    with _inputs(form, given) as inputs:
        asked = CommandLine(given.get("name") or None, words, inputs=inputs, **_resources(given))
        typed = f"{_typed('dshpc run', asked)} -- {shlex.join(words)}"
        try:
            return _done(site, form, asked) or _command_page(
                site, given, typed=typed, answer=_answer(site, asked)
            )
        except DshpcError as error:
            return _command_page(site, given, typed=typed, error=error)


def _done(site: Site, form: FormData, asked: CommandLine) -> Response | None:
    """The job's page where it is to be submitted."""
    if form.get("act") != "submit":
        return None
    told = site.source.submit(asked)
    site.board.jobs.now.set()
    number = str(told["job_id"]).partition("_")[0]
    return seen_other(f"/jobs/{number}?said=submitted")


def _answer(site: Site, asked: CommandLine) -> dict[str, Any]:
    """Whether it could run, and the call that would be made."""
    from dataclasses import replace

    found: dict[str, Any] = {} if asked.command else site.source.check(asked)
    if found.get("can_run", True):
        told = site.source.submit(replace(asked, dry_run=True))
        notes = dict.fromkeys([*found.get("notes", ()), *told["notes"]])
        found = {**found, "sbatch": told["sbatch"], "notes": list(notes)}
    return found


def _texts(form: FormData) -> dict[str, str]:
    return {name: value for name, value in form.items() if isinstance(value, str)}


def _resources(given: Mapping[str, str]) -> dict[str, Any]:
    return {name: given[name].strip() for name in _RESOURCES if given.get(name, "").strip()}


@contextmanager
def _inputs(form: FormData, given: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """Paths of the inputs; what was uploaded lies in a folder that is gone afterwards: a submission copies
    it into the workspace."""
    paths = [line.strip() for line in given.get("paths", "").splitlines() if line.strip()]
    uploads = [each for each in form.getlist("upload") if isinstance(each, UploadFile)]
    with tempfile.TemporaryDirectory(prefix="dshpc-upload-") as folder:
        for each in uploads:
            if not each.filename:  # the field was left empty
                continue
            name = os.path.basename(each.filename.replace("\\", "/"))
            if name in ("", ".", "..") or "\0" in name:
                raise usage_error("A file that was uploaded has no usable name.")
            path = os.path.join(folder, name)
            if path in paths:
                raise usage_error("Two of the files that were uploaded have one name.")
            with open(path, "xb") as file:
                shutil.copyfileobj(each.file, file, 1 << 20)
            paths.append(path)
        yield tuple(paths)


def _typed(start: str, asked: CommandLine) -> str:
    """The command line that asks for the same."""
    words = [f"-p {shlex.quote(each)}" for each in asked.parameters]
    words += [f"--input {shlex.quote(os.path.basename(path))}" for path in asked.inputs]
    options = {"name": asked.name} if asked.command else {}
    options |= {name: getattr(asked, name) for name in _RESOURCES}
    words += [
        f"--{name.replace('_', '-')} {shlex.quote(value)}"
        for name, value in options.items()
        if value
    ]
    return " ".join([start, *words])

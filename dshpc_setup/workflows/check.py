"""A workflow's file -> a Workflow, or all that is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from dshpc_setup.documents.document import MOST_PROBLEMS, Document, Problem
from dshpc_setup.documents.shown import Path, path_text
from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.methods.model import Method
from dshpc_setup.methods.schema import NAME, Schema
from dshpc_setup.methods.structure import Wrong, differences
from dshpc_setup.terminal.sanitize import counted
from dshpc_setup.workflows import document, graph, requires
from dshpc_setup.workflows.keys import keys
from dshpc_setup.workflows.model import Job, Workflow
from dshpc_setup.workflows.place import Place as Place
from dshpc_setup.workflows.schema import (
    JOB,
    MOST_JOBS,
    NOT_OFFERED,
    NOTED,
    TOP,
    TOP_NOT_OFFERED,
)

Checked = tuple[Workflow | None, tuple[Problem, ...]]


@dataclass
class _Found:
    """What is wrong so far, and the methods that were looked up."""

    text: Document
    place: Place
    wrong: list[Wrong] = field(default_factory=list)
    methods: dict[str, Method | Wrong] = field(default_factory=dict)

    def add(self, wrong: Iterator[Wrong]) -> bool:
        """Whether nothing was wrong."""
        before = len(self.wrong)
        for each in wrong:
            if len(self.wrong) >= MOST_PROBLEMS:
                break
            self.wrong.append(each)
        return len(self.wrong) == before


def load(place: Place) -> Workflow:
    """The workflow of a file; raises DshpcError with all its problems."""
    found, problems = check(contents(place.file), place)
    if found is not None:
        return found
    count = len(problems)
    raise DshpcError(
        f"The workflow {place.file} has {counted(count, 'problem')}.",
        "\n".join(told(place.file, each) for each in problems),
        ("Correct that; nothing was submitted.",),
    )


def told(file: FilePath, each: Problem) -> str:
    """One line for people that begins with file:line."""
    where = "" if each.path == "$" else f"{each.path}: "
    return f"{file}:{each.line}: {where}{each.what} {each.right}"


def contents(file: FilePath) -> bytes:
    """The bytes of a regular file, a little more than one may have at most; raises DshpcError (64)."""
    from dshpc_setup.methods.check import contents as of_file
    from dshpc_setup.methods.check import may_be_there

    data = of_file(file)
    if isinstance(data, bytes):
        return data
    there = f"{file}: {data.what}"
    what = there if may_be_there(file) else f"There is no workflow file {file}."
    raise usage_error(what, "", "Name a file: dshpc workflow run FILE.yaml")


def check(data: bytes, place: Place) -> Checked:
    """As `load`, for the bytes of a file; never raises for what stands in them."""
    text = document.read(data)
    if not text.is_whole:
        return None, text.problems
    found = _Found(text, place)
    workflow = _workflow(found)
    problems = (*text.problems, *(_placed(each, text) for each in found.wrong))
    if problems:
        return None, tuple(sorted(problems, key=lambda each: each.line))[:MOST_PROBLEMS]
    return workflow, ()


def _placed(wrong: Wrong, text: Document) -> Problem:
    return Problem(path_text(wrong.path), text.line(wrong.path), wrong.what, wrong.right)


def name_of(data: bytes, file: FilePath) -> str:
    """The workflow's name, also of a file with problems elsewhere: its own word, else the file's."""
    value = document.read(data).value
    said = value.get("name") if isinstance(value, dict) else None
    if isinstance(said, str) and not list(differences(said, TOP["name"])):
        return said
    return file_name(file)


def file_name(file: FilePath) -> str:
    """The file's name without its ending, as a workflow can be called."""
    from dshpc_setup.jobs.workspace import plain

    return plain(file.stem).lstrip("._-") or "workflow"


def _workflow(found: _Found) -> Workflow | None:
    value = found.text.value
    found.add(keys(value, TOP, TOP_NOT_OFFERED, ()))
    if not isinstance(value, dict):
        return None
    for key in ("name", "description", "version"):
        if key in value:
            found.add(differences(value[key], TOP[key], (key,)))
    jobs = value.get("jobs")
    found.add(_names(jobs, "jobs" in value))
    if not isinstance(jobs, dict):
        return None
    made = {name: _job(name, given, found) for name, given in jobs.items()}
    needs = {name: [need.job for need in job.needs] for name, job in made.items() if job}
    found.add(requires.circles(needs))
    if found.wrong:
        return None
    whole = [made[name] for name in graph.order(needs)]
    return Workflow(
        name=value.get("name") or file_name(found.place.file),
        file=found.place.file,
        jobs=tuple(job for job in whole if job is not None),
        description=value.get("description") or "",
    )


def _names(jobs: Any, is_there: bool) -> Iterator[Wrong]:
    right = "Write jobs: and under it each job's name, with command: or method: under that."
    if not is_there:
        yield Wrong((), "The key jobs is missing.", right)
    elif not isinstance(jobs, dict) or not jobs:
        yield Wrong(("jobs",), "It holds no jobs.", right)
    elif len(jobs) > MOST_JOBS:
        yield Wrong(("jobs",), f"It holds {len(jobs)} jobs.", f"At most {MOST_JOBS} are possible.")
    else:
        form: Schema = {
            "description": "A name begins with a letter or digit, and has letters, digits and . _ - "
            "behind it, 64 at most.",
            "type": "string",
            "pattern": NAME,
            "examples": ["train-model"],
        }
        for name in jobs:
            yield from differences(name, form, ("jobs", name))


def _job(name: str, given: Any, found: _Found) -> Job | None:
    from dshpc_setup.workflows import job

    path: Path = ("jobs", name)
    good = found.add(keys(given, JOB, NOT_OFFERED, path, NOTED))
    if not isinstance(given, dict):
        return None
    good &= found.add(_one_of_both(given, path))
    wrong_keys = {
        key
        for key, part in given.items()
        if key in JOB
        and key != "resources"
        and not found.add(differences(part, JOB[key], (*path, key)))
    }
    good &= not wrong_keys
    needs, unclear = requires.read(name, given.get("requires"), list(found.text.value["jobs"]))
    found.add(iter(unclear))
    reader = job.Reader(found.text, found.place, path)
    method = None
    if good and "method" in given:
        method = _method(given["method"], found, (*path, "method"))
        good = method is not None
    resources = reader.resources(given.get("resources", {}), method)
    parts = reader.parts(given, method) if good else None
    if not good and "inputs" not in wrong_keys:
        reader.inputs(given)  # what is wrong with them is told all the same
    found.add(iter(reader.wrong))
    found.add(requires.results(method, needs, found.text.value["jobs"], path))
    if resources is None or parts is None:
        return Job(name, needs=needs)
    return Job(name=name, method=method, needs=needs, resources=resources, **parts)


def _one_of_both(given: dict[str, Any], path: Path) -> Iterator[Wrong]:
    both = "method" in given and "command" in given
    if both:
        yield Wrong((*path, "method"), "It has a method and a command.", "Keep one of the two.")
    elif "method" not in given and "command" not in given:
        yield Wrong(path, "It says not what to run.", "Write command: or method: under its name.")
    elif "method" in given and "args" in given:
        right = "Write the values under parameters:, by their names."
        yield Wrong((*path, "args"), "A method takes no words.", right)
    elif "command" in given and "parameters" in given:
        right = "Write them as words under args:."
        yield Wrong((*path, "parameters"), "A command takes no parameters.", right)


def _method(name: str, found: _Found, path: Path) -> Method | None:
    """The method, looked up once for all jobs; what is wrong with it is told once."""
    from dshpc_setup.methods import store

    if name not in found.methods:
        try:
            found.methods[name] = store.find(found.place.folders, name)
        except DshpcError as error:
            what = ". ".join(error.details.splitlines())
            what = f"{error.brief} {what}{'.' if what else ''}".strip()
            right = " ".join(error.resolution[:1])
            found.methods[name] = Wrong(path, what, right)
            found.add(iter([Wrong(path, what, right)]))
    method = found.methods[name]
    return method if isinstance(method, Method) else None

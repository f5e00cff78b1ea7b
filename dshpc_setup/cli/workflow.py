"""`dshpc workflow run|status|list|cancel|validate`: several jobs that wait for each other, from one file."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dshpc_setup.cli import exec as execution
from dshpc_setup.cli import exec_caller, print_json
from dshpc_setup.cli.command_line import HELP, Commands, Dir, Json, app, examples, finish
from dshpc_setup.cli.job_request import Cluster, UnansweredError, ask, cluster, environ
from dshpc_setup.errors import Exit, usage_error
from dshpc_setup.terminal.command_names import as_called
from dshpc_setup.terminal.sanitize import counted, harmless, plain

if TYPE_CHECKING:
    from dshpc_setup.workflows.check import Place
    from dshpc_setup.workflows.request_building import WorkflowRequest

workflow_app = Commands(
    help="Run and follow jobs that wait for each other.",
    no_args_is_help=True,
    context_settings=HELP,
)
app.add_typer(workflow_app, name="workflow", rich_help_panel="Methods and jobs")

CHECK = "dshpc.workflow-check/1"
_AFTER = {"COMPLETED": "succeeds", "FAILED": "fails", "FINISHED": "ends"}

_File = Annotated[Path, typer.Argument(metavar="FILE", help="The workflow's YAML file.")]
_Name = Annotated[str, typer.Argument(metavar="NAME|FILE", help="A workflow, by name or file.")]


@workflow_app.callback()
def workflow() -> None:
    """Run and follow jobs that wait for each other."""


@workflow_app.command(
    "run",
    epilog=examples(
        "dshpc workflow run steps.yaml --wait", "dshpc workflow run steps.yaml --dry-run"
    ),
)
def workflow_run(
    file: _File,
    *,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait until it ends; exit code 0 if all jobs succeed, else 1."),
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Run also what succeeded and has not changed.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the sbatch calls, and submit nothing.")
    ] = False,
    json_output: Json = False,
    dir: Dir = None,  # noqa: A002
) -> None:
    """Submit all jobs of a file; what succeeded before and has not changed is not run again."""
    if wait and dry_run:
        raise usage_error(
            "--wait and --dry-run exclude each other.",
            "A dry run submits nothing, so that there is nothing to wait for.",
            "Leave one of the two out.",
        )
    if wait and json_output:
        raise usage_error(
            "--wait and --json exclude each other.", "",
            "How it goes, as JSON: dshpc workflow status NAME --json",
        )  # fmt: skip
    here = cluster(dir)
    asked, answer = _submitted(file, here, again=again, dry=dry_run)
    if json_output:
        print_json(answer)
    else:
        lines = _dry_lines(answer) if dry_run else _lines(answer)
        print("\n".join(map(as_called, lines)), file=sys.stderr if wait else sys.stdout, flush=True)
    finish(_watch(here.runtime, asked) if wait else int(answer["exit_code"]))


@workflow_app.command("status", epilog=examples("dshpc workflow status steps"))
def workflow_status(name: _Name, *, json_output: Json = False, dir: Dir = None) -> None:  # noqa: A002
    """Show each job of a workflow: its state, why it waits, GPUs, time, exit code."""
    answer = _ask("status", name, dir)
    lines = answer.pop("lines")
    if json_output:
        print_json(answer)
    else:
        print("\n".join(map(as_called, lines)))
    finish(int(answer["exit_code"]))


@workflow_app.command("list")
def workflow_list(*, json_output: Json = False, dir: Dir = None) -> None:  # noqa: A002
    """List the workflows that you have run, the last one first."""
    from dshpc_setup.workflows.request_building import WorkflowRequest

    here = cluster(dir)
    answer = ask(here.runtime, "workflow", WorkflowRequest("list", "", here.work))
    if json_output:
        print_json(answer)
    else:
        print("\n".join(_listed(answer["workflows"]) or ["No workflow has been run yet."]))
    finish(int(answer["exit_code"]))


def _listed(rows: list[dict[str, Any]]) -> list[str]:
    from dshpc_setup.jobs import clock

    width = max((len(plain(row["name"])) for row in rows), default=0)
    return [
        f"{plain(row['name']).ljust(width)}  {clock.told(row['submitted'])}  "
        f"{counted(row['jobs'], 'job')}  {plain(row['file'])}"
        for row in rows
    ]


@workflow_app.command("cancel", epilog=examples("dshpc workflow cancel steps"))
def workflow_cancel(name: _Name, *, json_output: Json = False, dir: Dir = None) -> None:  # noqa: A002
    """Cancel the jobs of a workflow that have not ended."""
    answer = _ask("cancel", name, dir)
    if json_output:
        print_json(answer)
    elif answer["jobs"]:
        jobs = ", ".join(f"{each['name']} (job {each['job_id']})" for each in answer["jobs"])
        print(harmless(f"Cancelled: {jobs}."))
    else:
        print(harmless(f"All jobs of {answer['name']} were over already."))
    finish(int(answer["exit_code"]))


@workflow_app.command("validate", epilog=examples("dshpc workflow validate steps.yaml"))
def workflow_validate(file: _File, *, json_output: Json = False, dir: Dir = None) -> None:  # noqa: A002
    """Report all that is wrong with a workflow's file, with its line and what would be right."""
    from dshpc_setup.workflows import check

    place = _place(file, dir)
    found, problems = check.check(check.contents(place.file), place)
    code = Exit.OK if found is not None else Exit.ERROR
    notes = [f"{job.name}: {note}" for job in (found.jobs if found else ()) for note in job.notes]
    if json_output:
        value = {"file": str(file), "valid": found is not None}
        problem_list = [asdict(each) for each in problems]
        print_json({"schema": CHECK, "exit_code": int(code), **value, "problems": problem_list,
                    "notes": notes})  # fmt: skip
    else:
        lines = [check.told(file, each) for each in problems]
        print("\n".join(map(as_called, lines or [f"{file}: valid", *notes])))
    finish(code)


def _place(file: Path, folder: Path | None) -> Place:
    """Without a cluster, too: what it will see is not known then."""
    from dshpc_setup.errors import DshpcError
    from dshpc_setup.methods import store
    from dshpc_setup.workflows.check import Place

    project = Path(execution.project_folder(environ(folder)))
    try:
        work: str | None = cluster(folder).work
    except DshpcError:
        work = None
    return Place(file.absolute(), store.folders(project), work)


def _submitted(
    file: Path, here: Cluster, *, again: bool, dry: bool
) -> tuple[WorkflowRequest, dict[str, Any]]:
    from dshpc_setup.methods import store
    from dshpc_setup.workflows import check, fingerprint, request_building

    where = request_building.Where(
        here.project, here.work, here.owner, here.prepare, here.also, here.runtime,
        lambda: ask(
            here.runtime, "workflow", request_building.WorkflowRequest("list", "", here.work)
        ),
    )  # fmt: skip
    folders = store.folders(Path(where.project))
    found = check.load(check.Place(file.absolute(), folders, where.work))
    prints = fingerprint.prints(found)
    asked, copies = request_building.run(
        found, prints, where, request_building.BuildOptions(again, dry=True)
    )
    if not dry:
        only = None
        if any(map(request_building.needs_copies, copies)) and not again:
            # What is not run again needs no copies, however large its inputs are
            only = request_building.submitted(ask(here.runtime, "workflow", asked))
        asked, copies = request_building.run(
            found, prints, where, request_building.BuildOptions(again, only=only)
        )
    try:
        answer = ask(here.runtime, "workflow", asked)
    except UnansweredError:
        raise  # what may still be at work reads the copies
    except BaseException:
        request_building.remove(copies)
        raise
    request_building.remove(copies)
    return asked, answer


def _ask(verb: str, name: str, folder: Path | None) -> dict[str, Any]:
    from dshpc_setup.workflows.request_building import WorkflowRequest

    here = cluster(folder)
    return ask(here.runtime, "workflow", WorkflowRequest(verb, _name(name), here.work))


def _name(text: str) -> str:
    """The name itself, or that of the workflow in a file."""
    from dshpc_setup.methods.structure import differences
    from dshpc_setup.workflows import check
    from dshpc_setup.workflows.schema import TOP

    file = Path(text)
    if "/" in text or text.endswith((".yaml", ".yml")):
        return check.name_of(check.contents(file), file)
    if list(differences(text, TOP["name"])):
        raise usage_error(f"{text!r} is no workflow's name.", "", "Name it, or its file.")
    return text


def _watch(runtime: dict[str, Any], asked: WorkflowRequest) -> int:
    """Its progress, one line for each change; a signal ends the watching, and the workflow goes on."""
    words = ["job", "workflow", "follow", asked.name, "--work", asked.work]
    call = execution.Call(execution.NODE, words, runtime)
    call.more = exec_caller.for_people(os.environ)
    code = execution.run(call)
    execution.say_unwatched(
        call,
        code,
        f"the workflow {asked.name}",
        f"Show its state: dshpc workflow status {asked.name}",
        f"End it: dshpc workflow cancel {asked.name}",
    )
    return code


def _lines(answer: dict[str, Any]) -> list[str]:
    name = answer["name"]
    new = [each for each in answer["jobs"] if each["action"] == "submitted"]
    first = f"The workflow {name} is submitted: {len(new)} of {len(answer['jobs'])} jobs."
    if not new:
        first = f"The workflow {name} has nothing to do: --again runs all of it."
    lines = [first, *(f"  {note}" for note in answer["notes"])]
    for each in answer["jobs"]:
        lines.append(f"  {each['name']}: {_line(each)}")
        lines += [f"    {note}" for note in each["notes"]]
    return [*lines, f"  See how it is: dshpc workflow status {name}"]


def _line(each: dict[str, Any]) -> str:
    if each["action"] != "submitted":
        return str(each["why"])
    parts = [f"job {each['job_id']}" if each["job_id"] else "would be submitted"]
    if gpus := each["gpus"]:
        parts.append(f"{counted(gpus['count'], 'GPU')} {gpus['type']}")
    parts += [f"after {job} {_AFTER[ending]}" for job, ending in each["needs"]]
    return ", ".join(parts) + (f" ({each['why']})" if each["why"] else "")


def _dry_lines(answer: dict[str, Any]) -> list[str]:
    lines = [*answer["notes"], "Nothing was submitted. The calls would be:"]
    for each in answer["jobs"]:
        lines.append(f"{each['name']}: {_line(each)}")
        lines += [f"  {note}" for note in each["notes"]]
        if each["sbatch"]:
            lines.append(f"  {shlex.join(each['sbatch'])}")
    return lines

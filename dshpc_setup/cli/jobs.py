"""`dshpc job list|show|logs|cancel|clean`: jobs, running, queued and ended."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dshpc_setup.cli import job_line
from dshpc_setup.cli.command_line import (
    HELP,
    Commands,
    Dir,
    Json,
    Yes,
    app,
    examples,
    finish,
    reporter,
)
from dshpc_setup.cli.options import NoMachine

job_app = Commands(help="List, show and cancel jobs.", no_args_is_help=True, context_settings=HELP)
app.add_typer(job_app, name="job", rich_help_panel="Methods and jobs")

Id = Annotated[str, typer.Argument(metavar="ID", help="Job ID, such as 17 or 17_2.")]
Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Job IDs, such as 17 or 17_2.")]
All = Annotated[bool, typer.Option("--all", help="Show also what ended longer ago.")]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Follow the log until the job ends.")]
OlderThan = Annotated[
    str | None,
    typer.Option(
        "--older-than",
        metavar="TIME",
        help="Only of jobs that ended at least this long ago: 7d, 12h, 90m, 0 (default: clean_after, "
        "30d).",
    ),
]
Lost = Annotated[
    bool,
    typer.Option(
        "--lost", help="Offer also jobs of which nothing says that they ended: see the docs."
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be removed; remove nothing.")
]
Task = Annotated[
    int | None, typer.Option("--task", metavar="N", min=0, help="Show this task of an array.")
]


@job_app.callback()
def job() -> None:
    """List, show and cancel jobs."""


@job_app.command("list", epilog=examples("dshpc job list --all"))
def job_list(
    *,
    all_jobs: All = False,
    dir: Dir = None,  # noqa: A002
    json_output: Json = False,
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """List jobs that run, are queued, or ended lately: state, why, GPUs, time, exit code, largest process."""
    switches = [*(["--all"] if all_jobs else []), *(["--json"] if json_output else [])]
    _ask(["list", *switches], dir)


@job_app.command("show", epilog=examples("dshpc job show 17"))
def job_show(
    job_id: Id,
    *,
    dir: Dir = None,  # noqa: A002
    json_output: Json = False,
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """Show all that is known of one job, also of one that ended long ago."""
    _ask(["show", job_id, *(["--json"] if json_output else [])], dir)


@job_app.command("logs", epilog=examples("dshpc job logs 17 -f", "dshpc job logs 17 --task 2"))
def job_logs(
    job_id: Id,
    *,
    follow: Follow = False,
    task: Task = None,
    dir: Dir = None,  # noqa: A002
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """Show what a job has printed; with -f until it ends, and then with its exit code."""
    options = [] if task is None else ["--task", str(task)]
    _ask(["logs", job_id, *options, *(["-f"] if follow else [])], dir)


@job_app.command("cancel", epilog=examples("dshpc job cancel 17 18_2"))
def job_cancel(
    job_ids: Ids,
    *,
    dir: Dir = None,  # noqa: A002
    json_output: Json = False,
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """Cancel jobs of yours, queued or running. One that has ended already stays as it is."""
    _ask(["cancel", *job_ids, *(["--json"] if json_output else [])], dir)


@job_app.command(
    "clean", epilog=examples("dshpc job clean --dry-run", "dshpc job clean --older-than 7d")
)
def job_clean(
    *,
    older_than: OlderThan = None,
    lost: Lost = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    dir: Dir = None,  # noqa: A002
    json_output: Json = False,
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """Remove your workspaces of jobs that have ended, with their results and logs, after asking."""
    from dshpc_setup.cli.cleaning import Line, carry_out

    line = Line(dir, older_than, lost, dry_run, json_output)
    finish(carry_out(line, reporter(yes)))


def _ask(words: list[str], folder: Path | None) -> None:
    finish(job_line.ask(words, None if folder is None else str(folder)))

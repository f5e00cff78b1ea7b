"""`dshpc backup` and `dshpc restore`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dshpc_setup.cli import print_json
from dshpc_setup.cli.command_line import (
    Dir,
    Json,
    StopJobs,
    Yes,
    app,
    examples,
    finish,
    machine_of,
    needed_project,
    reporter,
    show_status,
)
from dshpc_setup.cli.options import NoMachine
from dshpc_setup.errors import Exit


@app.command(
    "backup", rich_help_panel="Run", epilog=examples("dshpc backup ~/cluster-$(date +%F).tar.gz")
)
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file: NAME.tar.gz.")],
    *,
    dir: Dir = None,  # noqa: A002
    yes: Yes = False,
    json_output: Json = False,
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """Save queue, users, keys, accounting and records of use in a file; jobs keep running."""
    from dshpc_setup.cluster.backup import save
    from dshpc_setup.terminal.amounts import size

    project = needed_project(dir)
    saved = save(machine_of(project), project, file.expanduser().absolute(), reporter(yes))
    if json_output:
        print_json(saved.to_json())
    else:
        print(
            f"{saved.container} is saved in {file}: {size(saved.size)}. It holds the cluster's keys: "
            "keep it as safe as a password. Homes and the work folder are not in it."
        )
    finish(Exit.OK)


@app.command("restore", rich_help_panel="Run", epilog=examples("dshpc restore cluster.tar.gz"))
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that dshpc backup made.")],
    *,
    dir: Dir = None,  # noqa: A002
    stop_jobs: StopJobs = False,
    yes: Yes = False,
    json_output: Json = False,
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """Replace the cluster's state with a backup, and restart the cluster."""
    from dshpc_setup.cluster.backup import restore

    project = needed_project(dir)
    path = file.expanduser().absolute()
    now = restore(machine_of(project), project, path, reporter(yes), stop_jobs=stop_jobs)
    show_status(now, json_output, changed=True)

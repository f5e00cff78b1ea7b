"""The commands that set up and take down: configure, destroy."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from dshpc_setup.cli.command_line import (
    Dir,
    Json,
    StopJobs,
    Version,
    WhenIdle,
    Yes,
    app,
    finish,
    machine_of,
    needed_project,
    reporter,
)
from dshpc_setup.cli.options import NoMachine, with_settings
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.terminal.command_names import as_called


@app.command("configure", rich_help_panel="Set up")
@with_settings
def configure(
    *,
    yes: Yes = False,
    json_output: Json = False,
    dir: Dir = None,  # noqa: A002 -- the option's name
    settings: Annotated[
        Path | None,
        typer.Option("--settings", metavar="FILE", help="Settings file instead of DIR/dshpc.yaml."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done; change nothing.")
    ] = False,
    diff: Annotated[
        bool,
        typer.Option(
            "--diff", help="Show how files would differ from what is there; change nothing."
        ),
    ] = False,
    no_build: Annotated[
        bool, typer.Option("--no-build", help="Use the image that is there.")
    ] = False,
    renew: Annotated[
        bool, typer.Option("--renew", help="Build the image from Debian's packages of today.")
    ] = False,
    image_file: Annotated[
        Path | None,
        typer.Option(
            "--image-file",
            metavar="FILE",
            help="The image, as dshpc image save wrote it on another machine.",
        ),
    ] = None,
    no_start: Annotated[bool, typer.Option("--no-start", help="Do not start the cluster.")] = False,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over", help="Replace a cluster of this name that belongs to another folder."
        ),
    ] = False,
    stop_jobs: StopJobs = False,
    when_idle: WhenIdle = False,
    machine: Annotated[
        Path | None,
        typer.Option(
            "--machine",
            metavar="DIR",
            help="Show what would be done on the machine recorded in DIR.",
        ),
    ] = None,
    join: Annotated[
        str | None,
        typer.Option(
            "--join",
            metavar="TOKEN",
            help="Make this machine a node of the cluster elsewhere that gave the token (dshpc node token).",
        ),
    ] = None,
    node_name: Annotated[
        str | None,
        typer.Option(
            "--node-name",
            metavar="NAME",
            help="With --join: what the node is called (default: this machine's host name).",
        ),
    ] = None,
    version: Version = False,  # noqa: ARG001 -- its callback has said it
    flags: dict[str, str | None],
) -> None:
    """Set up Slurm on this machine: probe, configure, build, start, and prove it with a job."""
    from dshpc_setup.cli import configure_line

    line = configure_line.Line(
        yes,
        json_output,
        dir,
        settings,
        dry_run,
        diff,
        no_build,
        renew,
        image_file,
        no_start,
        take_over,
        stop_jobs,
        when_idle,
        machine,
        flags,
        join,
        node_name,
    )
    configure_line.run(line, finish)


@app.command("destroy", rich_help_panel="Set up")
def destroy(
    *,
    dir: Dir = None,  # noqa: A002
    yes: Yes = False,
    image: Annotated[
        bool, typer.Option("--image", help="The images built for this cluster as well.")
    ] = False,
    prefix: Annotated[
        str | None,
        typer.Option(
            "--prefix", metavar="NAME", help="Another cluster that was set up in the folder."
        ),
    ] = None,
    stop_jobs: StopJobs = False,
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """Remove the cluster: container, network, queue, users, homes and key. Your files stay."""
    from dshpc_setup.cluster.destroy import destroy as destroy_cluster

    project = needed_project(dir)
    gone = destroy_cluster(
        machine_of(project),
        project,
        reporter(yes),
        image=image,
        prefix=prefix,
        stop_jobs=stop_jobs,
    )
    if prefix is None or prefix == project.runtime().get("prefix"):
        from dshpc_setup.join import giving
        from dshpc_setup.project import known

        giving.end(project)
        with suppress(DshpcError):  # where nothing can be written, nothing was
            known.forget(str(project.folder), os.environ)
    print(f"Removed: {', '.join(gone.removed)}" if gone.removed else "There was nothing to remove.")
    for text in gone.left:
        print(as_called(f"Not removed: {text}"))
    for text in gone.notes:
        print(as_called(text))
    finish(Exit.WARNING if gone.left else Exit.OK)

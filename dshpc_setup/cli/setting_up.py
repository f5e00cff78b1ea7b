"""The commands that set up and take down: configure, destroy."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from dshpc_setup.cli import interrupt_code, print_json
from dshpc_setup.cli.command_line import (
    Dir,
    Json,
    StopJobs,
    Version,
    Yes,
    app,
    finish,
    machine_of,
    needed_project,
    reporter,
)
from dshpc_setup.cli.console import ConsoleReporter, is_interactive
from dshpc_setup.cli.options import NoMachine, with_settings
from dshpc_setup.errors import Exit, usage_error
from dshpc_setup.terminal.command_names import as_called, print_error


@app.command("configure", rich_help_panel="Set up")
@with_settings
def configure(
    *,
    flags: dict[str, str | None],
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
            help="With --engine builtin: the image, as dshpc image save wrote it on another machine.",
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
    machine: Annotated[
        Path | None,
        typer.Option(
            "--machine",
            metavar="DIR",
            help="Show what would be done on the machine recorded in DIR.",
        ),
    ] = None,
    version: Version = False,  # noqa: ARG001 -- its callback has said it
) -> None:
    """Set up Slurm on this machine: probe, configure, build, start, and prove it with a job."""
    from dshpc_setup import __version__
    from dshpc_setup.cli.configure import configure_here

    if renew and no_build:
        raise usage_error("--renew builds the image, and --no-build does not.", "", "Name one.")
    reporter = ConsoleReporter(to_stderr=json_output, yes=yes, interactive=is_interactive())
    report = configure_here(
        reporter,
        greeting=f"dsHPC setup {__version__}",
        folder=dir,
        flags=flags,
        settings_file=settings,
        dry_run=dry_run or diff,
        build=not no_build,
        renew=renew,
        image_file=image_file,
        start=not no_start,
        take_over=take_over,
        stop_jobs=stop_jobs,
        interactive=is_interactive(),
        recorded=machine,
    )
    dry_run = dry_run or diff or machine is not None
    if report.error and report.error.exit_code == Exit.INTERRUPTED:
        report.error.exit_code = interrupt_code()
    finish(report.exit_code)  # before it is told: Ctrl-C from here on changes nothing of it
    if json_output:
        print_json(report.to_json())
    from dshpc_setup.cli.configure import print_diff, print_result

    if diff:
        print_diff(report, sys.stderr if json_output else sys.stdout)
    if report.error:
        print_error(report.error, "configure-environment")
    elif not json_output:
        print_result(report, dir, dry_run=dry_run, started=not no_start, diff=diff)


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
    print(f"Removed: {', '.join(gone.removed)}" if gone.removed else "There was nothing to remove.")
    for text in gone.left:
        print(as_called(f"Not removed: {text}"))
    for text in gone.notes:
        print(as_called(text))
    finish(Exit.WARNING if gone.left else Exit.OK)

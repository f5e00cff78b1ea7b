"""`dshpc lab`: JupyterLab on the cluster's GPUs, in a browser of this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from dshpc_setup.cli.command_line import app, examples, finish
from dshpc_setup.cli.ssh_proxy import LINGER
from dshpc_setup.jobs.request_building import CommandLine

_FROM = "Resources"


def _resource(name: str, metavar: str, text: str) -> object:
    return typer.Option(name, metavar=metavar, help=text, rich_help_panel=_FROM)


@app.command(
    "lab",
    rich_help_panel="Methods and jobs",
    epilog=examples(
        "dshpc lab",
        "dshpc lab --gpus 2 --gpu-type h100 --time 4h",
        "dshpc lab --env . --no-browser",
        "dshpc lab --attach",
    ),
)
def lab(
    *,
    attach: Annotated[
        bool, typer.Option("--attach", help="Show the running one; do not start another.")
    ] = False,
    env: Annotated[
        str | None,
        typer.Option(
            "--env",
            metavar="FOLDER",
            help="Run notebooks with the packages that a folder declares.",
        ),
    ] = None,
    gpus: Annotated[
        str | None, _resource("--gpus", "N", "How many GPUs (default: one, where there are some).")
    ] = None,
    gpu_type: Annotated[str | None, _resource("--gpu-type", "TYPE", "Which GPUs.")] = None,
    gpu_memory: Annotated[
        str | None, _resource("--gpu-memory", "SIZE", "Least memory of each GPU: 8GB.")
    ] = None,
    cpus: Annotated[str | None, _resource("--cpus", "N", "CPUs; 0 is all of them.")] = None,
    memory: Annotated[str | None, _resource("--memory", "SIZE", "Memory: 16G, 4096M.")] = None,
    time: Annotated[
        str | None, _resource("--time", "TIME", "Time limit: 30m, 2h (default: 8h).")
    ] = None,
    partition: Annotated[str | None, _resource("--partition", "NAME", "Slurm's partition.")] = None,
    linger: Annotated[
        str,
        typer.Option(
            "--linger", metavar="TIME", help="End it this long after its last use: 15m, 2h."
        ),
    ] = LINGER,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address, and open no browser.")
    ] = False,
    dir: Annotated[  # noqa: A002
        str | None,
        typer.Option("--dir", metavar="DIR", help="Project folder (default: the current one)."),
    ] = None,
) -> None:
    """Start JupyterLab in a job, or show the one that runs, and print its address."""
    from dshpc_setup.cli import lab as stage

    asked = CommandLine(
        gpus=gpus, gpu_type=gpu_type, gpu_memory=gpu_memory, cpus=cpus, memory=memory, time=time,
        partition=partition,
    )  # fmt: skip
    finish(stage.carry_out(stage.Line(asked, dir, linger, env, attach, not no_browser)))

"""`dshpc lab` and `dshpc code`: JupyterLab and VS Code on the cluster's GPUs, in a browser here."""

from __future__ import annotations

from typing import Annotated

import typer

from dshpc_setup.cli.command_line import app, examples, finish
from dshpc_setup.cli.ssh_proxy import LINGER
from dshpc_setup.jobs.request_building import CommandLine

_FROM = "Resources"


def _resource(name: str, metavar: str, text: str) -> object:
    return typer.Option(name, metavar=metavar, help=text, rich_help_panel=_FROM)


_Attach = Annotated[
    bool, typer.Option("--attach", help="Show the running one; do not start another.")
]
_Gpus = Annotated[
    str | None, _resource("--gpus", "N", "How many GPUs (default: one, where there are some).")
]
_GpuType = Annotated[str | None, _resource("--gpu-type", "TYPE", "Which GPUs.")]
_GpuMemory = Annotated[
    str | None, _resource("--gpu-memory", "SIZE", "Least memory of each GPU: 8GB.")
]
_Cpus = Annotated[str | None, _resource("--cpus", "N", "CPUs; 0 is all of them.")]
_Memory = Annotated[str | None, _resource("--memory", "SIZE", "Memory: 16G, 4096M.")]
_Time = Annotated[str | None, _resource("--time", "TIME", "Time limit: 30m, 2h (default: 8h).")]
_Partition = Annotated[str | None, _resource("--partition", "NAME", "Slurm's partition.")]
_Linger = Annotated[
    str,
    typer.Option("--linger", metavar="TIME", help="End it this long after its last use: 15m, 2h."),
]
_NoBrowser = Annotated[
    bool, typer.Option("--no-browser", help="Print the address, and open no browser.")
]
_Dir = Annotated[
    str | None,
    typer.Option("--dir", metavar="DIR", help="Project folder (default: the current one)."),
]


_Env = Annotated[
    str | None,
    typer.Option("--env", metavar="FOLDER", help="Add the packages that a folder declares."),
]


def _server(name: str, about: str) -> None:
    """A command that starts the server of that name."""

    @app.command(
        name,
        help=about,
        rich_help_panel="Methods and jobs",
        epilog=examples(
            f"dshpc {name}",
            f"dshpc {name} --gpus 2 --gpu-type h100 --time 4h",
            f"dshpc {name} --env . --no-browser",
            f"dshpc {name} --attach",
        ),
    )
    def start(
        *,
        attach: _Attach = False,
        env: _Env = None,
        gpus: _Gpus = None,
        gpu_type: _GpuType = None,
        gpu_memory: _GpuMemory = None,
        cpus: _Cpus = None,
        memory: _Memory = None,
        time: _Time = None,
        partition: _Partition = None,
        linger: _Linger = LINGER,
        no_browser: _NoBrowser = False,
        dir: _Dir = None,  # noqa: A002
    ) -> None:
        from dshpc_setup.cli import job_server as stage

        asked = CommandLine(
            gpus=gpus, gpu_type=gpu_type, gpu_memory=gpu_memory, cpus=cpus, memory=memory, time=time,
            partition=partition,
        )  # fmt: skip
        line = stage.Line(stage.SERVERS[name], asked, dir, linger, env, attach, not no_browser)
        finish(stage.carry_out(line))


_server("lab", "Start JupyterLab in a job, or show the one that runs, and print its address.")
_server(
    "code",
    "Start VS Code (code-server) in a job, or show the one that runs, and print its address.",
)

"""`dshpc method run|check` and `dshpc run`: jobs are asked for here."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from dshpc_setup.cli.command_line import Json, app, examples, finish
from dshpc_setup.cli.method import method_app
from dshpc_setup.cli.options import gathered
from dshpc_setup.cli.submission import OTHER_NAMES, Line, carry_out
from dshpc_setup.cli.submission import cpus as all_cpus
from dshpc_setup.jobs.request_building import CommandLine

_FROM = "Resources"  # the options' panel

_Name = Annotated[str, typer.Argument(metavar="NAME|PATH", help="The method, or its folder.")]
# click looks each name up there first
_UNDERSTOOD = {"token_normalize_func": lambda name: OTHER_NAMES.get(name, name)}
_Dir = Annotated[
    str | None,
    typer.Option("--dir", metavar="DIR", help="Project folder (default: the current one)."),
]
_Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input", metavar="FILE", help="Input file or folder; repeat for more. Copied if need be."
    ),
]
_Wait = Annotated[
    bool, typer.Option("--wait", help="Wait until it ends, and exit with its exit code.")
]
_Dry = Annotated[bool, typer.Option("--dry-run", help="Show the sbatch call, and submit nothing.")]


def _resource(name: str, metavar: str, text: str) -> Any:
    return typer.Option(name, metavar=metavar or None, help=text, rich_help_panel=_FROM)


_OF_RESOURCES = {
    "gpus": _resource("--gpus", "N", "How many GPUs."),
    "gpu_type": _resource(
        "--gpu-type", "TYPE", "Which: a model, a vendor, a MIG profile (h100, amd, 1g.10gb)."
    ),
    "gpu_memory": _resource("--gpu-memory", "SIZE", "Least memory of each GPU: 8GB, 4096M."),
    "cpus": _resource("--cpus", "N", "CPUs of each task; 0 is all of them."),
    "max_cpu": typer.Option("--max-cpu", hidden=True),
    "memory": _resource("--memory", "SIZE", "Memory: 16G, 4096M."),
    "time": _resource("--time", "TIME", "Time limit: 30m, 2h, 1-12:00:00."),
    "shards": _resource("--shards", "N", "Shares of one GPU, where GPUs are shared."),
    "nodes": _resource("--nodes", "N", "Nodes; each has the GPUs that are asked for."),
    "partition": _resource("--partition", "NAME", "Slurm's partition (default: the cluster's)."),
}
_with_resources = gathered(
    "resources",
    [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[str | None, option],
        )
        for name, option in _OF_RESOURCES.items()
    ],
)
_Target = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        "-t",
        metavar="NODE[::GPUS]",
        help="Particular GPUs, by index or UUID: NODE::0,2; repeat for a job on others.",
        rich_help_panel=_FROM,
    ),
]
_NoWait = Annotated[
    bool, _resource("--no-wait", "", "Refuse the job if it cannot start at once; queue nothing.")
]


def _asked(resources: Mapping[str, str | None]) -> dict[str, Any]:
    """As fields of `CommandLine`."""
    own = {name: value for name, value in resources.items() if name != "max_cpu"}
    return {**own, "cpus": all_cpus(resources["cpus"], resources["max_cpu"])}


@method_app.command(
    "run",
    context_settings=_UNDERSTOOD,
    epilog=examples(
        "dshpc method run train -p epochs=3 --input data.csv --wait",
        "dshpc method run train --array sets.csv",
        "dshpc method run train --gpu-memory 40GB --dry-run",
    ),
)
@_with_resources
def method_run(
    name: _Name,
    *,
    param: Annotated[
        list[str] | None,
        typer.Option(
            "-p", "--param", metavar="KEY=VALUE", help="Set a parameter; repeat for more."
        ),
    ] = None,
    input: _Inputs = None,  # noqa: A002
    array: Annotated[
        str | None,
        typer.Option("--array", metavar="FILE", help="Many parameter sets: JSON, JSON lines, CSV."),
    ] = None,
    wait: _Wait = False,
    dry_run: _Dry = False,
    resources: Mapping[str, str | None],
    target: _Target = None,
    no_wait: _NoWait = False,
    json_output: Json = False,
    dir: _Dir = None,  # noqa: A002
) -> None:
    """Submit a method as a job, or with many parameter sets as a job array."""
    asked = CommandLine(
        name, parameters=tuple(param or ()), inputs=tuple(input or ()), array=array,
        targets=tuple(target or ()), dry_run=dry_run, no_wait=no_wait, **_asked(resources),
    )  # fmt: skip
    finish(carry_out(Line("method run", asked, dir, wait, json_output)))


@method_app.command(
    "check",
    context_settings=_UNDERSTOOD,
    epilog=examples(
        "dshpc method check train", "dshpc method check train --gpus 2 --gpu-type h100"
    ),
)
@_with_resources
def method_check(
    name: _Name,
    *,
    resources: Mapping[str, str | None],
    json_output: Json = False,
    dir: _Dir = None,  # noqa: A002
) -> None:
    """Check whether a method can run here: on what and when, or why not. Exit code 2 is no."""
    asked = CommandLine(name, **_asked(resources))
    finish(carry_out(Line("method check", asked, dir, json=json_output)))


@app.command(
    "run",
    rich_help_panel="Methods and jobs",
    context_settings={"allow_interspersed_args": False, **_UNDERSTOOD},
    epilog=examples(
        "dshpc run --gpus 1 --wait -- python3 train.py --epochs 3",
        "dshpc run --gpu-memory 40GB --memory 16G --time 2h -- python3 train.py",
        "dshpc run --env . --wait -- python train.py",
        "dshpc run --image pytorch.tar --gpus 1 --wait -- python3 train.py",
        "dshpc run --input data.csv -- sh -c 'wc -l < \"$INPUT_FILE\"'",
    ),
)
@_with_resources
def run(
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND [ARGUMENT]...", help="The command to run.")
    ],
    *,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="The job's (default: the program's)."),
    ] = None,
    env: Annotated[
        str | None,
        typer.Option(
            "--env", metavar="FOLDER", help="Run it with the packages that a folder declares."
        ),
    ] = None,
    image: Annotated[
        str | None,
        typer.Option(
            "--image",
            metavar="FILE|NAME",
            help="Run it in an image: an OCI or Docker archive, a SIF, a name that the engine has.",
        ),
    ] = None,
    input: _Inputs = None,  # noqa: A002
    wait: _Wait = False,
    dry_run: _Dry = False,
    resources: Mapping[str, str | None],
    target: _Target = None,
    no_wait: _NoWait = False,
    json_output: Json = False,
    dir: _Dir = None,  # noqa: A002
) -> None:
    """Submit a command as a job: dshpc run --gpus 1 --gpu-memory 8GB -- python3 train.py"""
    asked = CommandLine(
        name, tuple(command), inputs=tuple(input or ()), targets=tuple(target or ()), dry_run=dry_run,
        no_wait=no_wait, env=env, image=image, **_asked(resources),
    )  # fmt: skip
    finish(carry_out(Line("run", asked, dir, wait, json_output)))

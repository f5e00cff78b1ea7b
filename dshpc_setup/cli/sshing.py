"""`dshpc ssh-config` and `dshpc ssh-proxy`: ssh, scp, rsync and editors into a job."""

from __future__ import annotations

from typing import Annotated

import typer

from dshpc_setup.cli.command_line import Yes, app, examples, finish, reporter
from dshpc_setup.cli.ssh_proxy import LINGER, Line, carry_out

_Dir = Annotated[
    str | None,
    typer.Option("--dir", metavar="DIR", help="Project folder (default: the current one)."),
]
_Linger = Annotated[
    str,
    typer.Option(
        "--linger", metavar="TIME", help="End a job this long after its last connection: 15m, 2h."
    ),
]


@app.command(
    "ssh-config",
    rich_help_panel="Methods and jobs",
    epilog=examples(
        "dshpc ssh-config && ssh gpu nvidia-smi",
        "dshpc ssh-config --print >jobs && ssh -F jobs gpu-h100x2-4h",
    ),
)
def ssh_config(
    *,
    print_it: Annotated[
        bool, typer.Option("--print", help="Print the file for ssh -F; change no configuration.")
    ] = False,
    through: Annotated[
        str | None,
        typer.Option(
            "--through",
            metavar="HOST",
            help="Print it for a machine that reaches this one as HOST.",
        ),
    ] = None,
    linger: _Linger = LINGER,
    yes: Yes = False,
    dir: _Dir = None,  # noqa: A002
) -> None:
    """Write the Host block that lets ssh, scp, rsync and editors reach jobs, after asking."""
    from dshpc_setup.cli import ssh_config as stage

    if print_it or through is not None:
        finish(stage.show(dir, linger, through))
    else:
        finish(stage.write(dir, linger, reporter(yes)))


@app.command("ssh-proxy", rich_help_panel="Methods and jobs")
def ssh_proxy(
    name: Annotated[str, typer.Argument(metavar="NAME", help="gpu, gpu-h100x2-4h, job-123, ...")],
    *,
    srun: Annotated[
        bool, typer.Option("--srun", help="Enter by srun's stream, wherever the job runs.")
    ] = False,
    keys: Annotated[
        str | None, typer.Option("--keys", metavar="DIR", help="Your keys, if not in ~/.ssh.")
    ] = None,
    linger: _Linger = LINGER,
    dir: _Dir = None,  # noqa: A002
) -> None:
    """Connect stdin and stdout to a job, found or submitted: the ProxyCommand of ssh."""
    finish(carry_out(Line(name, dir=dir, linger=linger, keys=keys, by_srun=srun)))

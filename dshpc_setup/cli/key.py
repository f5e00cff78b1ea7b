"""`dshpc key`: the key by which Slurm's programs know each other."""

from __future__ import annotations

from dshpc_setup.cli import print_json
from dshpc_setup.cli.command_line import (
    HELP,
    Commands,
    Dir,
    Json,
    Yes,
    app,
    finish,
    machine_of,
    needed_project,
    reporter,
)
from dshpc_setup.cli.options import NoMachine
from dshpc_setup.errors import Exit

key_app = Commands(
    help="Manage Slurm's authentication key.",
    no_args_is_help=True,
    context_settings=HELP,
)
app.add_typer(key_app, name="key", rich_help_panel="Run")


@key_app.callback()
def key() -> None:
    """Manage Slurm's authentication key."""


@key_app.command("rotate")
def key_rotate(
    *,
    dir: Dir = None,  # noqa: A002
    yes: Yes = False,
    json_output: Json = False,
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """Give the running cluster a new key; running jobs are not affected, and the former is refused soon."""
    from dshpc_setup.cli import node
    from dshpc_setup.cluster import added
    from dshpc_setup.cluster.key import rotate

    project = needed_project(dir)
    here = machine_of(project)
    ways = () if json_output else added.read(project)
    done = rotate(here, project, reporter(yes), ways)
    code = Exit.OK
    if json_output:
        print_json(done.to_json())
    else:
        code = node.join_again(here, project, done)
    finish(code)

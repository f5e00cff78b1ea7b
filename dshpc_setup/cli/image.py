"""`dshpc image save`: the cluster's image as a file, for a machine that has no engine and no network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dshpc_setup.cli import print_json
from dshpc_setup.cli.command_line import (
    HELP,
    Commands,
    Dir,
    Json,
    Yes,
    app,
    examples,
    finish,
    machine_of,
    needed_project,
    reporter,
)
from dshpc_setup.cli.options import NoMachine
from dshpc_setup.errors import Exit

image_app = Commands(
    help="Carry the cluster's image to another machine.",
    no_args_is_help=True,
    context_settings=HELP,
)
app.add_typer(image_app, name="image", rich_help_panel="Set up")


@image_app.callback()
def image() -> None:
    """Carry the cluster's image to another machine."""


@image_app.command(
    "save",
    epilog=examples(
        "dshpc image save cluster.tar.xz",
        "configure-environment --engine builtin --image-file cluster.tar.xz",
    ),
)
def image_save(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A new file: NAME.tar.xz; .tar.gz and .tar are larger."
        ),
    ],
    *,
    dir: Dir = None,  # noqa: A002
    yes: Yes = False,
    json_output: Json = False,
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """Save the cluster's image as a file: configure-environment --image-file takes it elsewhere."""
    from dshpc_setup.image.saving import save

    project = needed_project(dir)
    saved = save(machine_of(project), project, file.expanduser().absolute(), reporter(yes))
    if json_output:
        print_json(saved.to_json())
    else:
        print(f"{saved.image} is saved in {file}: {saved.size / 1e6:.0f} MB.")
    finish(Exit.OK)

"""`dshpc config`: the settings, and the configuration files that are in force."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dshpc_setup.cli import print_json
from dshpc_setup.cli.command_line import (
    Dir,
    Json,
    Yes,
    config_app,
    environment,
    finish,
    machine_of,
    needed_project,
    project_of,
    reporter,
)
from dshpc_setup.cli.options import Machine, NoMachine
from dshpc_setup.errors import Exit
from dshpc_setup.terminal.command_names import as_called

if TYPE_CHECKING:
    from dshpc_setup.cluster.offered import Settled

_Files = Annotated[
    list[str] | None,
    typer.Argument(metavar="[FILE]...", help="slurm.conf, gres.conf, docker-compose.yml, ..."),
]
_All = Annotated[bool, typer.Option("--all", help="Every file that waits for an answer.")]


@config_app.command("show")
def config_show(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[SETTING|FILE]", help="One setting, or a file in force: slurm.conf, ..."
        ),
    ] = None,
    *,
    json_output: Json = False,
    dir: Dir = None,  # noqa: A002
    settings: Annotated[
        Path | None,
        typer.Option("--settings", metavar="FILE", help="Settings file instead of DIR/dshpc.yaml."),
    ] = None,
    machine: Machine = None,
) -> None:
    """Show settings in force and where they came from, or the text of a file that is in force."""
    from dshpc_setup.cli.inspect import print_settings, settings_json, show_file
    from dshpc_setup.cli.seen import seen_machine
    from dshpc_setup.cluster import own_files
    from dshpc_setup.settings import BY_NAME
    from dshpc_setup.settings.edited import no_setting

    if machine is not None:
        seen_machine("/", machine, "")  # settings are the same for each; a wrong folder is told
    if name is not None and name not in BY_NAME:
        if "." not in name and "/" not in name:  # each file has one
            raise no_setting(name)
        recorded = None if machine is None else seen_machine("/", machine, "")
        project = needed_project(dir)
        show_file(recorded or machine_of(project), project, name, json_output=json_output)
        finish(Exit.OK)
        return
    project = project_of(dir)
    values = project.settings(environment(), None, settings)
    kept_out = own_files.of_project(project, values) if project.foreign is None else ()
    if json_output:
        print_json(settings_json(values, kept_out, name))
    else:
        print_settings(values, kept_out, name, in_force=project.in_force)
    finish(Exit.OK)


@config_app.command("diff")
def config_diff(
    files: _Files = None,
    *,
    json_output: Json = False,
    dir: Dir = None,  # noqa: A002
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """Compare what is in force with config/, and edited files with the new text beside them."""
    from dshpc_setup.cli.inspect import print_differences
    from dshpc_setup.cluster.config_diff import differences

    project = needed_project(dir)
    found = differences(machine_of(project), project, tuple(files or ()))
    if json_output:
        print_json(found.to_json())
    else:
        print_differences(found)
    finish(found.exit_code)


@config_app.command("accept")
def config_accept(
    files: _Files = None,
    *,
    every: _All = False,
    yes: Yes = False,  # noqa: ARG001 -- there is nothing to ask, for nothing is lost
    json_output: Json = False,
    dir: Dir = None,  # noqa: A002
) -> None:
    """Take the new text of a file that you edited; yours is kept as FILE.dshpc-old."""
    from dshpc_setup.cluster import offered

    done = offered.accept(needed_project(dir), files or (), every)
    _show_settled(done, json_output)


@config_app.command("reject")
def config_reject(
    files: _Files = None,
    *,
    every: _All = False,
    yes: Yes = False,
    json_output: Json = False,
    dir: Dir = None,  # noqa: A002
) -> None:
    """Keep a file as you edited it: the new text is removed, and not offered again."""
    from dshpc_setup.cluster import offered

    done = offered.reject(needed_project(dir), files or (), every, reporter(yes))
    _show_settled(done, json_output)


def _show_settled(done: Settled, json_output: bool) -> None:
    if json_output:
        print_json(done.to_json())
    else:
        print("\n".join(map(as_called, done.lines())))
    finish(Exit.OK)


@config_app.command("set")
def config_set(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The setting.")],
    values: Annotated[
        list[str],
        typer.Argument(
            metavar="VALUE...", help="Its value; lists with commas or one by one: 0,2 or 0 2"
        ),
    ],
    *,
    dir: Dir = None,  # noqa: A002
) -> None:
    """Write one setting into dshpc.yaml, keeping its comments."""
    from dshpc_setup.cli.inspect import set_in_file

    set_in_file(project_of(dir), name, values)
    finish(Exit.OK)


@config_app.command("unset")
def config_unset(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="The settings.")],
    *,
    dir: Dir = None,  # noqa: A002
) -> None:
    """Undo what a flag of an earlier run chose, else what dshpc.yaml says: what is below counts again."""
    from dshpc_setup.cli.inspect import forget

    forget(project_of(dir), names)
    finish(Exit.OK)

"""`dshpc env add|remove|lock|show|schema`: the packages that methods need."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dshpc_setup.cli import print_json, put
from dshpc_setup.cli.command_line import (
    HELP,
    Dir,
    Json,
    app,
    finish,
    project_of,
    reporter,
    this_machine,
)
from dshpc_setup.cli.console import as_called
from dshpc_setup.cli.options import NoMachine
from dshpc_setup.errors import Exit, usage_error

env_app = typer.Typer(
    help="The packages that methods need.", no_args_is_help=True, context_settings=HELP
)
app.add_typer(env_app, name="env", rich_help_panel="Methods and jobs")

_Names = Annotated[
    list[str], typer.Argument(metavar="NAME...", help="Packages, as numpy or pandas==2.2.")
]
_Apt = Annotated[bool, typer.Option("--apt", help="They are packages of Debian.")]
_R = Annotated[bool, typer.Option("--r", help="They are packages of R.")]


@env_app.callback()
def env() -> None:
    """The packages that methods need."""


@env_app.command("add")
def env_add(
    names: _Names,
    *,
    apt: _Apt = False,
    r: _R = False,
    json_output: Json = False,
    dir: Dir = None,  # noqa: A002
) -> None:
    """Declare packages in environment/; `dshpc env lock` then fixes their versions."""
    from dshpc_setup.environment import editing

    file = editing.add(project_of(dir), _kind(apt, r), names)
    _told("added", names, [file], json_output)


@env_app.command("remove")
def env_remove(
    names: _Names,
    *,
    apt: _Apt = False,
    r: _R = False,
    json_output: Json = False,
    dir: Dir = None,  # noqa: A002
) -> None:
    """Take packages out of environment/."""
    from dshpc_setup.environment import editing

    files = editing.remove(project_of(dir), _kind(apt, r), names)
    _told("removed", names, files, json_output)


@env_app.command("lock")
def env_lock(
    *,
    json_output: Json = False,
    dir: Dir = None,  # noqa: A002
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """Choose the versions of all that is declared, and of what that needs, and write them down."""
    from dshpc_setup.environment import standing

    lock = standing.make_lock(this_machine(), project_of(dir), reporter())
    if json_output:
        print_json(lock.to_json())
    else:
        put("".join(f"{each.name} {each.version}\n" for each in lock.wheels))
        put("".join(f"{each.name} {each.version}\n" for each in lock.debian))
        put(as_called(f"Locked. Next: {standing.NEXT_BUILD}") + "\n")
    finish(Exit.OK)


@env_app.command("show")
def env_show(
    *,
    json_output: Json = False,
    dir: Dir = None,  # noqa: A002
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """What is declared, what is locked, what the image has, and what to do next."""
    from dshpc_setup.environment import standing

    now = standing.look(this_machine(), project_of(dir))
    if json_output:
        print_json(now.to_json())
    else:
        put("".join(f"{as_called(line)}\n" for line in standing.lines(now)))
    finish(Exit.OK)


@env_app.command("schema")
def env_schema(
    name: Annotated[str, typer.Argument(metavar="FILE", help="python.json, or another of them.")],
) -> None:
    """The JSON Schema of one of the files, for editors and other programs."""
    from dshpc_setup.environment.schema import SCHEMAS, published

    if name not in SCHEMAS:
        raise usage_error(f"There is no schema of {name}.", "", f"There are: {', '.join(SCHEMAS)}.")
    put(published(name))
    finish(Exit.OK)


def _kind(apt: bool, r: bool) -> str:
    if apt and r:
        raise usage_error("--apt or --r, not both.", "", "Add the ones, then the others.")
    return "apt" if apt else "r" if r else "python"


def _told(verb: str, names: list[str], files: list[Path], json_output: bool) -> None:
    if json_output:
        print_json(
            {
                "schema": f"dshpc.environment-{verb}/1",
                "names": names,
                "files": list(map(str, files)),
            }
        )
    else:
        put(f"{verb.capitalize()} in {', '.join(map(str, files))}: {', '.join(names)}\n")
        put(as_called("Next: dshpc env lock") + "\n")
    finish(Exit.OK)

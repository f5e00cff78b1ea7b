"""`dshpc env add|remove|lock|show|schema`: the packages that methods need."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from dshpc_setup.cli import print_json, put
from dshpc_setup.cli.command_line import (
    HELP,
    Commands,
    Dir,
    Json,
    Yes,
    app,
    environment,
    examples,
    finish,
    machine_of,
    project_of,
    reporter,
    this_machine,
)
from dshpc_setup.cli.console import is_interactive
from dshpc_setup.cli.options import NoMachine
from dshpc_setup.errors import Exit, usage_error
from dshpc_setup.project.folder import Project
from dshpc_setup.terminal.command_names import as_called

env_app = Commands(
    help="Manage the packages that methods need.", no_args_is_help=True, context_settings=HELP
)
app.add_typer(env_app, name="env", rich_help_panel="Methods and jobs")

_Names = Annotated[
    list[str], typer.Argument(metavar="NAME...", help="Packages, as numpy or pandas==2.2.")
]
_Added = Annotated[
    list[str] | None, typer.Argument(metavar="NAME...", help="Packages, as numpy or pandas==2.2.")
]
_Apt = Annotated[bool, typer.Option("--apt", help="Debian packages.")]
_R = Annotated[bool, typer.Option("--r", help="R packages.")]


@env_app.callback()
def env() -> None:
    """Manage the packages that methods need."""


@env_app.command(
    "add",
    epilog=examples(
        'dshpc env add numpy "pandas>=2,<3"',
        "dshpc env add --apt libgomp1",
        "dshpc env add --r dplyr",
        "dshpc env add --tools",
    ),
)
def env_add(
    names: _Added = None,
    *,
    apt: _Apt = False,
    r: _R = False,
    tools: Annotated[
        bool, typer.Option("--tools", help="git, curl, vim, less, tmux, rsync, pip, venv and uv.")
    ] = False,
    json_output: Json = False,
    dir: Dir = None,  # noqa: A002
) -> None:
    """Declare packages in environment/; `dshpc env lock` then fixes their versions."""
    from dshpc_setup.environment import editing
    from dshpc_setup.environment.schema import TOOLS

    if tools and (names or apt or r):
        raise usage_error("--tools names its packages itself.", "", "Add others by a second call.")
    if not tools and not names:
        raise usage_error("No package is named.", "", "Such as: dshpc env add numpy")
    project = project_of(dir)
    wanted = TOOLS if tools else {_kind(apt, r): tuple(names or ())}
    before: dict[str, str] = {}
    for kind, words in wanted.items():
        before |= editing.replaced(project, kind, words)
    files = [editing.add(project, kind, words) for kind, words in wanted.items()]
    _told(
        "added", [word for words in wanted.values() for word in words], files, json_output, before
    )


@env_app.command("remove", epilog=examples("dshpc env remove numpy"))
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


@env_app.command("lock", epilog=examples("dshpc env lock"))
def env_lock(
    *,
    yes: Yes = False,
    json_output: Json = False,
    dir: Dir = None,  # noqa: A002
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """Choose the versions of all that is declared, and of what that needs, and write them down."""
    from dshpc_setup import engine_door
    from dshpc_setup.environment.model import LOCK_SCHEMA
    from dshpc_setup.image import standing

    project = project_of(dir)
    engine = _engine_to_be(project)
    seen = engine_door.through(this_machine(), engine)
    lock = standing.make_lock(seen, project, engine, reporter(yes))
    if json_output:
        print_json({"schema": LOCK_SCHEMA, "wheels": []} if lock is None else lock.to_json())
    elif lock is None:
        put(
            as_called(f"Nothing is declared: the lock is removed. Next: {standing.NEXT_BUILD}")
            + "\n"
        )
    else:
        put("".join(f"{each.name} {each.version}\n" for each in lock.wheels))
        put("".join(f"{each.name} {each.version}\n" for each in lock.debian))
        put(as_called(f"Locked. Next: {standing.NEXT_BUILD}") + "\n")
    finish(Exit.OK)


@env_app.command("show", epilog=examples("dshpc env show"))
def env_show(
    *,
    json_output: Json = False,
    dir: Dir = None,  # noqa: A002
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """Show what is declared, what is locked, what the image has, and what to do next."""
    from dshpc_setup.image import standing

    project = project_of(dir)
    now = standing.look(machine_of(project), project)
    if json_output:
        print_json(now.to_json())
    else:
        put("".join(f"{as_called(line)}\n" for line in standing.lines(now)))
    finish(Exit.OK)


def _engine_to_be(project: Project) -> str:
    """The engine that the project's cluster is on, or will be on once it is set up."""
    from dshpc_setup.setup.engine_choice import choose

    runtime = project.runtime()
    if runtime:
        return str(runtime.get("engine", "docker"))
    setting = project.settings(environment()).engine
    interactive = is_interactive()
    return choose(this_machine(), setting, {}, interactive=interactive, looks_only=True).kind


@env_app.command("schema", epilog=examples("dshpc env schema python.json"))
def env_schema(
    name: Annotated[
        str, typer.Argument(metavar="FILE", help="python.json, system_deps.json or r.json.")
    ],
) -> None:
    """Print the JSON Schema of one of the files, for editors and other programs."""
    from dshpc_setup.environment.schema import SCHEMAS, published

    if name not in SCHEMAS:
        raise usage_error(f"There is no schema of {name}.", "", f"There are: {', '.join(SCHEMAS)}.")
    put(published(name))
    finish(Exit.OK)


def _kind(apt: bool, r: bool) -> str:
    if apt and r:
        raise usage_error("--apt or --r, not both.", "", "Add the ones, then the others.")
    return "apt" if apt else "r" if r else "python"


def _told(
    verb: str,
    names: list[str],
    files: list[Path],
    json_output: bool,
    before: Mapping[str, str] | None = None,
) -> None:
    """`before`: what stood there in place of a name."""
    if json_output:
        print_json(
            {
                "schema": f"dshpc.environment-{verb}/1",
                "names": names,
                "files": list(map(str, files)),
            }
        )
    else:
        said = ", ".join(_shown(name, (before or {}).get(name)) for name in names)
        put(f"{verb.capitalize()} in {', '.join(map(str, files))}: {said}\n")
        put(as_called("Next: dshpc env lock") + "\n")
    finish(Exit.OK)


def _shown(name: str, before: str | None) -> str:
    if before is None:
        return name
    return f"{name} (there already)" if name == before else f"{name} (in place of {before})"

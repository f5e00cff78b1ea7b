"""`dshpc method list|show|validate|init|schema`: methods as files, without a cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dshpc_setup.cli import print_json, put
from dshpc_setup.cli.command_line import HELP, Commands, Dir, Json, app, examples, finish
from dshpc_setup.cli.folders import folder_of, found_project
from dshpc_setup.errors import Exit, usage_error
from dshpc_setup.terminal.command_names import as_called
from dshpc_setup.terminal.sanitize import counted

if TYPE_CHECKING:
    from dshpc_setup.methods.store import Entry

method_app = Commands(
    help="List, check and run methods.", no_args_is_help=True, context_settings=HELP
)
app.add_typer(method_app, name="method", rich_help_panel="Methods and jobs")

_Name = Annotated[str, typer.Argument(metavar="NAME|PATH", help="The method, or its folder.")]


@method_app.callback()
def method() -> None:
    """List, check and run methods."""


def _top(named: Path | None) -> Path:
    """The folder whose methods/ counts: the project's, else the one that we are in."""
    project = found_project(named)
    return project.folder if project is not None else folder_of(None)


@method_app.command("list", epilog=examples("dshpc method list"))
def method_list(*, json_output: Json = False, dir: Dir = None) -> None:  # noqa: A002
    """List the methods of this project, and those that come with dsHPC."""
    from dshpc_setup.methods import description, store

    entries = store.survey(store.folders(_top(dir)))
    if json_output:
        print_json(
            {"schema": "dshpc.method-list/1", "methods": [description.listed(x) for x in entries]}
        )
    else:
        put("".join(f"{line}\n" for line in _listed(entries)))
    finish(Exit.OK)


def _listed(entries: Sequence[Entry]) -> Iterator[str]:
    """One's own, then those that come with it."""
    own = [entry for entry in entries if entry.origin == "project"]
    shipped = [entry for entry in entries if entry.origin == "shipped"]
    for entry in own:
        yield from _row(entry)
    if shipped:
        yield from ["", "These come with dsHPC:"] if own else ["These come with dsHPC:"]
    for entry in shipped:
        yield from _row(entry)


def _row(entry: Entry) -> Iterator[str]:
    """What it needs, and below what it does: together they are too long for a line."""
    from dshpc_setup.documents.shown import one_line
    from dshpc_setup.methods.description import needs

    name, it = one_line(entry.name), entry.method
    if it is None:
        problems = len(entry.problems)
        count = counted(problems, "problem")
        yield as_called(f"{name:<20} BROKEN  {count}: dshpc method validate {name}")
        return
    yield f"{name:<20} {one_line(it.version):<7} {needs(it.resources)}".rstrip()
    if it.description:
        yield f"    {one_line(it.description)}"


@method_app.command("show", epilog=examples("dshpc method show vector-add"))
def method_show(name: _Name, *, json_output: Json = False, dir: Dir = None) -> None:  # noqa: A002
    """Show a method: what it runs, takes and needs, and how to run it."""
    from dshpc_setup.methods import description, store

    found = store.named(store.folders(_top(dir)), name)
    if json_output:
        print_json({"schema": "dshpc.method/1", "method": description.as_json(found, name)})
    else:
        put("\n".join([*map(as_called, description.lines(found, name)), ""]))
    finish(Exit.OK)


@method_app.command(
    "validate",
    epilog=examples(
        "dshpc method validate train",
        "dshpc method validate ./methods/train",
        "dshpc method validate --all",
    ),
)
def method_validate(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME|PATH", help="Methods, by name or path.")
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="All methods.")] = False,
    json_output: Json = False,
    dir: Dir = None,  # noqa: A002
) -> None:
    """Report all that is wrong with a method.json, with its line and what would be right."""
    from dshpc_setup.methods.store import told

    entries = _asked(names or [], every, _top(dir))
    code = Exit.OK if all(entry.method for entry in entries) else Exit.ERROR
    if json_output:
        methods = [_checked(entry) for entry in entries]
        print_json(
            {"schema": "dshpc.method-validation/1", "exit_code": int(code), "methods": methods}
        )
    else:
        for entry in entries:
            put("".join(f"{as_called(line)}\n" for line in told(entry)))
            if entry.method is not None:
                put(f"{entry.file}: valid\n")
    finish(code)


def _checked(entry: Entry) -> dict[str, object]:
    return {
        "name": entry.name,
        "file": str(entry.file),
        "valid": entry.method is not None,
        "problems": [asdict(each) for each in entry.problems],
    }


def _asked(names: Sequence[str], every: bool, top: Path) -> Sequence[Entry]:
    """What is to be validated; raises DshpcError (64) where nothing or what is not there is named."""
    from dshpc_setup.methods import store
    from dshpc_setup.methods.check import may_be_there
    from dshpc_setup.methods.schema import FILE

    if every == bool(names):
        what = "Name methods, or say --all" + (", not both." if every else ".")
        raise usage_error(what, "", "dshpc method validate --all")
    folders = store.folders(top)
    there = store.survey(folders)
    if every:
        return there
    found: list[Entry] = []
    for name in names:
        path = Path(name)
        if store.is_path(name) or name.endswith(FILE):
            folder = path.parent if path.name == FILE else path
            if not may_be_there(folder) or os.path.isfile(folder):
                raise usage_error(
                    f"There is no folder {folder}.", "", f"Name a folder with a {FILE}."
                )
            found.append(store.read(folder))
        elif named := [entry for entry in there if entry.name == name]:
            found += named
        else:
            raise store.unknown(name, there, folders)
    return found


@method_app.command("init", epilog=examples("dshpc method init train --gpus 1"))
def method_init(
    name: _Name,
    *,
    command: Annotated[
        str, typer.Option("--command", metavar="PROGRAM", help="python3, bash, sh or Rscript.")
    ] = "python3",
    gpus: Annotated[int, typer.Option("--gpus", min=0, max=1024, metavar="N", help="GPUs.")] = 0,
    json_output: Json = False,
    dir: Dir = None,  # noqa: A002
) -> None:
    """Make methods/NAME, or PATH: a method that works as it is."""
    from dshpc_setup.methods import new, store

    if store.is_path(name):
        folder, last = os.path.split(os.path.abspath(name))
        made = new.make(Path(folder), last, command, gpus)
    else:
        made = new.make(_own_methods(dir, name), name, command, gpus)
    if json_output:
        files = [str(each) for each in made]
        print_json({"schema": "dshpc.method-made/1", "name": name, "files": files})
    else:
        put("".join(f"Made {each}\n" for each in made))
        if command == "Rscript":
            put(as_called(new.R_FIRST) + "\n")
        put(as_called(f"Run it: dshpc method run {name}") + "\n")
    finish(Exit.OK)


def _own_methods(named: Path | None, name: str) -> Path:
    """The folder for a new method of that name; raises DshpcError in another user's project."""
    from dshpc_setup.methods import store
    from dshpc_setup.project import writers

    project = found_project(named)
    if project is None:
        return folder_of(None) / store.FOLDER
    methods = project.folder / store.FOLDER
    there = methods if methods.is_dir() else project.folder
    owner = _owner_of(there)
    if os.geteuid() not in (0, owner) and (
        project.foreign is not None or not os.access(there, os.W_OK)
    ):
        raise usage_error(
            f"The methods of {project.folder} belong to {writers.user_name(owner)}.",
            "A method of your own may lie in any folder, and is run by its path.",
            f"Make one: dshpc method init ~/methods/{name}",
        )
    if os.geteuid() == 0:  # who may not write there is told so by the system
        project.need_own()
    return methods


def _owner_of(folder: Path) -> int:
    try:
        return folder.stat().st_uid
    except OSError:  # it is not to be looked into, or gone: told where it is written
        return os.geteuid()


@method_app.command("schema", epilog=examples("dshpc method schema > method.schema.json"))
def method_schema() -> None:
    """Print the JSON Schema of method.json, for editors and other programs."""
    from dshpc_setup.methods.schema import published

    put(published())
    finish(Exit.OK)

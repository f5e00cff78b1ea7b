"""`dshpc compose patch`: a GPU for a service of a compose file that the user wrote."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dshpc_setup.cli import print_json, put
from dshpc_setup.cli.command_line import HELP, Commands, Json, Yes, app, finish, reporter
from dshpc_setup.cli.options import Machine
from dshpc_setup.cli.seen import seen_machine
from dshpc_setup.errors import Exit, usage_error
from dshpc_setup.terminal.command_names import as_called
from dshpc_setup.terminal.sanitize import harmless

if TYPE_CHECKING:
    from dshpc_setup.compose_patch.command import Check, ChosenHandover, Done

compose_app = Commands(
    help="Give GPUs to services of compose files that you wrote yourself.",
    no_args_is_help=True,
    context_settings=HELP,
)
app.add_typer(compose_app, name="compose", rich_help_panel="Set up")


@compose_app.callback()
def options() -> None:
    """Give GPUs to services of compose files that you wrote yourself."""


@compose_app.command("patch")
def patch(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The compose file.")],
    *,
    service: Annotated[
        str | None,
        typer.Option("--service", metavar="NAME", help="The service (default: the only one)."),
    ] = None,
    mechanism: Annotated[
        str | None,
        typer.Option(
            "--mechanism",
            metavar="NAME",
            help="cdi, device-request, runtime or devices (default: the one that is proven here).",
        ),
    ] = None,
    devices: Annotated[
        str | None,
        typer.Option("--devices", metavar="ID[,ID]", help="Only these GPUs: numbers or UUIDs."),
    ] = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Take out what was put in, and nothing else.")
    ] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Show how the file changes.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done; change nothing.")
    ] = False,
    yes: Yes = False,
    json_output: Json = False,
    machine: Machine = None,
) -> None:
    """Put the right GPU stanza into a service of your compose file; the rest stays byte for byte."""
    from dshpc_setup import engine_door
    from dshpc_setup.compose_patch import command, way

    if remove and (mechanism is not None or devices is not None):
        raise usage_error(
            "--remove takes neither --mechanism nor --devices.", "", "Leave them out."
        )
    chosen = None if mechanism is None else way.mechanism_of(mechanism)
    ids = way.devices_of(devices)
    seen = seen_machine("/", machine, "")
    telling = reporter(yes)

    def find_way() -> ChosenHandover:
        if chosen is not None:
            return way.named(seen, chosen, ids)
        project = way.project_at((Path.cwd(), file.absolute().parent), seen.env)
        own = seen if machine is not None else engine_door.of(seen, project.runtime())
        return way.proven(own, project, ids, telling, replayed=machine is not None)

    def preview(done: Done) -> None:
        if diff:
            stream = sys.stderr if json_output else sys.stdout
            terminal = stream is not None and stream.isatty()
            text = harmless(done.diff) if terminal else done.diff
            (sys.stderr.write if json_output else put)(text)

    wish = command.PatchOptions(file, service, remove, dry_run)
    done = command.run(wish, find_way, _check(machine), telling, preview)
    if json_output:
        print_json(done.to_json())
    if not json_output:
        put("".join(f"{as_called(line)}\n" for line in _lines(done)))
    finish(Exit.OK)


def _check(recorded: Path | None) -> Check:
    """By the compose tool that is here; for a recorded machine there is none to ask."""
    from dshpc_setup.compose_patch.command import Checked

    if recorded is not None:
        return lambda *_: Checked(note="No compose tool checked it: the machine is a recorded one.")

    def check(file: Path, old: str, new: str) -> Checked:
        from dshpc_setup.cli.command_line import this_machine
        from dshpc_setup.compose_patch.check import checked

        return checked(this_machine(), file.absolute(), old, new)

    return check


def _lines(done: Done) -> list[str]:
    """What was done, and what to do next."""
    where = f"service {done.service} in {done.file}"
    how = f" ({done.mechanism})" if done.mechanism else ""
    what = {
        "patched": f"Patched: {where}{how}.",
        "removed": f"Removed: the GPU stanza of {where}.",
        "unchanged": f"Unchanged: {where}.",
        "would-patch": f"Would patch: {where}{how}. Nothing was changed (--dry-run).",
        "would-remove": f"Would remove: the GPU stanza of {where}. Nothing was changed (--dry-run).",
    }[done.action]
    lines = [what, *done.notes]
    if done.checked_by:
        lines.append(f"{done.checked_by} takes it (config -q).")
    if done.backup is not None:
        lines.append(f"The old text is in {done.backup}.")
    return lines

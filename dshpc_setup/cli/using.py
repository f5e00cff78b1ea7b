"""`dshpc use`: which cluster this user's commands mean where they are typed in none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from dshpc_setup.cli import put
from dshpc_setup.cli.command_line import app, examples, finish
from dshpc_setup.cli.folders import folder_of
from dshpc_setup.errors import DshpcError, Exit, usage_error
from dshpc_setup.terminal.sanitize import plain


@app.command(
    "use",
    rich_help_panel="Set up",
    epilog=examples("dshpc use ~/cluster", "dshpc use", "dshpc use --none"),
)
def use(
    *,
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help="Folder in which configure-environment was run."),
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Forget the choice.")] = False,
) -> None:
    """Choose the cluster that commands use outside of project folders; without DIR, show it."""
    from dshpc_setup.project import known
    from dshpc_setup.project.folder import project_at

    if none and folder is not None:
        raise usage_error(
            "A folder and --none contradict each other.", "", "Leave one of them out."
        )
    if none:
        known.choose(None, os.environ)
        put("No cluster is chosen any more.\n")
    elif folder is not None:
        at = folder.expanduser().absolute().resolve()
        if not at.is_dir():
            raise usage_error(
                f"There is no folder {plain(str(at))}.", "", "Name that of a cluster."
            )
        at = project_at(at).folder
        _need_cluster(at)
        known.choose(str(at), os.environ)
        put(
            f"Commands typed in folders of no cluster mean the one in {plain(str(at))} from now on.\n"
        )
    else:
        put(f"{_meant()}\n")
    finish(Exit.OK)


def _need_cluster(folder: Path) -> None:
    from dshpc_setup.project import trust

    if not trust.judged(os.path.realpath(folder)).runtime:
        raise DshpcError(
            f"There is no cluster in {plain(str(folder))}.",
            "It was never set up there to its end.",
            (f"Set one up: configure-environment --dir {plain(str(folder))}",),
            Exit.USAGE,
        )


def _meant() -> str:
    """What commands mean that are typed here, and why."""
    from dshpc_setup.project import known, trust

    if named := os.environ.get("DSHPC_DIR"):
        return f"{plain(os.path.realpath(named))}  (DSHPC_DIR)"
    here = str(folder_of(None))
    found, _ = trust.search(here)
    if found is not None:
        return f"{plain(found.folder)}  (this folder is in it)"
    found, chosen = known.elsewhere(here, os.environ), known.chosen(os.environ)
    if found is None:
        return "None: this folder is in no cluster, and none is chosen. Choose one: dshpc use DIR"
    if chosen is not None and chosen.folder == found.folder:
        gone = "" if found.runtime else ", but there is no cluster any more"
        return f"{plain(found.folder)}  (dshpc use{gone})"
    default = trust.default(os.environ)
    if default is not None and default.folder == found.folder:
        return f"{plain(found.folder)}  (dshpc install-commands)"
    return f"{plain(found.folder)}  (its jobs see this folder)"

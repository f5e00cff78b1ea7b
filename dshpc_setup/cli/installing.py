"""What puts our commands where people expect them: install-commands, completion, man."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dshpc_setup.cli import put
from dshpc_setup.cli.command_line import Yes, app, examples, finish, reporter
from dshpc_setup.cli.folders import found_project
from dshpc_setup.errors import DshpcError, Exit, usage_error

if TYPE_CHECKING:
    from dshpc_setup.cli.console import ConsoleReporter
    from dshpc_setup.project.on_path import Outcome

_SHELLS = ("bash", "zsh", "fish")
_SCRIPTS = {
    "bash": "bash-completion/completions/dshpc",
    "zsh": "zsh/site-functions/_dshpc",
    "fish": "fish/vendor_completions.d/dshpc.fish",
}


@app.command(
    "install-commands",
    rich_help_panel="Set up",
    epilog=examples(
        "dshpc install-commands",
        "dshpc install-commands --slurm --yes",
        "dshpc install-commands --remove",
    ),
)
def install_commands(
    *,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="Folder (default: ~/.local/bin).")
    ] = None,
    slurm: Annotated[
        bool | None,
        typer.Option(
            "--slurm/--no-slurm", help="Also srun, sbatch, squeue and the rest of Slurm's."
        ),
    ] = None,
    remove: Annotated[
        bool, typer.Option("--remove", "--undo", help="Remove what this has installed.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Put dshpc, its man pages and completions on this user's PATH; Slurm's commands too, if wanted."""
    from dshpc_setup.project import on_path

    folder = (Path(_home()) / ".local/bin" if to is None else to).expanduser().absolute()
    say = reporter(yes)
    if remove:
        every = {*_programs(folder, slurm=True), *_shared(folder)}
        there = sorted(path for path in every if on_path.is_ours(path))
        if not there:
            say.note(f"Nothing of ours is in {folder}.")
        elif _agreed(say, f"Remove {len(there)} files of ours from {folder} and beside it?"):
            say.note(f"Removed: {len(on_path.take_away(there).removed)} files.")
        finish(Exit.OK)
        return
    _need_lasting(Path(program()))
    if not _agreed(say, f"Put dshpc into {folder}, with its man pages and completions?"):
        return
    wants_slurm = _with_slurm(say, slurm, folder)
    done = on_path.put(_programs(folder, slurm=wants_slurm), mode=0o755)
    shared = on_path.put(_shared(folder))
    done.foreign += shared.foreign
    _tell(say, folder, done)
    where = "" if to is None else f" --to {shlex.quote(str(folder))}"
    say.note(f"Undo it: dshpc install-commands{where} --remove")
    finish(Exit.OK)


def _need_lasting(ours: Path) -> None:
    """Raises DshpcError where it lies in a cache, as with uvx: what leads there ends when that is emptied."""
    from dshpc_setup.cluster import own_process

    environment = ours.parent.parent
    own_process.need_lasting(
        f"{environment} was made for this one call: commands that lead there would stop working.",
        "dshpc install-commands",
        environment,
    )


def _home() -> str:
    home = os.environ.get("HOME")
    if not home:
        raise usage_error("HOME is not set.", "", "Name a folder: --to DIR")
    return home


def _agreed(say: ConsoleReporter, question: str) -> bool:
    from dshpc_setup.cli.console import is_interactive

    if say.ask(question):
        return True
    if not is_interactive():
        raise DshpcError(
            "Nothing was changed: there is nobody to ask.", question, ("Answer with yes: --yes",)
        )
    say.note("Nothing was changed.")
    finish(Exit.OK)
    return False


def _with_slurm(say: ConsoleReporter, asked: bool | None, folder: Path) -> bool:
    """Whether Slurm's commands come along; a Slurm of the machine's own is never hidden unasked."""
    from dshpc_setup.project import on_path

    own = next(
        filter(None, (on_path.elsewhere(each, os.environ, folder) for each in on_path.SLURM)), None
    )
    if own is None:
        return (
            say.ask("Also srun, sbatch, squeue and Slurm's other commands?")
            if asked is None
            else asked
        )
    if asked is None:
        say.note(f"This machine has a Slurm of its own, {own}: its commands stay as they are.")
        say.note("  The cluster's are dshpc srun, dshpc sbatch, ...; --slurm puts them beside.")
        return False
    if asked:
        ours = on_path.comes_first(folder, own, os.environ)
        which = (
            f"the cluster's; the other is {own}"
            if ours
            else f"{own}; the cluster's is dshpc {own.name}"
        )
        say.note(f"This machine has a Slurm of its own, too: {own.name} is {which}.")
    return asked


def _programs(folder: Path, *, slurm: bool) -> dict[Path, str]:
    from dshpc_setup.project import on_path

    project = found_project(None)
    default = None if project is None else str(project.folder)
    names = ("dshpc", *(on_path.SLURM if slurm else ()))
    ours = program()
    return {
        folder / name: on_path.wrapper(ours, name, "DSHPC_DEFAULT_DIR", default) for name in names
    }


def program() -> str:
    """The `dshpc` that runs now, by its path: of a checkout its launcher, else that of the environment."""
    import sys

    return os.environ.get("DSHPC_COMMAND") or str(Path(sys.executable).parent / "dshpc")


def _shared(folder: Path) -> dict[Path, str]:
    """Man pages and completions, where man and the shells look beside a folder of the PATH."""
    from dshpc_setup.cli import completing, man_pages
    from dshpc_setup.project.on_path import MARK

    share = folder.parent / "share"
    pages = {
        share / "man/man1" / name: f'.\\" {MARK}\n{text}'
        for name, text in man_pages.pages().items()
    }
    texts = completing.scripts(MARK)
    return {**pages, **{share / place: texts[shell] for shell, place in _SCRIPTS.items()}}


def _tell(say: ConsoleReporter, folder: Path, done: Outcome) -> None:
    from dshpc_setup.project import on_path

    if done.written:
        say.note(f"In {folder}: {', '.join(path.name for path in done.written)}")
    for path in done.foreign:
        say.note(f"Left as it is, for it is not ours: {path}")
    if not on_path.is_on_path(folder, os.environ):
        say.note(
            f'{folder} is not on your PATH. In your shell\'s profile: export PATH="{folder}:$PATH"'
        )
    if _uses(os.environ, "zsh"):
        place = folder.parent / "share" / _SCRIPTS["zsh"]
        say.note(f"For zsh, in ~/.zshrc before compinit: fpath+=({place.parent})")
    if (project := found_project(None)) is not None:
        say.note(f"Outside of projects they use {project.folder}; DSHPC_DIR names another.")


def _uses(environ: Mapping[str, str], shell: str) -> bool:
    return os.path.basename(environ.get("SHELL", "")) == shell


@app.command(
    "completion", rich_help_panel="Set up", epilog=examples('eval "$(dshpc completion bash)"')
)
def completion(
    shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print a shell's completion for dshpc: commands, options, jobs, methods, nodes, settings, findings."""
    from dshpc_setup.cli import completing
    from dshpc_setup.project.on_path import MARK

    if shell not in _SHELLS:
        raise usage_error(
            f"{shell!r}: there is no completion for it.", "", "One of: bash, zsh, fish."
        )
    put(completing.scripts(MARK)[shell])
    finish(Exit.OK)


@app.command("man", rich_help_panel="Inspect", epilog=examples("dshpc man job | man -l -"))
def man(
    command: Annotated[
        str | None, typer.Argument(metavar="[COMMAND]", help="job, run, ... (default: all in one).")
    ] = None,
) -> None:
    """Print the man page of dshpc, or of one of its commands."""
    from dshpc_setup.cli import man_pages

    pages = man_pages.pages()
    name = f"dshpc-{command}.1" if command else "dshpc.1"
    if name not in pages:
        raise usage_error(f"{command!r} has no man page.", "", "See what there is: dshpc man")
    put(pages[name])
    finish(Exit.OK)

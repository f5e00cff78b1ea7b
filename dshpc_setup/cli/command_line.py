"""What the commands of typer share: the program, its options, the project and the machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
import typer.core

from dshpc_setup.cli import manual, print_json, put
from dshpc_setup.cli.console import ConsoleReporter, is_interactive
from dshpc_setup.cli.folders import folder_of, found_project
from dshpc_setup.terminal.command_names import as_called

if TYPE_CHECKING:
    from dshpc_setup.machine import Machine
    from dshpc_setup.machine.local import LocalMachine
    from dshpc_setup.observed.cluster_status import ClusterStatus
    from dshpc_setup.project.folder import Project

HELP: dict[str, Any] = {"help_option_names": ["-h", "--help"]}


_Function = TypeVar("_Function", bound=Callable[..., Any])


class _Command(typer.core.TyperCommand):
    """Its usage names arguments as the man pages do: Typer writes {ID...}... for ID..."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        shown = [each for each in self.params if not getattr(each, "hidden", False)]
        named = [manual.typed(each) for each in shown if isinstance(each, typer.core.TyperArgument)]
        return [*([self.options_metavar] if self.options_metavar else []), *named]


class Commands(typer.Typer):
    """A group of commands."""

    def command(self, name: str | None = None, **options: Any) -> Callable[[_Function], _Function]:
        return super().command(name, cls=_Command, **options)


app = Commands(
    name="dshpc",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings=HELP,
)
config_app = Commands(
    help="Show and change settings, and files that you edited.", no_args_is_help=True
)
app.add_typer(config_app, name="config", rich_help_panel="Set up")


finished: list[int] = []  # the exit code of the command that ran; empty while only the parser has


def finish(code: int) -> None:
    """The running command's exit code."""
    finished.append(int(code))


def _version(asked: bool) -> None:
    if asked:
        from dshpc_setup import __version__

        print(f"dshpc {__version__}")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option(
        "--version", "-V", callback=_version, is_eager=True, help="Show the version and exit."
    ),
]


@app.callback()
def options(*, version: Version = False) -> None:
    """Run Slurm in a container, configured from the hardware that is there."""


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Answer every question with yes.")]
StopJobs = Annotated[
    bool,
    typer.Option("--stop-jobs", help="Stop running jobs without asking; --yes does not."),
]
WhenIdle = Annotated[
    bool,
    typer.Option(
        "--when-idle",
        help="Wait until no job runs, with the queue held meanwhile, and do it then.",
    ),
]
Dir = Annotated[
    Path | None,
    typer.Option("--dir", metavar="DIR", help="Project folder (default: the current one)."),
]


def examples(*lines: str) -> str:
    """What stands below a command's help: lines that can be typed."""
    said = "\n\n".join(line.replace("[", r"\[") for line in lines)
    return f"For example:\n\n{said}"


def show_status(now: ClusterStatus, json_output: bool, *, changed: bool = False) -> None:
    """`changed`: after a command that was to put config/ in force."""
    from dshpc_setup.cluster.status import lines

    code = now.exit_code_of_change if changed else now.exit_code
    if json_output:
        print_json({**now.to_json(), "exit_code": code})
    else:
        put("".join(f"{as_called(line)}\n" for line in lines(now)))
    finish(code)


def this_machine() -> LocalMachine:
    from dshpc_setup.machine.local import LocalMachine

    return LocalMachine()


def machine_of(project: Project) -> Machine:
    """This machine, on which the project's own engine is the one that answers."""
    from dshpc_setup import engine_door

    return engine_door.of(this_machine(), project.runtime())


def reporter(yes: bool = False) -> ConsoleReporter:
    return ConsoleReporter(to_stderr=True, yes=yes, interactive=is_interactive())


def needed_project(folder: Path | None) -> Project:
    """As found_project; raises DshpcError where there is none."""
    from dshpc_setup.project.folder import need_project

    return found_project(folder) or need_project(folder_of(folder), environment())


def environment() -> Mapping[str, str]:
    return this_machine().env


def project_of(folder: Path | None) -> Project:
    """The project found, or the folder that we stand in where there is none."""
    from dshpc_setup.project.folder import Project

    return found_project(folder) or Project(folder_of(None))

"""`dshpc` and `configure-environment`: the commands that may take the time to import typer."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dshpc_setup.cli.console import ConsoleReporter, is_interactive, print_error
from dshpc_setup.cli.options import with_settings
from dshpc_setup.errors import DshpcError, Exit

if TYPE_CHECKING:
    from dshpc_setup.project import Project

app = typer.Typer(
    name="dshpc",
    help="Slurm in a container, configured from the hardware that is there.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
config_app = typer.Typer(help="The settings in force and where they came from.", no_args_is_help=True)
app.add_typer(config_app, name="config")


class _Outcome:
    """The exit code of the command that ran; None while only the parser has."""

    def __init__(self) -> None:
        self.code: int | None = None


_outcome = _Outcome()


def run(arguments: list[str], program: str) -> int:
    """Parse and run; errors become text here and nowhere else."""
    _outcome.code = None
    command = typer.main.get_command(app)
    try:
        if program == "configure-environment":
            command.commands["configure"](arguments[1:], prog_name=program)  # type: ignore[attr-defined]
        else:
            command(arguments, prog_name=program)
    except SystemExit as stop:
        if _outcome.code is not None:
            return _outcome.code
        code = stop.code if isinstance(stop.code, int) else 1
        return int(Exit.USAGE) if code == 2 else code  # 2 is what the parser says to wrong usage
    except DshpcError as error:
        if "--json" in arguments:
            print_json({"schema": "dshpc.error/1", "exit_code": int(error.exit_code),
                        "error": error.to_json()})  # fmt: skip
        print_error(error, program)
        return int(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write(f"{program}: interrupted.\n")
        return int(Exit.INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        return 141
    return _outcome.code or 0


def finish(code: int) -> None:
    """The running command's exit code."""
    _outcome.code = int(code)


def print_json(value: dict[str, Any]) -> None:
    """One object, and nothing else, on stdout."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
    sys.stdout.flush()


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Answer every question with yes.")]
Dir = Annotated[
    Path | None,
    typer.Option("--dir", metavar="DIR", help="Project folder (default: the current one)."),
]


@app.command("configure", rich_help_panel="Set up")
@with_settings
def configure(
    *,
    flags: dict[str, str | None],
    yes: Yes = False,
    json_output: Json = False,
    dir: Dir = None,  # noqa: A002 -- the option's name
    settings: Annotated[
        Path | None,
        typer.Option("--settings", metavar="FILE", help="Settings file instead of DIR/dshpc.yaml."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done; change nothing.")
    ] = False,
    diff: Annotated[
        bool, typer.Option("--diff", help="Show how files differ from what is there.")
    ] = False,
    no_build: Annotated[
        bool, typer.Option("--no-build", help="Use the image that is there.")
    ] = False,
    no_start: Annotated[bool, typer.Option("--no-start", help="Do not start the cluster.")] = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Replace a cluster of the same name of another folder.")
    ] = False,
) -> None:
    """Set up Slurm on this machine: probe, configure, build, start, and prove it with a job."""
    from dshpc_setup import __version__
    from dshpc_setup.cli.configure import configure_here

    reporter = ConsoleReporter(to_stderr=json_output, yes=yes, interactive=is_interactive())
    report, folder = configure_here(
        reporter,
        header=f"dsHPC setup {__version__}",
        folder=dir,
        flags=flags,
        settings_file=settings,
        dry_run=dry_run,
        build=not no_build,
        start=not no_start,
        take_over=take_over,
        interactive=is_interactive(),
    )
    if json_output:
        print_json(report.to_json())
    from dshpc_setup.cli.configure import print_diff, print_result

    if diff:
        print_diff(report, sys.stderr if json_output else sys.stdout)
    if report.error:
        print_error(report.error, "configure-environment")
    elif not json_output:
        print_result(report, folder, dry_run=dry_run, started=not no_start)
    finish(report.exit_code)


@config_app.command("show")
def config_show(
    *,
    json_output: Json = False,
    dir: Dir = None,  # noqa: A002
    settings: Annotated[
        Path | None,
        typer.Option("--settings", metavar="FILE", help="Settings file instead of DIR/dshpc.yaml."),
    ] = None,
) -> None:
    """Every setting in force here, and where its value came from."""
    from dshpc_setup.cli.inspect import print_settings, settings_json

    project = _project(dir)
    values = project.settings(_environment(), None, settings)
    if json_output:
        print_json(settings_json(values))
    else:
        print_settings(values)
    finish(Exit.OK)


@config_app.command("unset")
def config_unset(
    names: Annotated[list[str], typer.Argument(help="Settings whose remembered flag to forget.")],
    *,
    dir: Dir = None,  # noqa: A002
) -> None:
    """Forget what a flag of an earlier run chose: environment, dshpc.yaml or default count again."""
    from dshpc_setup.cli.inspect import forget

    forget(_project(dir), names)
    finish(Exit.OK)


@app.command("detect", rich_help_panel="Look")
def detect(
    *,
    json_output: Json = False,
    root: Annotated[
        Path, typer.Option("--root", metavar="DIR", help="Read /proc, /sys, /dev, /etc under DIR.")
    ] = Path("/"),
    machine: Annotated[
        Path | None, typer.Option("--machine", metavar="DIR", help="Replay a recorded machine.")
    ] = None,
    simulate: Annotated[
        str, typer.Option("--simulate", metavar="PROFILE", help="Made-up GPUs, as configure has.")
    ] = "",
) -> None:
    """What this machine has: platform, CPUs, memory, GPUs, Docker; how each was read."""
    from dshpc_setup.cli.inspect import print_facts, seen_machine
    from dshpc_setup.probes import gather

    facts = gather(seen_machine(root, machine, simulate))
    if json_output:
        print_json(facts.to_json())
    else:
        print_facts(facts)
    incomplete = any(item.state == "timeout" for item in facts.evidence)
    finish(Exit.INCOMPLETE if incomplete else Exit.OK)


def _environment() -> Mapping[str, str]:
    from dshpc_setup.machine.local import LocalMachine

    return LocalMachine().env


def _project(folder: Path | None) -> Project:
    from dshpc_setup.project import Project, find_project

    here = (folder or Path.cwd()).expanduser().absolute()
    if folder is not None:
        return Project(here)
    return find_project(here, _environment()) or Project(here)


@app.command("doctor", rich_help_panel="Look")
def doctor(*, json_output: Json = False, dir: Dir = None) -> None:  # noqa: A002
    """What is wrong, why, and the command that mends it."""
    from dshpc_setup.cli.doctor import examine, print_findings
    from dshpc_setup.diagnose import exit_code, to_json
    from dshpc_setup.machine.local import LocalMachine
    from dshpc_setup.project import Project, find_project

    here = (dir or Path.cwd()).expanduser().absolute()
    project = Project(here) if dir else find_project(here, _environment())
    findings = examine(LocalMachine(), project)
    if json_output:
        print_json(to_json(findings))
    else:
        print_findings(findings)
    finish(exit_code(findings))

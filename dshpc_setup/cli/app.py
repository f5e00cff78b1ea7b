"""`dshpc` and `configure-environment`: the commands that may take the time to import typer."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dshpc_setup.cli import interrupted
from dshpc_setup.cli.console import ConsoleReporter, is_interactive, print_error
from dshpc_setup.cli.options import with_settings
from dshpc_setup.errors import DshpcError, Exit

if TYPE_CHECKING:
    from dshpc_setup.cluster.status import ClusterStatus
    from dshpc_setup.machine.local import LocalMachine
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
config_app = typer.Typer(
    help="The settings in force and where they came from.", no_args_is_help=True
)
app.add_typer(config_app, name="config")


_finished: list[int] = []  # the exit code of the command that ran; empty while only the parser has


def run(arguments: list[str], program: str) -> int:
    """Parse and run; errors become text here and nowhere else."""
    _finished.clear()
    command = typer.main.get_command(app)
    try:
        if program == "configure-environment":
            command.commands["configure"](arguments[1:], prog_name=program)  # type: ignore[attr-defined]
        else:
            command(arguments, prog_name=program)
    except SystemExit as stop:
        if _finished:
            return _finished[-1]
        code = stop.code if isinstance(stop.code, int) else 1
        if code == Exit.INTERRUPTED:  # the parser catches Ctrl-C and says nothing
            return interrupted(arguments, program)
        return int(Exit.USAGE) if code == 2 else code  # 2 is what the parser says to wrong usage
    except DshpcError as error:
        if "--json" in arguments:
            print_json({"schema": "dshpc.error/1", "exit_code": int(error.exit_code),
                        "error": error.to_json()})  # fmt: skip
        print_error(error, program)
        return int(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        return 141
    return _finished[-1] if _finished else 0


def finish(code: int) -> None:
    """The running command's exit code."""
    _finished.append(int(code))


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
        bool,
        typer.Option("--take-over", help="Replace a cluster of the same name of another folder."),
    ] = False,
) -> None:
    """Set up Slurm on this machine: probe, configure, build, start, and prove it with a job."""
    from dshpc_setup import __version__
    from dshpc_setup.cli.configure import configure_here

    reporter = ConsoleReporter(to_stderr=json_output, yes=yes, interactive=is_interactive())
    report = configure_here(
        reporter,
        greeting=f"dsHPC setup {__version__}",
        folder=dir,
        flags=flags,
        settings_file=settings,
        dry_run=dry_run,
        build=not no_build,
        start=not no_start,
        take_over=take_over,
        interactive=is_interactive(),
    )
    finish(report.exit_code)  # before it is told: Ctrl-C from here on changes nothing of it
    if json_output:
        print_json(report.to_json())
    from dshpc_setup.cli.configure import print_diff, print_result

    if diff:
        print_diff(report, sys.stderr if json_output else sys.stdout)
    if report.error:
        print_error(report.error, "configure-environment")
    elif not json_output:
        print_result(report, dry_run=dry_run, started=not no_start)


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


@config_app.command("set")
def config_set(
    name: Annotated[str, typer.Argument(help="The setting.")],
    value: Annotated[str, typer.Argument(help="Its value; lists with commas: 0,2")],
    *,
    dir: Dir = None,  # noqa: A002
) -> None:
    """Write one setting into dshpc.yaml, keeping its comments."""
    from dshpc_setup.cli.inspect import set_in_file

    set_in_file(_project(dir), name, value)
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


@app.command("up", rich_help_panel="Run")
def up(*, dir: Dir = None, json_output: Json = False) -> None:  # noqa: A002
    """Start the cluster and wait until jobs can run."""
    from dshpc_setup.cluster import operations as cluster

    _show(cluster.up(_machine(), _needed_project(dir), _reporter()), json_output)


@app.command("restart", rich_help_panel="Run")
def restart(*, dir: Dir = None, json_output: Json = False) -> None:  # noqa: A002
    """Start the cluster anew: it detects and configures again; queued jobs stay."""
    from dshpc_setup.cluster import operations as cluster

    _show(cluster.restart(_machine(), _needed_project(dir), _reporter()), json_output)


@app.command("status", rich_help_panel="Look")
def status(*, dir: Dir = None, json_output: Json = False) -> None:  # noqa: A002
    """How the cluster is: node, GPUs in use, isolation, what changed at the last start."""
    from dshpc_setup.cluster import operations as cluster

    _show(cluster.status(_machine(), _needed_project(dir)), json_output)


@app.command("down", rich_help_panel="Run")
def down(*, dir: Dir = None) -> None:  # noqa: A002
    """Stop the cluster; queue, users and key are kept."""
    from dshpc_setup.cluster import operations as cluster

    was = cluster.down(_machine(), _needed_project(dir), _reporter())
    print("Stopped. Queued jobs are kept: dshpc up" if was else "It was down already.")
    finish(Exit.OK)


@app.command("logs", rich_help_panel="Look")
def logs(
    *,
    dir: Dir = None,  # noqa: A002
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as it grows.")] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", min=0, help="Only the last lines.")
    ] = None,
) -> None:
    """The log of the container: its start, slurmctld and slurmd."""
    from dshpc_setup.cli.exec import hand_over
    from dshpc_setup.cluster import operations as cluster

    hand_over(cluster.logs_argv(_machine(), _needed_project(dir), follow=follow, tail=tail))


@app.command("destroy", rich_help_panel="Set up")
def destroy(
    *,
    dir: Dir = None,  # noqa: A002
    yes: Yes = False,
    image: Annotated[
        bool, typer.Option("--image", help="The images built for this cluster as well.")
    ] = False,
) -> None:
    """Remove the cluster: container, network, queue, users and key. Your files stay."""
    from dshpc_setup.cluster import operations as cluster

    gone = cluster.destroy(_machine(), _needed_project(dir), _reporter(yes), image=image)
    names = (*gone.containers, *gone.volumes, *gone.images)
    print(f"Removed: {', '.join(names)}" if names else "There was nothing to remove.")
    for note in gone.notes:
        print(note)
    finish(Exit.WARNING if gone.notes else Exit.OK)


def _hand_to_cluster(name: str, text: str) -> None:
    """Show a pass-through command in the help; it is run before typer is imported."""

    def command() -> None:
        raise AssertionError(f"{name} is handed over before typer is imported")

    command.__doc__ = text
    app.command(name, rich_help_panel="Slurm, in the cluster as yourself")(command)


for _name, _text in {
    "srun": "Run a job and wait for it: dshpc srun --gres=gpu:1 python train.py",
    "sbatch": "Queue a job script.",
    "squeue": "Jobs that run or wait.",
    "sinfo": "Nodes and partitions.",
    "scancel": "End a job.",
    "scontrol": "Look at and change jobs and nodes.",
    "salloc, sacct, ...": "And Slurm's other commands, by their names.",
    "exec": "Any command in the container: dshpc exec -- nvidia-smi",
    "shell": "A shell in the container.",
}.items():
    _hand_to_cluster(_name, _text)


def _show(now: ClusterStatus, json_output: bool) -> None:
    from dshpc_setup.cluster.status import lines

    if json_output:
        print_json(now.to_json())
    else:
        print("\n".join(lines(now)))
    finish(now.exit_code)


def _machine() -> LocalMachine:
    from dshpc_setup.machine.local import LocalMachine

    return LocalMachine()


def _reporter(yes: bool = False) -> ConsoleReporter:
    return ConsoleReporter(to_stderr=True, yes=yes, interactive=is_interactive())


def _needed_project(folder: Path | None) -> Project:
    from dshpc_setup.project import Project, need_project

    here = (folder or Path.cwd()).expanduser().absolute().resolve()
    return Project(here) if folder is not None else need_project(here, _environment())


def _environment() -> Mapping[str, str]:
    return _machine().env


def _project(folder: Path | None) -> Project:
    from dshpc_setup.project import Project, find_project

    here = (folder or Path.cwd()).expanduser().absolute()
    if folder is not None:
        return Project(here)
    return find_project(here, _environment()) or Project(here)


@app.command("doctor", rich_help_panel="Look")
def doctor(*, json_output: Json = False, dir: Dir = None) -> None:  # noqa: A002
    """What is wrong, why, and the command that mends it."""
    from dshpc_setup.checkup import examine
    from dshpc_setup.cli.doctor import print_findings
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

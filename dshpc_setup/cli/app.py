"""`dshpc` and `configure-environment`: the commands that may take the time to import typer."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dshpc_setup.cli import interrupt_code, interrupted, print_json, told
from dshpc_setup.cli.console import ConsoleReporter, as_called, is_interactive, print_error
from dshpc_setup.cli.options import Machine, NoMachine, Root, with_settings
from dshpc_setup.cli.passed_on import show_in_help
from dshpc_setup.errors import Exit, usage_error
from dshpc_setup.probes import DEADLINE_S

if TYPE_CHECKING:
    from dshpc_setup.cluster.status import ClusterStatus
    from dshpc_setup.machine.local import LocalMachine
    from dshpc_setup.project import Project

_HELP: dict[str, Any] = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(
    name="dshpc",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings=_HELP,
)
config_app = typer.Typer(
    help="The settings in force and where they came from.", no_args_is_help=True
)
app.add_typer(config_app, name="config", rich_help_panel="Set up")


_finished: list[int] = []  # the exit code of the command that ran; empty while only the parser has


def run(arguments: list[str], program: str) -> int:
    """Parse and run."""
    return told(lambda: _run(arguments, program), arguments, program)


def _run(arguments: list[str], program: str) -> int:
    _finished.clear()
    group = typer.main.get_command(app)
    command, rest = group, arguments
    if program == "configure-environment":
        command, rest = group.commands["configure"], arguments[1:]  # type: ignore[attr-defined]
    _name_no_types(group)
    try:
        code = command.main(rest, prog_name=program, standalone_mode=False)
    except typer.Abort:  # Ctrl-D at a question, and Ctrl-C where the parser of that version says so
        return interrupted(arguments, program)
    except Exception as error:
        if not hasattr(error, "format_message"):  # the parser's own, of click or of typer's copy
            raise
        return _wrong_usage(error, arguments)
    if _finished:
        return _finished[-1]
    if code == Exit.INTERRUPTED:  # the parser catches Ctrl-C and says nothing
        return interrupted(arguments, program)
    return code if isinstance(code, int) else 0


def _wrong_usage(error: Any, arguments: list[str]) -> int:
    from typer.rich_utils import rich_format_error

    if "--json" in arguments:
        said = usage_error(error.format_message(), "", "See what there is: --help")
        print_json({"schema": "dshpc.error/1", "exit_code": int(Exit.USAGE),
                    "error": said.to_json()})  # fmt: skip
    rich_format_error(error)
    return int(Exit.USAGE)


def _name_no_types(command: Any) -> None:
    """Keep `<bool>` out of the help: a switch takes nothing."""
    for option in (*command.params, command.get_help_option(typer.Context(command, **_HELP))):
        if getattr(option, "is_bool_flag", False):
            option.metavar = ""
    for each in getattr(command, "commands", {}).values():
        _name_no_types(each)


def finish(code: int) -> None:
    """The running command's exit code."""
    _finished.append(int(code))


def _version(asked: bool) -> None:
    if asked:
        from dshpc_setup import __version__

        print(f"dshpc {__version__}")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option("--version", "-V", callback=_version, is_eager=True, help="Say the version."),
]


@app.callback()
def options(*, version: Version = False) -> None:
    """Slurm in a container, configured from the hardware that is there."""


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
    machine: Annotated[
        Path | None,
        typer.Option(
            "--machine", metavar="DIR", help="What would be done on the machine recorded in DIR."
        ),
    ] = None,
    version: Version = False,  # noqa: ARG001 -- its callback has said it
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
        recorded=machine,
    )
    dry_run = dry_run or machine is not None
    if report.error and report.error.exit_code == Exit.INTERRUPTED:
        report.error.exit_code = interrupt_code()
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
    machine: Machine = None,
) -> None:
    """Every setting in force here, and where its value came from."""
    from dshpc_setup.cli.inspect import print_settings, settings_json
    from dshpc_setup.cli.seen import seen_machine

    if machine is not None:
        seen_machine("/", machine, "")  # settings are the same for each; a wrong folder is told
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
    only: Annotated[
        str | None,
        typer.Option(
            "--only",
            metavar="SECTION[,SECTION]",
            help="Of platform, cpu, memory, gpus, docker. The others are not looked at.",
        ),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Why it is concluded, and why nothing else is.")
    ] = False,
    deadline: Annotated[
        float,
        typer.Option("--deadline", metavar="SECONDS", help="When to go on without an answer."),
    ] = DEADLINE_S,
    root: Annotated[
        str, typer.Option("--root", metavar="DIR", help="Read /proc, /sys, /dev, /etc under DIR.")
    ] = "/",
    machine: Annotated[
        str | None, typer.Option("--machine", metavar="DIR", help="Replay a recorded machine.")
    ] = None,
    simulate: Annotated[
        str, typer.Option("--simulate", metavar="PROFILE", help="Made-up GPUs, as configure has.")
    ] = "",
) -> None:
    """What this machine has: platform, CPUs, memory, GPUs, Docker; how each was read."""
    from dshpc_setup.cli.detect import Asked
    from dshpc_setup.cli.detect import detect as look

    finish(look(Asked(json_output, explain, only, deadline, root, machine, simulate)))


@app.command("gpus", rich_help_panel="Look")
def gpus(
    *,
    json_output: Json = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Look again and again.")] = False,
    interval: Annotated[
        float | None,
        typer.Option("--interval", metavar="SECONDS", help="Between two looks (default: 2)."),
    ] = None,
    dir: Dir = None,  # noqa: A002
    root: Annotated[
        str, typer.Option("--root", metavar="DIR", help="Read /proc, /sys, /dev, /etc under DIR.")
    ] = "/",
    machine: Annotated[
        str | None, typer.Option("--machine", metavar="DIR", help="Replay a recorded machine.")
    ] = None,
) -> None:
    """Every GPU: memory, use, temperature, power, MIG, its Slurm type, and which job holds it."""
    from dshpc_setup.cli.gpus import show
    from dshpc_setup.project import Project, find_project

    here = _folder(dir)
    project = Project(here) if dir else find_project(here, _environment())
    finish(
        show(
            project,
            json_output=json_output,
            watching=watch,
            interval=interval,
            root=root,
            machine=machine,
        )
    )


@app.command("up", rich_help_panel="Run")
def up(
    *,
    dir: Dir = None,  # noqa: A002
    json_output: Json = False,
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """Start the cluster and wait until jobs can run."""
    from dshpc_setup.cluster import operations as cluster

    _show(cluster.up(_machine(), _needed_project(dir), _reporter()), json_output)


@app.command("restart", rich_help_panel="Run")
def restart(
    *,
    dir: Dir = None,  # noqa: A002
    json_output: Json = False,
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """Start the cluster anew: it detects and configures again; queued jobs stay."""
    from dshpc_setup.cluster import operations as cluster

    _show(cluster.restart(_machine(), _needed_project(dir), _reporter()), json_output)


@app.command("status", rich_help_panel="Look")
def status(
    *,
    dir: Dir = None,  # noqa: A002
    json_output: Json = False,
    machine: Machine = None,
) -> None:
    """How the cluster is: node, GPUs in use, isolation, what changed at the last start."""
    from dshpc_setup.cli.seen import seen_machine
    from dshpc_setup.cluster import operations as cluster

    asked = _machine() if machine is None else seen_machine("/", machine, "")
    _show(cluster.status(asked, _needed_project(dir)), json_output)


@app.command("down", rich_help_panel="Run")
def down(*, dir: Dir = None, machine: NoMachine = None) -> None:  # noqa: A002, ARG001
    """Stop the cluster; queue, users and key are kept."""
    from dshpc_setup.cluster import operations as cluster

    was = cluster.down(_machine(), _needed_project(dir), _reporter())
    print(as_called("Stopped. Queued jobs are kept: dshpc up") if was else "It was down already.")
    finish(Exit.OK)


@app.command("logs", rich_help_panel="Look")
def logs(
    *,
    dir: Dir = None,  # noqa: A002
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as it grows.")] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", min=0, metavar="N", help="Only the last lines.")
    ] = None,
    machine: NoMachine = None,  # noqa: ARG001
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
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """Remove the cluster: container, network, queue, users and key. Your files stay."""
    from dshpc_setup.cluster.destroy import destroy as destroy_cluster

    gone = destroy_cluster(_machine(), _needed_project(dir), _reporter(yes), image=image)
    print(f"Removed: {', '.join(gone.removed)}" if gone.removed else "There was nothing to remove.")
    for text in gone.left:
        print(as_called(f"Not removed: {text}"))
    for text in gone.notes:
        print(text)
    finish(Exit.WARNING if gone.left else Exit.OK)


show_in_help(app, finish)


def _show(now: ClusterStatus, json_output: bool) -> None:
    from dshpc_setup.cluster.status import lines

    if json_output:
        print_json(now.to_json())
    else:
        print("\n".join(map(as_called, lines(now))))
    finish(now.exit_code)


def _machine() -> LocalMachine:
    from dshpc_setup.machine.local import LocalMachine

    return LocalMachine()


def _reporter(yes: bool = False) -> ConsoleReporter:
    return ConsoleReporter(to_stderr=True, yes=yes, interactive=is_interactive())


def _needed_project(folder: Path | None) -> Project:
    from dshpc_setup.project import Project, need_project

    here = _folder(folder)
    return Project(here) if folder is not None else need_project(here, _environment())


def _environment() -> Mapping[str, str]:
    return _machine().env


def _folder(named: Path | None) -> Path:
    try:
        here = (named or Path.cwd()).expanduser().absolute().resolve()
    except FileNotFoundError:
        raise usage_error(
            "The folder that you are in was removed.", "", "Go to another, or name one: --dir DIR."
        ) from None
    if named is not None and not here.is_dir():
        raise usage_error(f"--dir {named}: there is no such folder.")
    return here


def _project(folder: Path | None) -> Project:
    from dshpc_setup.project import Project, find_project

    here = _folder(folder)
    if folder is not None:
        return Project(here)
    return find_project(here, _environment()) or Project(here)


@app.command("doctor", rich_help_panel="Look")
def doctor(
    *,
    json_output: Json = False,
    dir: Dir = None,  # noqa: A002
    machine: Machine = None,
) -> None:
    """What is wrong, why, and the command that mends it."""
    from dshpc_setup.checkup import examine, examine_recorded
    from dshpc_setup.cli.doctor import print_findings
    from dshpc_setup.cli.seen import seen_machine
    from dshpc_setup.diagnose import exit_code, to_json
    from dshpc_setup.project import Project, find_project

    here = _folder(dir)
    project = Project(here) if dir else find_project(here, _environment())
    if machine is None:
        findings = examine(_machine(), project)
    else:
        findings = examine_recorded(seen_machine("/", machine, ""), project, _environment())
    if json_output:
        print_json(to_json(findings))
    else:
        print_findings(findings)
    finish(exit_code(findings))


@app.command("record", rich_help_panel="Look")
def record(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, or an empty one.")],
    *,
    json_output: Json = False,
    yes: Yes = False,
    root: Root = Path("/"),
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """Capture this machine, scrubbed, as a folder to send or to replay: --machine DIR."""
    from dshpc_setup.cli.record import lines
    from dshpc_setup.cli.seen import seen_machine
    from dshpc_setup.record.recorder import record as record_machine

    done = record_machine(seen_machine(root, None, ""), folder, _reporter(yes))
    if json_output:
        print_json(done.to_json())
    else:
        print("\n".join(map(as_called, lines(done))))
    finish(Exit.OK)

"""The words around a run of configure-environment."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from dshpc_setup.apply.owned import NEW
from dshpc_setup.cli.console import ConsoleReporter
from dshpc_setup.cli.elevate import go_on_with_sudo
from dshpc_setup.cli.exec import say_ignored
from dshpc_setup.cli.folders import may_look
from dshpc_setup.cli.seen import seen_machine
from dshpc_setup.cluster.idle import WhenIdle
from dshpc_setup.cluster.stopping import MayStop
from dshpc_setup.engine.privilege import caller
from dshpc_setup.engine.refusals import in_docker_group
from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.project import known
from dshpc_setup.project.folder import Project, find_project
from dshpc_setup.setup.pipeline import Configure
from dshpc_setup.setup.report import Report
from dshpc_setup.setup.run import Options
from dshpc_setup.terminal.command_names import as_called
from dshpc_setup.terminal.sanitize import harmless


def configure_here(
    reporter: ConsoleReporter,
    *,
    greeting: str,
    folder: Path | None,
    flags: Mapping[str, str | None],
    settings_file: Path | None,
    dry_run: bool,
    build: bool,
    renew: bool,
    image_file: Path | None,
    start: bool,
    take_over: bool,
    stop_jobs: bool,
    when_idle: bool = False,
    interactive: bool,
    recorded: Path | None = None,
    join: str | None = None,
    node_name: str | None = None,
) -> Report:
    """Run it for the project folder; what happened is in the report.

    `recorded`: a machine to replay. Then nothing is started or written: it is a dry run. `join`: the token of
    a cluster elsewhere.
    """
    if join is not None and recorded is not None:
        raise usage_error(
            "A recorded machine cannot join a cluster.", "", "Leave --machine or --join out."
        )
    machine = LocalMachine()
    seen = seen_machine("/", recorded, "")  # before anything is said
    project = _project(folder, machine)
    where = project.folder
    who = None if recorded else caller(machine)  # of a replay nothing is left that has an owner
    project.owner = (who.uid, who.gid) if who and who.via_sudo else None
    joining = None
    if join is not None:
        from dshpc_setup.join import client

        client.refuse_settings(flags)
        wanted = client.Wanted(
            join, node_name or "", flags.get("listen") or "", flags.get("work") or ""
        )
        reporter.progress("asking the cluster")
        joining = client.begin(machine, project, wanted)
    held = WhenIdle(when_idle)
    options = Options(
        greeting=f"{greeting} in {where}",
        flags=flags,
        settings_file=settings_file,
        dry_run=dry_run or recorded is not None,
        build=build,
        renew=renew,
        image_file=None if image_file is None else image_file.expanduser().absolute(),
        start=start,
        take_over=take_over,
        may_stop=MayStop(stop_jobs, _command_line(), held),
        interactive=interactive,
        env=machine.env,
        replayed=None if recorded is None else str(recorded),
        joining=joining,
    )
    with held:
        report = Configure(seen, project, options, reporter).run()
    if not options.dry_run and report.error is None:
        with suppress(DshpcError):  # where nothing can be remembered, a command names the folder
            known.remember(str(where), machine.env)
    if not options.dry_run:
        go_on_with_sudo(machine, report.error, reporter, interactive=interactive)
    return report


def _command_line() -> str:
    """What was typed, to be typed again with another word."""
    words = sys.argv[1:]
    return shlex.join(["configure-environment", *words[words[:1] == ["configure"] :]])


def _project(named: Path | None, machine: LocalMachine) -> Project:
    """The folder named, else the project that we stand in (its work folder, say), else this one.

    Whether its files may be used is for the run itself to say.
    """
    here = (named or Path.cwd()).expanduser().absolute().resolve()
    if named is not None:
        may_look(named, here)
    found = find_project(here, machine.env) if named is None else None
    if found is None:
        return Project(here)
    say_ignored(found.ignored)
    return found


def print_diff(report: Report, stream: TextIO) -> None:
    """The difference of every file that a run would change, or keep as the user made it."""
    for change in report.changes:
        stream.write(change.diff())


def _way_there(named: Path | None) -> str:
    """What goes before a command of the project, for who stands elsewhere than in its folder."""
    if named is None:
        return ""
    machine = LocalMachine()
    folder = _project(named, machine).folder
    here = find_project(Path.cwd(), machine.env)
    found = here is not None and here.folder == folder
    return "" if found else f"cd {shlex.quote(str(folder))} && "


def print_result(
    report: Report, named: Path | None, *, dry_run: bool, started: bool, diff: bool = False
) -> None:
    """What to do next; `named` is the folder of --dir."""
    if dry_run:
        for change in report.changes:
            print(f"{change.action:<13} {change.path}")
        print(f"Nothing was changed ({'--diff' if diff else '--dry-run'}).")
        return
    for change in report.changes:
        if change.action == "kept-edited" and not change.rejected:
            print(f"{change.path} was edited by hand and is kept; the new text is in "
                  f"{change.path}{NEW}")  # fmt: skip
            print(harmless(change.diff()), end="")
            print(as_called(f"Take the new text: dshpc config accept {change.path}   "
                            f"Keep yours: dshpc config reject {change.path}"))  # fmt: skip
    if not started:
        print(as_called(f"Configured. Start the cluster with: {_way_there(named)}dshpc up"))
        return
    for node in report.cluster.nodes:
        gres = node.gres or "no GPU"
        label = " (SIMULATED)" if report.simulated and node.gres else ""
        print(harmless(f"Slurm is up: node {node.name} is {node.state}, {gres}{label}"))
    gpu = any(node.gres for node in report.cluster.nodes)
    request = "--gres=gpu:1 " if gpu else ""
    machine = LocalMachine()
    who = caller(machine)
    sudo = ""
    if who.via_sudo and not in_docker_group(machine, who):
        sudo = "sudo "
        print(f"To use it without sudo: sudo usermod -aG docker {shlex.quote(who.name)}, "
              "then log in again.")  # fmt: skip
    print(as_called(f"Try: {_way_there(named)}{sudo}dshpc srun {request}hostname"))

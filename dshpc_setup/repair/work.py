"""Doing one repair. Each raises DshpcError where it did not come to its end."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from dshpc_setup.apply.apply import read_text
from dshpc_setup.cluster import operations, reconfigure, targets, verify
from dshpc_setup.engine import containers, daemon
from dshpc_setup.engine.packages import last_lines
from dshpc_setup.engine_client import DOCKER
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.files.anchored import open_file
from dshpc_setup.files.atomic import remove, write_atomic, write_error
from dshpc_setup.project.folder import Project
from dshpc_setup.repair.backup import back_up
from dshpc_setup.repair.context import ask_nodes
from dshpc_setup.repair.engine_restart import restart_engine
from dshpc_setup.repair.model import Kind, Repair
from dshpc_setup.repair.node import taken_out
from dshpc_setup.repair.site import Site
from dshpc_setup.setup.report import Step, StepName
from dshpc_setup.slurm.nodes import Node
from dshpc_setup.terminal.reporter import Reporter

_RUN_S = 120.0
_ASK_S = 20.0
_DAEMON_S = 15.0
_ANSWERS = 20  # times that a resumed node is asked about, half a second apart


def do(site: Site, repair: Repair) -> None:
    """Copy what it changes, then do it."""
    site.reporter.progress(repair.does)
    _DOERS[repair.kind](site, repair)


def _run(site: Site, repair: Repair) -> None:
    back_up(site, repair.changes, root=repair.root)
    for argv in repair.commands:
        done = site.run(argv, root=repair.root, deadline_s=_RUN_S)
        if not done.ok:
            late = done.state == "timeout"
            how = f"was not done after {_RUN_S:.0f} seconds" if late else "failed"
            raise DshpcError(
                f"{argv[0]} {how}",
                last_lines(done),
                repair.shown(),
                Exit.INCOMPLETE if late else Exit.ERROR,
            )


def _start_engine(site: Site, _: Repair) -> None:
    daemon.start(site.machine, site.reporter, interactive=site.interactive)
    _wait_for_cluster(site, up=False)


def _restrict_env(_: Site, repair: Repair) -> None:
    path = repair.commands[0][-1]
    try:
        handle = open_file(Path(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.fchmod(handle, 0o600)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise DshpcError(f"{path} is a link: its mode is left as it is.") from None
        raise write_error(error, path) from None


def _start_cluster(site: Site, _: Repair) -> None:
    operations.up(site.machine, _project(site), site.reporter)


def _restart_cluster(site: Site, _: Repair) -> None:
    operations.restart(site.machine, _project(site), site.reporter)


def _reconfigure(site: Site, _: Repair) -> None:
    done = reconfigure.reconfigure(site.machine, _project(site), site.machine.env, site.reporter)
    if done.code:
        raise DshpcError("The cluster was not reconfigured.", "\n".join(done.lines), (),
                         Exit.INCOMPLETE if done.code == Exit.INCOMPLETE else Exit.ERROR)  # fmt: skip


def _inside(site: Site, repair: Repair) -> None:
    """Commands in the cluster's own container, and in no other of its name."""
    container = targets.ours(site.machine, targets.target(_project(site)))
    if container is None:
        raise DshpcError(f"{repair.does}: its container is gone.", "", ("Start it: dshpc up",))
    for inside in _programs(repair):
        done = containers.exec_in(site.machine, container.name, inside, deadline_s=_ASK_S)
        if not done.ok:
            raise DshpcError(f"{inside[0]} failed in {container.name}", last_lines(done))


def _programs(repair: Repair) -> list[list[str]]:
    """What its commands run in the container."""
    return [found[1] for argv in repair.commands if (found := DOCKER.within(argv)) is not None]


def _start_daemon(site: Site, repair: Repair) -> None:
    """Until the controller answers and the node has registered, or soon after."""
    _inside(site, repair)
    until = site.machine.clock() + _DAEMON_S
    while site.machine.clock() < until:
        nodes = ask_nodes(site.machine, site.here.container or "")
        if nodes and all(node.registered for node in nodes):
            return
        site.machine.run(["sleep", "0.5"], deadline_s=5)
    site.reporter.note(f"{repair.about} was started, and the node does not answer yet.")


def _resume(site: Site, repair: Repair) -> None:
    """Asked once more who took it out: that may have been long before the question was answered."""
    container = targets.ours(site.machine, targets.target(_project(site)))
    if container is None:
        raise DshpcError(f"The node {repair.about} is not resumed: its container is gone.")
    now = taken_out(ask_nodes(site.machine, container.name))
    found = next((out for out in now if out.name == repair.about), None)
    if found is None:
        return  # it takes jobs again, or it is not known any more
    if not found.own:
        raise DshpcError(
            f"The node {found.name} is not resumed: {found.who or 'a person'} has drained it.",
            found.reason,
        )
    (inside,) = _programs(repair)
    done = containers.exec_in(site.machine, container.name, inside, deadline_s=_ASK_S)
    if not done.ok:
        raise DshpcError(f"The node {found.name} cannot be resumed.", last_lines(done),
                         ("See: dshpc scontrol show node",))  # fmt: skip
    _refuse_still_out(site, container.name, found.name)


def _refuse_still_out(site: Site, container: str, name: str) -> None:
    """The controller may take it out again at once; before that it waits for the node's answer."""
    nodes: list[Node] = []
    for again in range(_ANSWERS):
        nodes = [node for node in ask_nodes(site.machine, container) if node.name == name]
        if not any(node.silent for node in nodes):
            break
        if again < _ANSWERS - 1:
            site.machine.run(["sleep", "0.5"], deadline_s=5)
    still = next((node for node in nodes if node.unwell), None)
    if still is not None:
        raise DshpcError(
            f"The node {name} is {'+'.join(still.states)} again.",
            still.why,
            ("See: dshpc scontrol show node", "Or let it look again: dshpc reconfigure"),
        )


def _render(site: Site, repair: Repair) -> None:
    """configure-environment without the build; what it did not change keeps no copy."""
    from dshpc_setup.setup.pipeline import Configure
    from dshpc_setup.setup.run import Options

    project = _project(site)
    before = {path: _remembered(path) for path in repair.changes}
    copies = {path: _kept(site, project, path, was) for path, was in before.items() if was}
    options = Options(
        build=False,
        start="--no-start" not in repair.commands[0],
        interactive=site.interactive,
        env=site.machine.env,
    )
    try:
        report = Configure(site.machine, project, options, _Steps(site.reporter)).run()
    finally:
        for path, copy in copies.items():
            if (was := before[path]) and read_text(Path(path)) == was[0]:
                remove(Path(copy))
            else:
                site.backups[path] = copy
    if report.error is not None:
        if report.error.exit_code == Exit.INTERRUPTED:
            raise KeyboardInterrupt
        raise report.error


def _remembered(path: str) -> tuple[str, int] | None:
    """Text and mode; None where there is no such file."""
    text = read_text(Path(path))
    return None if text is None else (text, Path(path).stat().st_mode & 0o7777)


def _kept(site: Site, project: Project, path: str, was: tuple[str, int]) -> str:
    copy = Path(f"{path}.dshpc-backup-{site.time}")
    write_atomic(copy, was[0], was[1], project.owner)
    return str(copy)


class _Steps:
    """The steps of configure-environment as lines of progress."""

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter
        self.progress, self.note, self.ask = reporter.progress, reporter.note, reporter.ask

    def begin(self, name: StepName) -> None:
        self.reporter.progress(name)

    def end(self, step: Step) -> None:
        if step.state == "failed":
            self.reporter.note(f"{step.name}: {step.detail or 'failed'}")


def _project(site: Site) -> Project:
    if site.project is None:
        raise DshpcError("There is no project folder.", "", ("Name it: --dir DIR",))
    return site.project


def _restart_engine(site: Site, repair: Repair) -> None:
    restart_engine(site, repair)
    cluster = site.known.observed.cluster
    _wait_for_cluster(site, up=cluster is not None and cluster.state == "running")


def _wait_for_cluster(site: Site, *, up: bool) -> None:
    """Until it takes jobs where the engine has started it; with `up` it is started where not.

    That it does not is a note here, and a finding of the checks that follow.
    """
    if site.project is None or site.here.container is None:
        return
    try:
        found = targets.ours(site.machine, targets.target(site.project))
        if found is not None and found.running:
            site.reporter.progress("waiting for the cluster")
            verify.wait_ready(site.machine, found.name)
        elif up:
            operations.up(site.machine, site.project, site.reporter)
    except DshpcError as error:
        site.reporter.note(f"The cluster is not ready: {error.brief}")


_DOERS: dict[Kind, Callable[[Site, Repair], None]] = {
    "load-uvm": _run,
    "start-engine": _start_engine,
    "register-runtime": _run,
    "enable-cdi": _run,
    "write-cdi": _run,
    "restart-engine": _restart_engine,
    "restrict-env": _restrict_env,
    "start-cluster": _start_cluster,
    "restrict-key": _inside,
    "start-daemon": _start_daemon,
    "restart-cluster": _restart_cluster,
    "resume-node": _resume,
    "reconfigure": _reconfigure,
    "render": _render,
}

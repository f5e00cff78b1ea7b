"""What `dshpc up|down|restart|status|logs` do; the command line parses and prints."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace

from dshpc_setup import engine_client
from dshpc_setup.apply.apply import read_text
from dshpc_setup.cluster import (
    compose_file,
    homes,
    not_in_force,
    queue_room,
    serving,
    stopping,
    trial,
    verify,
    workers,
)
from dshpc_setup.cluster import status as cluster_status
from dshpc_setup.cluster.awake import awake, awake_meanwhile
from dshpc_setup.cluster.stopping import MayStop
from dshpc_setup.cluster.targets import (
    COMPOSE_LABEL,
    Target,
    compose_of,
    container_of,
    ours,
    target,
    workers_of,
)
from dshpc_setup.engine import compose as compose_tool
from dshpc_setup.engine import containers, start_report
from dshpc_setup.engine.containers import Container
from dshpc_setup.engine.images import inspect as inspect_image
from dshpc_setup.engine_client import DOCKER
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.facts import Compose
from dshpc_setup.image import replaced
from dshpc_setup.machine import Machine
from dshpc_setup.machine.longer_deadlines import patient
from dshpc_setup.observed.cluster_status import ClusterStatus
from dshpc_setup.project.folder import JOINED, Project
from dshpc_setup.project.refusals import need_own_engine
from dshpc_setup.settings import lent
from dshpc_setup.terminal.reporter import Reporter
from dshpc_setup.terminal.sanitize import plain

_ASK_S = 20.0
_LAST_LINES = 15
_ONE_USER = (
    "The container has one user, and jobs of others are refused: you have no range of ids here. With "
    "one, and the package uidmap, it has all: sudo usermod --add-subuids 100000-165535 --add-subgids "
    "100000-165535 $USER"
)


def up(
    machine: Machine, project: Project, reporter: Reporter, may: MayStop = MayStop()
) -> ClusterStatus:
    """Start the cluster, if it does not run, and wait until jobs can run.

    Where it runs, and docker-compose.yml is another now, it is started anew: tried before, and only with
    `may` or after a question where jobs run.
    """
    project.need_own()
    machine = patient(machine)
    cluster = target(project)
    compose = compose_of(machine, cluster)
    with project.lock():
        found = ours(machine, cluster)
        _need_folders(cluster)
        reporter.progress(f"starting {cluster.container}")
        found = awake(machine, found)
        _check_image(machine, cluster)
        recreate = True
        if found is not None and found.status == "running":
            recreate = _may_be_made_anew(machine, cluster, compose, found, reporter, may)
        elif found is not None:
            _rescue_homes(machine, cluster, found, reporter)
        compose_tool.up(
            machine,
            compose,
            project.folder,
            cluster.prefix,
            on_line=reporter.progress,
            recreate=recreate,
        )
        now = containers.inspect(machine, cluster.container)
        compose_file.remember_used(project, now)
        if found is not None and found.status == "running":
            _try_again(machine, cluster, found, now, reporter)
        ready = _ready(machine, cluster, reporter)
        if found is not None and now is not None and ready.ready:
            replaced.remove(machine, (found.image_id,), now.image_id)
        serving.follow(machine, project, reporter)
        return ready


def _need_folders(cluster: Target) -> None:
    """Raises DshpcError where a folder that jobs see is not there: Docker would make one that is root's."""
    seen = cluster.project.runtime()
    toolkits = lent.sources(seen.get("toolkits", ()))
    for folders, setting in (
        (seen.get("homes", ()), "home"),
        (seen.get("mounts", ()), "mounts"),
        (toolkits, "toolkit"),
    ):
        gone = next((each for each in folders if not os.path.isdir(each)), None)
        if gone is not None:
            raise DshpcError(
                f"The folder {plain(gone)}, which jobs see, is not there.",
                f"It was removed or moved since the cluster was set up; the setting {setting} names it.",
                (
                    "Bring it back: mount it, or move it there again.",
                    f"Or change the setting {setting}, then: configure-environment",
                ),
            )
    if not os.path.isdir(cluster.work):
        raise DshpcError(
            f"The work folder {cluster.work} is not there.",
            "It was removed or moved since the cluster was set up.",
            (
                "Move it back, or make it again, empty: "
                f"mkdir {shlex.quote(cluster.work)} && dshpc up",
                "Or use another one: configure-environment --work DIR",
            ),
        )


def _may_be_made_anew(
    machine: Machine,
    cluster: Target,
    compose: Compose,
    found: Container,
    reporter: Reporter,
    may: MayStop,
) -> bool:
    """Whether compose may make another container of it; raises where it has to, and must not (yet)."""
    text = read_text(cluster.project.folder / compose_tool.FILE) or ""
    if compose_file.made_from(cluster.project, text, found) is True:
        return False
    if trial.is_ready(machine, found.name):
        queue_room.check_folder(machine, found.name, cluster.project)
        folder = str(cluster.project.folder)
        note = trial.with_options(machine, compose, folder, cluster.prefix, text, found)
        if note is not None:
            reporter.note(note)
    _may_stop(machine, cluster, reporter, may, "restarted", "up")
    _rescue_homes(machine, cluster, found, reporter)
    return True


def _rescue_homes(machine: Machine, cluster: Target, found: Container, reporter: Reporter) -> None:
    text = read_text(cluster.project.folder / compose_tool.FILE) or ""
    homes.rescue(machine, found, cluster.prefix, str(cluster.project.folder), text, reporter)


def _may_stop(
    machine: Machine, cluster: Target, reporter: Reporter, may: MayStop, what: str, verb: str
) -> None:
    """Raises DshpcError where jobs run that nobody agreed to stop; else they are told why they end."""
    command = f"dshpc {verb}"
    stopping.may_stop(
        machine,
        cluster.container,
        reporter,
        agreed=may.agreed,
        what=what,
        command=command,
        when_idle=may.when_idle,
    )
    stopping.remember(cluster.project, command)


def _try_again(
    machine: Machine, cluster: Target, before: Container, now: Container | None, reporter: Reporter
) -> None:
    """A start that failed is over: nothing but another one makes the same container ready."""
    if now is None or now.id != before.id:
        return
    if start_report.ask(machine, cluster.container).get("phase") == "failed":
        reporter.progress(f"its start had failed: starting {cluster.container} again")
        containers.restart(machine, cluster.container)


def down(machine: Machine, project: Project, reporter: Reporter, may: MayStop = MayStop()) -> bool:
    """Stop and remove the container; False where there was none. Queue, users, homes and key are kept.

    Raises DshpcError where jobs run, but with `may` or after a question.
    """
    cluster = target(project)
    compose = compose_of(machine, cluster) if project.foreign is None else None
    with project.lock(files=compose is not None):
        found = ours(machine, cluster)
        if found is not None and found.running:
            with awake_meanwhile(machine, found):
                _may_stop(machine, cluster, reporter, may, "stopped", "down")
        reporter.progress(f"stopping {cluster.container}")
        serving.stop(project)
        if compose is not None:
            compose_tool.down(machine, compose, project.folder, cluster.prefix)
        elif found is not None:
            for each in workers_of(machine, cluster).values():
                containers.remove(machine, each.name)
            _remove(machine, found)
    return found is not None


def _remove(machine: Machine, found: Container) -> None:
    """What compose would, without its file, which is another user's: the container is labelled as his."""
    name = found.labels.get(COMPOSE_LABEL)
    networks = containers.networks(machine, f"{COMPOSE_LABEL}={name}") if name else ()
    containers.remove(machine, found.name)
    for network in networks:
        containers.remove_network(machine, network)


def restart(
    machine: Machine,
    project: Project,
    reporter: Reporter,
    may: MayStop = MayStop(),
    *,
    tried: bool = True,
) -> ClusterStatus:
    """Start anew in the same container, or up where there is none: it detects and renders again.

    Tried before anything stops, but with `tried` false: with another state it is another start. Where jobs
    run, only with `may` or after a question.
    """
    machine = patient(machine)
    cluster = target(project)
    found = ours(machine, cluster)
    if found is None or not found.running:
        return up(machine, project, reporter, may)
    _need_folders(cluster)
    with project.lock(files=False):
        with awake_meanwhile(machine, found):
            if tried and trial.is_ready(machine, cluster.container):
                reporter.progress("trying the start beside what runs")
                queue_room.check_folder(machine, cluster.container, project)
                trial.in_place(machine, cluster.container)
            _may_stop(machine, cluster, reporter, may, "restarted", "restart")
        reporter.progress(f"restarting {cluster.container}")
        containers.restart(machine, cluster.container)
        for node, each in workers_of(machine, cluster).items():
            reporter.progress(f"restarting node {node}")
            containers.restart(machine, each.name)
        return _ready(machine, cluster, reporter)


def status(machine: Machine, project: Project) -> ClusterStatus:
    """How the cluster is; also of one that does not run."""
    cluster = target(project)
    found = ours(machine, cluster)
    if found is None:
        need_own_engine(str(project.folder), project.runtime())
    now = cluster_status.ask(machine, str(project.folder), cluster.container)
    if project.foreign is not None:
        return now
    files = now.files
    if files is not None and (whose := compose_file.owner(project)) != "missing":
        files = {**files, compose_tool.FILE: "rendered" if whose == "ours" else whose}
    files_late = not_in_force.files(project, now)
    settings_late = not_in_force.settings(project, machine.env)
    late = [*files_late, *settings_late.sentences()]
    if files_late or settings_late.behind:
        now = replace(now, refused=settings_late.refused)
    is_owned = "owner" in project.read_note(JOINED)  # it says what it is itself
    if found is not None and found.labels.get(engine_client.IDS_LABEL) == "single" and not is_owned:
        late.append(_ONE_USER)
    if found is not None and found.running and not os.path.isdir(cluster.work):
        late.append(
            f"The work folder {cluster.work} was removed: what jobs write is lost. Make it again: "
            f"mkdir {shlex.quote(cluster.work)} && dshpc restart"
        )
    if found is not None:
        now = replace(now, compose_late=compose_file.is_late(project, found))
        late += compose_file.notes(project, late=now.compose_late)
    if others := workers_of(machine, cluster):
        late += workers.notes(machine, others)
    return replace(now, files=files, notes=(*now.notes, *late))


def logs_argv(
    machine: Machine,
    project: Project,
    *,
    follow: bool,
    tail: int | None,
    node: str | None = None,
) -> list[str]:
    """What shows the log, to hand over to (exec.hand_over); raises where there is no container."""
    found = container_of(machine, project, node)
    if found is None:
        need_own_engine(str(project.folder), project.runtime())
        raise DshpcError(
            "There is no log: the cluster is down.",
            f"There is no container {target(project).container}.",
            ("Start it: dshpc up",),
        )
    return engine_client.of(project.runtime()).logs(found.name, tail=tail, follow=follow)


def _ready(machine: Machine, cluster: Target, reporter: Reporter) -> ClusterStatus:
    """Wait until the start has ended well, and say how the cluster is then."""
    reporter.progress("waiting for Slurm")
    try:
        verify.wait_ready(machine, cluster.container)
    except DshpcError as error:
        now = containers.inspect(machine, cluster.container)
        if now is not None and now.status == "running":
            if error.exit_code == Exit.INCOMPLETE:
                raise
            steps = cluster_status.after_failure(error.fixes)
            raise replace(error, steps=steps) from None
        raise _fell_over(machine, cluster, now) from error
    others = {node: each.name for node, each in workers_of(machine, cluster).items()}
    workers.wait_ready(machine, others, reporter)
    started = cluster_status.ask(machine, str(cluster.project.folder), cluster.container)
    if cluster.project.foreign is not None:
        return started
    late = not_in_force.settings(cluster.project, machine.env).in_short()
    return replace(started, notes=(*started.notes, *late))


def _fell_over(machine: Machine, cluster: Target, now: Container | None) -> DshpcError:
    words = machine.run(DOCKER.logs(cluster.container, tail=_LAST_LINES), deadline_s=_ASK_S)
    if now is None:
        how = "its container is gone"
    elif now.status == "restarting":
        how = "its container starts and ends again and again"
    else:
        how = f"its container {containers.how(now.status)}, exit code {now.exit_code}"
    return DshpcError(
        f"The cluster did not stay up: {how}.",
        words.text or "It left no log.",
        (
            "Try it once more: dshpc restart",
            "See the whole log: dshpc logs",
            "Or set it up again: configure-environment",
        ),
    )


def _check_image(machine: Machine, cluster: Target) -> None:
    """Compose would look for a missing image at a registry, which cannot have one of ours."""
    text = (cluster.project.folder / compose_tool.FILE).read_text(
        encoding="utf-8", errors="replace"
    )
    for ref in compose_tool.images(text):
        if ref.startswith(f"{cluster.container}:") and inspect_image(machine, ref) is None:
            raise DshpcError(
                f"The image {ref} is not there.",
                "It is built on this machine and was removed, or never finished.",
                ("Build it: configure-environment",),
            )

"""Bringing the running container up to what was rendered and built, and only where that differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dshpc_setup.apply.apply import Change, read_text
from dshpc_setup.cluster import (
    awake,
    compose_file,
    homes,
    queue_room,
    reconfigure,
    stopping,
    trial,
    verify,
    workers,
)
from dshpc_setup.cluster.stopping import MayStop
from dshpc_setup.engine import compose as compose_tool
from dshpc_setup.engine import containers, start_report
from dshpc_setup.engine.containers import Container
from dshpc_setup.facts import Compose
from dshpc_setup.files import ownership
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import LIVE, Project
from dshpc_setup.render.labels import PROJECT_LABEL
from dshpc_setup.settings import DECLARATIONS, LIVE_FILE, Settings
from dshpc_setup.terminal.reporter import Reporter

_KEPT = ("kept-custom", "kept-edited")


@dataclass(frozen=True)
class Agreed:
    """The container as it was found, and why it must start (anew); None: it runs as it should.

    Where it is not `sure`, compose decides: the same container afterwards is one that ran as it should.
    `live`: it need not stop, a reconfigure will do. `report`: of its start, where it runs as it should.
    """

    found: Container | None
    why: str | None
    sure: bool = True
    live: bool = False
    report: Mapping[str, Any] = field(default_factory=dict)


def agreed(
    machine: Machine,
    project: Project,
    settings: Settings,
    compose: Compose,
    image: str,
    changes: tuple[Change, ...],
    may_stop: MayStop,
    reporter: Reporter,
) -> Agreed:
    """What has to be done for these changes, which need not be written yet; nothing is done.

    Raises DshpcError, while all goes on as it was: where a start with them was tried and would not do, and
    where jobs would have to be stopped and nobody agreed to that.
    """
    found = containers.inspect(machine, settings.container)
    if awake.is_paused(found):
        reporter.note(
            f"The container {settings.container} is paused (docker pause). It is resumed now, with its jobs; "
            "where this run is refused, it is paused again."
        )
    with awake.awake_meanwhile(machine, found) as woken:
        return _agreed(
            machine, project, settings, compose, image, changes, may_stop, reporter, woken
        )


def _agreed(
    machine: Machine,
    project: Project,
    settings: Settings,
    compose: Compose,
    image: str,
    changes: tuple[Change, ...],
    may_stop: MayStop,
    reporter: Reporter,
    found: Container | None,
) -> Agreed:
    """The same of a container that is not paused."""
    if found and _of_another(found, project):
        wanted = Agreed(found, "it is replaced (--take-over)")
    elif found and found.running:
        wanted = _wanted(machine, project, found, image, changes)
        if wanted.why is None and not _has_read(wanted.report, settings):
            names = ", ".join(_changed_live(project, settings)) or "as they were last written"
            wanted = Agreed(found, f"settings are not in force: {names}", live=True)
    else:
        return Agreed(found, "it is down")
    if not found.running or wanted.why is None:
        return wanted
    conf = next((item for item in changes if item.path == "config/slurm.conf"), None)
    if conf is not None:
        queue_room.check(machine, found.name, text_of(conf))
    _try(machine, project, settings, compose, changes, wanted, reporter)
    if not wanted.live:
        _may_stop(machine, wanted, may_stop, reporter)
    return wanted


def _try(
    machine: Machine,
    project: Project,
    settings: Settings,
    compose: Compose,
    changes: tuple[Change, ...],
    wanted: Agreed,
    reporter: Reporter,
) -> None:
    """Raises DshpcError where the start would fail, or keep to an older configuration."""
    assert wanted.found is not None
    if not trial.is_ready(machine, wanted.found.name):
        return
    reporter.progress("trying it beside what runs")
    live = settings.live_env() if _changed_live(project, settings) else None
    if wanted.live:
        trial.in_place(machine, wanted.found.name, live)
        return
    text = next(text_of(item) for item in changes if item.path == compose_tool.FILE)
    note = trial.with_options(
        machine,
        compose,
        str(project.folder),
        settings.prefix,
        text,
        wanted.found,
        live,
    )
    if note is not None:
        reporter.note(note)


def _has_read(report: Mapping[str, Any], settings: Settings) -> bool:
    """Whether the container has these settings, of those that it reads anew while it runs: a run may have
    ended between writing them and having them read."""
    digests = report.get("config_sha256")
    read = digests.get(LIVE_FILE) if isinstance(digests, dict) else None
    return bool(read == settings.live_digests().get(LIVE_FILE))


def _changed_live(project: Project, settings: Settings) -> tuple[str, ...]:
    """Settings that a reconfigure puts in force, and that are others than those written last."""
    written, wanted = project.read_note(LIVE), settings.live_env()
    return tuple(
        item.name
        for item in DECLARATIONS
        if item.live and written.get(item.env) != wanted.get(item.env)
    )


def _may_stop(machine: Machine, wanted: Agreed, may: MayStop, reporter: Reporter) -> None:
    assert wanted.found is not None
    assert wanted.why is not None
    stopping.may_stop(
        machine,
        wanted.found.name,
        reporter,
        agreed=may.agreed,
        what="restarted",
        command=may.command,
        why=wanted.why if wanted.sure else f"{wanted.why}: it may have to",
        when_idle=may.when_idle,
    )


def bring_up(
    machine: Machine,
    project: Project,
    settings: Settings,
    compose: Compose,
    agreed: Agreed,
    may_stop: MayStop,
    reporter: Reporter,
) -> bool:
    """True where the container was started or started anew; False where it goes on running.

    Raises DshpcError where a reconfigure did not do after all, and nobody agreed that jobs are stopped.
    """
    found = agreed.found
    if found and _of_another(found, project):
        containers.remove(machine, settings.container)
        found = None
    if agreed.why is None:
        return False
    if agreed.live and found is not None:
        reporter.progress("reconfiguring, with jobs going on")
        with reconfigure.in_containers(machine, reporter) as run:
            done = run(found.name).ok
            for each in workers.of_project(machine, project, found.name).values() if done else ():
                if each.status == "running":
                    run(each.name)
        if done:
            return False
        _may_stop(machine, agreed, may_stop, reporter)
    reporter.progress("starting the container")
    if found is not None:
        text = read_text(project.folder / compose_tool.FILE) or ""
        homes.rescue(machine, found, settings.prefix, str(project.folder), text, reporter)
    if found is not None and found.running:
        stopping.remember(project, may_stop.command)
    compose_tool.up(machine, compose, project.folder, settings.prefix, on_line=reporter.progress)
    now = containers.inspect(machine, settings.container)
    compose_file.remember_used(project, now)
    if found and found.running and now and now.id == found.id:
        # compose sees only its own file: the same container still runs what was there before
        if not agreed.sure:
            return False
        containers.restart(machine, settings.container)
    return True


def _of_another(found: Container, project: Project) -> bool:
    return found.labels.get(PROJECT_LABEL) != str(project.folder)


def _wanted(
    machine: Machine,
    project: Project,
    found: Container,
    image: str,
    changes: tuple[Change, ...],
) -> Agreed:
    """What a start would change, of a container of ours that runs.

    A node that somebody drained, and a health check that says so, is no reason.
    """
    if found.image_id != image:
        return Agreed(found, "the image is a new one")
    compose = next((item for item in changes if item.path == compose_tool.FILE), None)
    made: bool | None = True
    if compose is not None:
        made = compose_file.made_from(project, text_of(compose), found)
        if made is False and compose.action not in _KEPT:
            return Agreed(found, "docker-compose.yml has changed")
    report = start_report.ask(machine, found.name)
    if (inside := _inside(machine, found, changes, report)) is not None:
        return Agreed(found, inside.why, live=made is True and inside.live)
    if made is False:
        return Agreed(found, "you changed docker-compose.yml", sure=False)
    if made is None:
        return Agreed(found, "it may be of another docker-compose.yml", sure=False)
    return Agreed(found, None, report=report)


@dataclass(frozen=True)
class _Inside:
    why: str
    live: bool = False  # a reconfigure will do


def _inside(
    machine: Machine, found: Container, changes: tuple[Change, ...], report: Mapping[str, Any]
) -> _Inside | None:
    """Why what runs in the container must start anew, whatever the container itself was made from."""
    own = {
        item.path.removeprefix("config/"): ownership.digest(item.old or "")
        for item in changes
        if item.action in _KEPT and item.path.startswith("config/")
    }
    used = verify.own_files(report)
    if used is None:
        return _Inside("its start did not end well")
    if used != own:
        return _Inside("your own files in config/ have changed", live=True)
    if not verify.controller_answers(machine, found.name):
        return _Inside("Slurm's controller does not answer")
    return None


def text_of(file: Change) -> str:
    """What is used of a file: the user's own where it is one, else what was rendered."""
    return file.old or "" if file.action in _KEPT else file.wanted.text

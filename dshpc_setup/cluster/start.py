"""Bringing the running container up to what was rendered and built, and only where that differs."""

from __future__ import annotations

from dshpc_setup import ownership, stanza, verify
from dshpc_setup.apply import Change
from dshpc_setup.engine import compose as compose_tool
from dshpc_setup.engine import containers
from dshpc_setup.engine.containers import Container
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import Compose
from dshpc_setup.machine import Machine
from dshpc_setup.project import Project
from dshpc_setup.reporter import Reporter
from dshpc_setup.settings import Settings

_KEPT = ("kept-custom", "kept-edited")


def ensure_running(
    machine: Machine,
    project: Project,
    settings: Settings,
    compose: Compose,
    image: str,
    changes: tuple[Change, ...],
    reporter: Reporter,
) -> bool:
    """True where the container was started or started anew; False where it ran as it should.

    Asks before running jobs are interrupted, and raises DshpcError where the answer is no.
    """
    found = containers.inspect(machine, settings.container)
    if found and found.labels.get(stanza.PROJECT_LABEL) != str(project.folder):
        _may_interrupt(machine, found, "it is replaced (--take-over)", reporter)
        containers.remove(machine, settings.container)
        found = None
    why = why_restart(machine, found, image, changes) if found and found.running else "it is down"
    if found and found.running:
        if why is None:
            return False
        _may_interrupt(machine, found, why, reporter)
    reporter.progress("starting the container")
    compose_tool.up(machine, compose, project.folder, settings.prefix, on_line=reporter.progress)
    now = containers.inspect(machine, settings.container)
    if found and found.running and now and now.id == found.id:
        # compose sees only its own file: the same container still runs what was there before
        if why == _OWN_COMPOSE:
            return False
        containers.restart(machine, settings.container)
    return True


_OWN_COMPOSE = "docker-compose.yml is your own"


def why_restart(
    machine: Machine, found: Container, image: str, changes: tuple[Change, ...]
) -> str | None:
    """What a start would change, in words; None where it would change nothing.

    A node that somebody drained, and a health check that says so, is no reason.
    """
    if found.image_id != image:
        return "the image is a new one"
    own: dict[str, str] = {}
    for item in changes:
        if item.path == "docker-compose.yml":
            if item.action not in _KEPT and found.labels.get(
                stanza.RENDERED_LABEL
            ) != stanza.rendered_label(item.wanted.text):
                return "docker-compose.yml has changed"
        elif item.action in _KEPT and item.path.startswith("config/"):
            own[item.path.removeprefix("config/")] = ownership.digest(item.old or "")
    used = verify.own_files(machine, found.name)
    if used is None:
        return "its start did not end well"
    if used != own:
        return "your own files in config/ have changed"
    if not verify.controller_answers(machine, found.name):
        return "Slurm's controller does not answer"
    if any(item.path == "docker-compose.yml" and item.action in _KEPT for item in changes):
        return _OWN_COMPOSE  # compose itself knows best what has changed in it
    return None


def _may_interrupt(machine: Machine, found: Container, why: str, reporter: Reporter) -> None:
    jobs = verify.running_jobs(machine, found.name) if found.running and why != _OWN_COMPOSE else 0
    if not jobs:
        return
    question = (
        f"The cluster must start anew ({why}), and {jobs} job(s) run: srun's end, "
        "sbatch's are queued again. Go on?"
    )
    if not reporter.ask(question):
        raise DshpcError(
            f"The cluster was not started anew: {jobs} job(s) run.",
            f"It must be, because {why}.",
            (
                "Wait until they have ended (dshpc squeue), then run again.",
                "Or interrupt them: --yes.",
            ),
        )

"""Bringing the running container up to what was rendered and built, and only where that differs."""

from __future__ import annotations

from dataclasses import dataclass

from dshpc_setup import ownership, stanza, verify
from dshpc_setup.apply import Change
from dshpc_setup.cluster import compose_file
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


@dataclass(frozen=True)
class Agreed:
    """The container as it was found, and why it must start (anew); None: it runs as it should.

    Where it is not `sure`, compose decides: the same container afterwards is one that ran as it should.
    """

    found: Container | None
    why: str | None
    sure: bool = True


def agreed(
    machine: Machine,
    project: Project,
    settings: Settings,
    image: str,
    changes: tuple[Change, ...],
    reporter: Reporter,
) -> Agreed:
    """What has to be done for these changes, which need not be written yet; nothing is done.

    Asks before running jobs are interrupted, and raises DshpcError where the answer is no.
    """
    found = containers.inspect(machine, settings.container)
    if found and _of_another(found, project):
        wanted = Agreed(found, "it is replaced (--take-over)")
    elif found and found.running:
        wanted = _wanted(machine, project, found, image, changes)
    else:
        return Agreed(found, "it is down")
    if found.running and wanted.why is not None:
        _may_interrupt(machine, found, wanted, reporter)
    return wanted


def bring_up(
    machine: Machine,
    project: Project,
    settings: Settings,
    compose: Compose,
    agreed: Agreed,
    reporter: Reporter,
) -> bool:
    """True where the container was started or started anew; False where it ran as it should."""
    found = agreed.found
    if found and _of_another(found, project):
        containers.remove(machine, settings.container)
        found = None
    if agreed.why is None:
        return False
    reporter.progress("starting the container")
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
    return found.labels.get(stanza.PROJECT_LABEL) != str(project.folder)


_OWN_COMPOSE = "docker-compose.yml is your own"  # what it names, .env say, may have changed


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
        text = compose.old or "" if compose.action in _KEPT else compose.wanted.text
        made = compose_file.made_from(project, text, found)
        if made is False and compose.action not in _KEPT:
            return Agreed(found, "docker-compose.yml has changed")
    if (why := _inside(machine, found, changes)) is not None:
        return Agreed(found, why)
    if made is False:
        return Agreed(found, "you changed docker-compose.yml", sure=False)
    if made is None:
        return Agreed(found, "it may be of another docker-compose.yml", sure=False)
    if compose is not None and compose.action in _KEPT:
        return Agreed(found, _OWN_COMPOSE, sure=False)
    return Agreed(found, None)


def _inside(machine: Machine, found: Container, changes: tuple[Change, ...]) -> str | None:
    """Why what runs in the container must start anew, whatever the container itself was made from."""
    own = {
        item.path.removeprefix("config/"): ownership.digest(item.old or "")
        for item in changes
        if item.action in _KEPT and item.path.startswith("config/")
    }
    used = verify.own_files(machine, found.name)
    if used is None:
        return "its start did not end well"
    if used != own:
        return "your own files in config/ have changed"
    if not verify.controller_answers(machine, found.name):
        return "Slurm's controller does not answer"
    return None


def _may_interrupt(machine: Machine, found: Container, wanted: Agreed, reporter: Reporter) -> None:
    jobs = 0 if wanted.why == _OWN_COMPOSE else verify.running_jobs(machine, found.name)
    if not jobs:
        return
    must = "must" if wanted.sure else "may have to"
    question = (
        f"The cluster {must} start anew ({wanted.why}), and {jobs} job(s) run: srun's end, "
        "sbatch's are queued again. Go on?"
    )
    if not reporter.ask(question):
        raise DshpcError(
            f"The cluster was not started anew: {jobs} job(s) run.",
            f"It {must} be, because {wanted.why}.",
            (
                "Wait until they have ended (dshpc squeue), then run again.",
                "Or interrupt them: --yes.",
            ),
        )

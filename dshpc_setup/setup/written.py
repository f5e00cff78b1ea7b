"""The files that a run leaves in its project folder: compared, tried by the compose tool, written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dshpc_setup.apply import apply
from dshpc_setup.apply.apply import Change
from dshpc_setup.builtin import cache
from dshpc_setup.engine import compose
from dshpc_setup.engine_client import BUILTIN, PODMAN
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import HostFacts
from dshpc_setup.files import ownership
from dshpc_setup.files.atomic import make_folder, write_atomic, write_error
from dshpc_setup.jobs import workspace_folders
from dshpc_setup.jobs.workspace import JOBS
from dshpc_setup.machine import Machine
from dshpc_setup.plan import ClusterPlan
from dshpc_setup.project.folder import (
    HIDDEN,
    JOINED,
    LIVE,
    REMEMBERED,
    RENDERED,
    RUNTIME,
    SETTINGS,
    Project,
    json_text,
)
from dshpc_setup.render import stanza, volumes
from dshpc_setup.render.configuration import CONFIG_FILES, render_env, render_slurm
from dshpc_setup.settings import Settings, applied
from dshpc_setup.settings.places import folder_of


def compared(project: Project, plan: ClusterPlan, compose_text: str) -> tuple[Change, ...]:
    """What writing the files of this plan would change; reads only."""
    texts = render_slurm(plan)
    wanted = {f"config/{name}": apply.Wanted(texts[name]) for name in CONFIG_FILES}
    wanted[compose.FILE] = apply.Wanted(compose_text)
    wanted[".env"] = apply.Wanted(render_env(plan.cluster), 0o600)
    return apply.compare(project, wanted)


def keep_profile(project: Project, text: str) -> None:
    """The seccomp profile, before the compose tool is asked: version 1 reads it with our file.

    Its name tells its text, so it changes nothing of what is in force.
    """
    path = project.folder / stanza.profile_file(text)
    if apply.read_text(path) != text:
        make_folder(path.parent, project.owner)
        write_atomic(path, text, owner=project.owner)


def keep_hidden(project: Project, settings: Settings) -> None:
    """The empty folder that jobs see in place of what the cluster keeps for itself."""
    if settings.homes or settings.mounts or settings.toolkits:
        make_folder(project.folder / HIDDEN, project.owner)


def let_compose_read(
    machine: Machine, project: Project, facts: HostFacts, changes: tuple[Change, ...]
) -> None:
    """A text that is new is read by the compose tool itself before anything is written."""
    tool = facts.engine.compose
    new = [item for item in changes if item.path == compose.FILE and item.target is not None]
    if tool is None or not new or new[0].action == "unchanged":
        return
    folder = str(project.folder)
    said = compose.check(machine, tool, new[0].wanted.text, folder=folder)
    if said is not None:
        raise DshpcError(
            f"Compose {tool.version} refuses the {compose.FILE} that was rendered.",
            said,
            ("Nothing was written. Report this with the output of: dshpc detect --json",),
        )


@dataclass(frozen=True)
class Origin:
    """What the files were made from, beside the settings."""

    inputs: str  # render.inputs
    flags: Mapping[str, str | None]
    volumes_of: str | None = None  # the folder that a cluster taken over belonged to
    real_memory_mib: int | None = None  # of the plan
    engine: str = "docker"
    env: Mapping[str, str] = field(default_factory=dict)  # which says where its cache is


def write(
    project: Project, settings: Settings, changes: tuple[Change, ...], origin: Origin
) -> tuple[Change, ...]:
    """The files, and what later runs and commands need to know of this one: all of it or none.

    The changes as they came about: what was edited since they were compared is kept.
    """
    work = volumes.work_folder(project.folder, settings)
    make_folder(work, project.owner)
    try:
        workspace_folders.make(str(work))  # before a user of the work folder could
    except OSError as error:
        raise write_error(error, work / JOBS) from None
    make_folder(project.folder / volumes.METHODS, project.owner)
    seen = {"homes": list(settings.homes), "toolkits": list(settings.toolkits)}
    homes = {name: value for name, value in seen.items() if value}
    runtime: dict[str, object] = {
        "container": settings.container,
        "prefix": settings.prefix,
        "work": str(work),
        **homes,
        **({"mounts": [*map(folder_of, settings.mounts)]} if settings.mounts else {}),
    }
    if settings.containers == "on" or origin.engine == BUILTIN:
        runtime["images"] = True
    if owner := origin.volumes_of or project.runtime().get("volumes_of"):
        runtime["volumes_of"] = str(owner)
    if origin.engine in (BUILTIN, PODMAN):
        runtime["engine"] = origin.engine
    if origin.engine == BUILTIN:
        runtime["cache"] = cache.place(origin.env)
    notes = {
        RUNTIME: json_text(runtime),
        SETTINGS: json_text({**applied.record(settings, origin.real_memory_mib), **homes}),
        LIVE: json_text(settings.live_env()),
        RENDERED: rendered(origin.inputs, changes),
    }
    if project.joining is not None:
        notes[JOINED] = json_text(project.joining)
    if chosen := project.remembering(origin.flags):
        notes[REMEMBERED] = json_text(chosen)
    return apply.write(project, changes, notes)


def rendered(inputs: str, changes: tuple[Change, ...]) -> str:
    """For RENDERED: which texts come of these inputs, also where a user's own file stands instead."""
    digests = {item.path: ownership.digest(item.wanted.text) for item in changes}
    return json_text({"inputs": inputs, "files": digests})

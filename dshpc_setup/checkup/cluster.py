"""The cluster as doctor sees it: from the host through its engine, or from inside the container.

Nothing here raises: what cannot be asked is said in `ClusterStatus.problem` and `inside_problem`.
What only a project needs is imported where it is asked: most machines that doctor sees have none yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dshpc_setup import slurm_releases
from dshpc_setup.checkup import other_nodes
from dshpc_setup.checkup.inside_answer import said_inside
from dshpc_setup.checkup.limited import at_once, inspecting_once, unwrapped, with_deadline
from dshpc_setup.cluster import status as cluster_status
from dshpc_setup.container.status import printable
from dshpc_setup.engine import containers
from dshpc_setup.engine.containers import Container
from dshpc_setup.engine.inspecting import INSIDE_S, Answer, Early, ask_inside, patience
from dshpc_setup.engine_client import DOCKER
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import Ended, Machine, Say, earlier
from dshpc_setup.observed.cluster_status import ClusterStatus
from dshpc_setup.observed.model import ContainerSeen, Inside, Observed, OtherCluster
from dshpc_setup.probes.platform import in_container
from dshpc_setup.project.folder import GPUS_LABEL, LABEL, Project
from dshpc_setup.slurm.paths import Paths

COMMAND_S = 4.0  # of each; several wait beside each other
_LEAST_S = 0.5
_LOG_LINES = 100
_LONGEST_LINE = 500
_MOST_ERRORS = 20
_ERROR = slurm_releases.says("complaint")


def is_inside(machine: Machine) -> bool:
    """Whether we run in the cluster's own container."""
    return machine.exists(Paths().run) and in_container(machine)


# From the host


def look(
    machine: Machine,
    project: Project,
    deadline_s: float,
    early: Early | None = None,
    *,
    slow: float = 1.0,
) -> Observed:
    """Its status, its container, what that says of itself, within the deadline.

    `early`: what is not asked again. What the container is being asked comes by `with_inside`. Each
    question may take `slow` times as long.
    """
    early = early or Early()
    name = project.runtime().get("container")
    if not isinstance(name, str):
        return Observed()
    until = machine.clock() + deadline_s
    machine = inspecting_once(machine, early.container)
    command_s = slow * _command_s(project)
    near = with_deadline(machine, min(command_s, earlier(deadline_s)))
    try:
        found = _ours(near, project, name)
    except DshpcError as error:
        return unanswered(project, f"{error.brief}: {error.details}".rstrip(": "))
    if found is None:
        return Observed(
            cluster=ClusterStatus(str(project.folder), name, "missing"),
            container=_without_container(near, project, name),
            inside_problem=f"There is no container {name}.",
        )
    left_s = max(_LEAST_S, until - machine.clock())
    return _found(machine, project, found, left_s, command_s, asking=early.asking)


def _command_s(project: Project) -> float:
    return COMMAND_S * patience(project.runtime()) + other_nodes.more_s(project)


def _ours(machine: Machine, project: Project, name: str) -> Container | None:
    """As operations has it, which is imported while the container answers where this one is ours."""
    found = containers.inspect(machine, name)
    whole = {"container", "prefix", "work"} <= project.runtime().keys()
    if found is not None and whole and found.labels.get(LABEL) == str(project.folder):
        return found
    from dshpc_setup.cluster import targets

    return targets.ours(machine, targets.target(project))


def unanswered(project: Project | None, problem: str) -> Observed:
    """Of a cluster that was set up and cannot be asked."""
    name = project.runtime().get("container") if project else None
    status = (
        ClusterStatus(str(project.folder), name, "unknown", problem=problem)
        if project and isinstance(name, str)
        else None
    )
    return Observed(cluster=status, inside_problem=problem)


def _found(
    machine: Machine,
    project: Project,
    found: Container,
    deadline_s: float,
    command_s: float,
    *,
    asking: bool,
) -> Observed:
    """All questions about a container that is there, at the same time; `asking`: it is being asked."""
    near = with_deadline(machine, min(command_s, earlier(deadline_s)))
    questions: dict[str, Callable[[Say], None]] = {
        "status": lambda say: say(_status(at_once(near, found, command_s), project, found)),
        "container": lambda say: _container(near, project, found, say),
    }
    running = found.status == "running"
    if running and not asking:
        inside_s = earlier(min(INSIDE_S / COMMAND_S * command_s, deadline_s))
        questions["inside"] = lambda say: say(ask_inside(machine, found.name, inside_s))
    questions["others"] = lambda say: say(
        other_nodes.look(machine, project, found.name, deadline_s)
    )
    ended = machine.apart(questions, deadline_s=deadline_s)
    status = ended["status"].items[0] if ended["status"].items else _without(project, found, ended)
    *_, seen = (_described(found), *ended["container"].items)
    problem = None if running else f"The container {found.name} {containers.how(found.status)}."
    observed = Observed(cluster=status, container=seen, inside_problem=problem)
    if others := next(iter(ended["others"].items), ()):
        observed = replace(observed, others=others, work=other_nodes.work_here(project))
    return with_inside(observed, ended["inside"]) if "inside" in ended else observed


def with_inside(observed: Observed, asked: Ended) -> Observed:
    """With what its container said; as it was where that does not run, or nothing is known of it."""
    seen = observed.container
    if seen is None or observed.inside_problem is not None:
        return observed
    inside, problem = None, _why(asked)
    for answer in asked.items[:1]:
        inside, problem = said_inside(answer, seen.name)
    if inside is None and observed.inside is not None:
        return observed  # it was asked again
    if inside is not None:
        inside = replace(inside, errors=errors_of(seen.log))
    return replace(observed, inside=inside, inside_problem=problem or None)


def is_late(asked: Ended) -> bool:
    """Whether the container's answer did not come in time."""
    return asked.state == "timeout" or any(
        isinstance(answer, Answer) and answer.result.state == "timeout" for answer in asked.items
    )


def _status(machine: Machine, project: Project, found: Container) -> ClusterStatus:
    from dshpc_setup.cluster import operations

    try:
        return operations.status(machine, project)
    except DshpcError:  # a file of the folder cannot be read: the cluster can be asked all the same
        return cluster_status.ask(machine, str(project.folder), found.name)


def _without(project: Project, found: Container, ended: Mapping[str, Ended]) -> ClusterStatus:
    """The status of a cluster that did not tell it."""
    base = ClusterStatus(str(project.folder), found.name, found.status, health=found.health)
    return replace(base, image=found.image, problem=_why(ended["status"]))


def _why(end: Ended) -> str:
    if end.state == "timeout":
        return f"It did not answer within {end.ms / 1000:.0f} seconds."
    return end.detail or "It gave no answer."


def _container(machine: Machine, project: Project, found: Container, say: Say) -> None:
    """Told again with each answer: its log, who has the same GPUs, whether its image is there."""
    seen = replace(_described(found), log=log_of(machine, found, _command_s(project)))
    say(seen)
    seen = replace(seen, sharing=_sharing(machine, found))
    say(seen)
    ref = _image_of(project, found.name) or found.image
    say(replace(seen, image_there=_is_there(machine, ref)))


def _sharing(machine: Machine, found: Container) -> tuple[OtherCluster, ...] | None:
    label = found.labels.get(GPUS_LABEL, "")
    if not label:
        return ()
    from dshpc_setup.cluster import neighbours

    try:
        return neighbours.sharing(machine, found.name, label)
    except DshpcError:
        return None


def _described(found: Container) -> ContainerSeen:
    return ContainerSeen(
        found.name,
        found.status,
        exit_code=found.exit_code,
        oom_killed=found.oom_killed,
        restarts=found.restarts,
        health=found.health,
        image=found.image,
        memory_limit_mib=found.memory_limit_mib,
        shm_mib=found.shm_mib,
        devices=found.devices,
        gpus=found.gpus,
        runtime=found.runtime,
        privileged=found.privileged,
        mounts=found.mounts,
        published=found.published,
    )


def _without_container(machine: Machine, project: Project, name: str) -> ContainerSeen:
    """Of one that is not there only the image can be looked at."""
    ref = _image_of(project, name)
    there = _is_there(machine, ref) if ref else None
    return ContainerSeen(name, "missing", image=ref, image_there=there)


def _image_of(project: Project, name: str) -> str | None:
    """The image that docker-compose.yml starts; not of another user's."""
    if project.foreign is not None:
        return None
    from dshpc_setup.apply.apply import read_text
    from dshpc_setup.engine import compose

    try:
        text = read_text(project.folder / compose.FILE) or ""
    except DshpcError:
        return None
    return next((ref for ref in compose.images(text) if ref.startswith(f"{name}:")), None)


def _is_there(machine: Machine, ref: str) -> bool | None:
    from dshpc_setup.engine.images import inspect as inspect_image

    try:
        return inspect_image(machine, ref) is not None
    except (DshpcError, ValueError, KeyError):  # no answer, or none that can be read
        return None


def log_of(machine: Machine, found: Container, deadline_s: float = COMMAND_S) -> tuple[str, ...]:
    """The last lines since its last start, both streams in their order."""
    lines: list[str] = []
    argv = DOCKER.logs(found.name, tail=_LOG_LINES, since=found.started)
    machine.run(argv, deadline_s=deadline_s, on_line=lines.append)
    return tuple(printable(line)[:_LONGEST_LINE] for line in lines[-_LOG_LINES:])


def errors_of(log: Sequence[str]) -> tuple[str, ...]:
    """The last lines of a log in which a daemon tells of an error."""
    told = [line for line in log if _ERROR.search(line) and not line.startswith("dshpc: ")]
    return tuple(told[-_MOST_ERRORS:])


# From inside


def inside_here(machine: Machine) -> Observed:
    """The same asked in the container itself: of its engine nothing is known there."""
    from dshpc_setup.container import observe

    inside = observe.observe(machine, Paths(), machine.env)
    inside = replace(inside, asked_at=inside.time)
    return Observed(cluster=_status_here(machine, inside), inside=inside)


def _status_here(machine: Machine, inside: Inside) -> ClusterStatus:
    """As `dshpc status` has it on the host, from the same words."""
    from dshpc_setup.container import status as start_status
    from dshpc_setup.settings import Settings

    prefix = machine.env.get("DSHPC_PREFIX", Settings.prefix)
    base = ClusterStatus(Paths().config, Settings(prefix=prefix).container, "running")
    try:
        report = start_status.read(Paths()) or {}
    except (OSError, ValueError):
        report = {}
    told = replace(base, **cluster_status.from_report(report, None))
    if not report.get("ready"):
        return told
    if inside.controller != "up":
        return replace(told, problem=inside.controller_says)
    near = with_deadline(unwrapped(machine), COMMAND_S)
    return replace(told, **cluster_status.from_controller(near, base.container))

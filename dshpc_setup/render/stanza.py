"""The compose file of a plan: how the proven mechanism, the paths and the labels are written down."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dshpc_setup.errors import usage_error
from dshpc_setup.facts import HostFacts
from dshpc_setup.files import ownership
from dshpc_setup.machine.overlay import simulated_device_files
from dshpc_setup.passthrough.model import Passthrough
from dshpc_setup.plan import ClusterPlan
from dshpc_setup.project.folder import GPUS_LABEL, HIDDEN, LABEL, OWN
from dshpc_setup.render import isolation, seccomp
from dshpc_setup.render.configuration import ComposeFile, render_compose
from dshpc_setup.render.gpu_stanza import gpu_stanza, with_profile
from dshpc_setup.render.log_bounds import log_bounds
from dshpc_setup.settings import Settings, lent
from dshpc_setup.settings.places import folder_of, hides_the_system, lies_in, unfit_for_mount
from dshpc_setup.slurm.paths import HOME_ROOTS, HOMES, LEFT_OUT, REST_LISTEN, SHARED_NETWORK

PROJECT_LABEL = LABEL
RENDERED_LABEL = "org.dshpc.rendered"
VOLUMES = ("state", "key", "home")  # behind the prefix; removed by `dshpc destroy` alone
METHODS = "methods"  # a folder of the project, seen under the same path in the container
_LABEL_LENGTH = 32

_PIDS, _PIDS_PER_CPU = 16384, 128
_UNLIMITED = -1
_STACK = 64 * 1024 * 1024  # bytes


def image_tag(settings: Settings, gpu_type: str) -> str:
    """The image of this cluster: "dshpc-slurm:nvidia"."""
    return f"{settings.container}:{gpu_type}"


_WORKER = re.compile(r"^  slurm-\d+:\n.*?(?=^  slurm-\d+:\n|^\nvolumes:\n|\Z)", re.M | re.S)


def parts(text: str) -> tuple[str, tuple[str, ...]]:
    """A compose file without its workers, and the lines of each worker: each part carries a label of its
    own, so that a node that comes or goes makes no other container anew."""
    return _WORKER.sub("", text), tuple(found[0] for found in _WORKER.finditer(text))


def part_of(text: str, container: str) -> str | None:
    """The part that a container is made from; None of one that is none of these."""
    main, workers = parts(text)
    name = re.compile(rf'^    container_name: "{re.escape(container)}"$', re.M)
    found = next((each for each in workers if name.search(each)), None)
    return found or (main if re.search(r"-slurm-\d+$", container) is None else None)


def rendered_label(text: str) -> str | None:
    """The digest that a part of a compose file of ours carries in its label."""
    found = re.search(rf'^ +{re.escape(RENDERED_LABEL)}: "([0-9a-f]+)"$', text, re.MULTILINE)
    return found[1] if found else None


def is_as_rendered(text: str) -> bool:
    """Whether a compose file is one that we wrote and nobody has changed since: its label proves it."""
    main, workers = parts(text)
    return all(map(_is_labelled, (main, *workers)))


def _is_labelled(part: str) -> bool:
    label = rendered_label(part)
    if label is None:
        return False
    blank = part.replace(f'{RENDERED_LABEL}: "{label}"', f'{RENDERED_LABEL}: ""')
    return ownership.digest(blank)[:_LABEL_LENGTH] == label


def work_folder(project: Path, settings: Settings) -> Path:
    """The absolute work folder; raises DshpcError (usage) where it or the project cannot be mounted."""
    if unfit_for_mount(str(project)):
        raise usage_error(
            f"The project folder {str(project)!r} cannot be mounted into a container.",
            "Docker separates the parts of a mount by ':'.",
            "Choose a folder without ':' and control characters: --dir DIR.",
        )
    try:
        path = Path(settings.work).expanduser()
    except RuntimeError:
        raise usage_error(
            f"The work folder {settings.work!r} names a home that is not known.",
            "",
            "Give the whole path: --work DIR.",
        ) from None
    path = path if path.is_absolute() else project / path
    path = Path("/", *path.parts[1:])  # two slashes at the front would pass for another folder
    text = str(path)
    if ".." in path.parts:
        path = path.resolve()
        text = str(path)
    if unfit_for_mount(text):
        raise usage_error(
            f"The work folder {text!r} cannot be mounted into a container.",
            "Docker separates the parts of a mount by ':'.",
            "Choose a folder without ':' and control characters: --work DIR.",
        )
    if hides_the_system(text):
        raise usage_error(
            f"The work folder must not be {text}.",
            "It is mounted under the same path in the container and would hide the system there.",
            "Choose a folder of your own: --work DIR.",
        )
    return path


def compose_text(
    project: Path,
    settings: Settings,
    facts: HostFacts,
    plan: ClusterPlan,
    passthrough: Passthrough,
    image: str,
    build: Mapping[str, Any] | None,
    workers: Sequence[Worker] = (),
) -> str:
    """docker-compose.yml for this machine; raises as compose_file does."""
    return text_of(compose_file(project, settings, facts, plan, passthrough, image, build, workers))


def text_of(file: ComposeFile) -> str:
    """The text, in which a label names the digest of the rest of it; of a worker, of its own lines."""
    main, workers = parts(render_compose(file))
    labelled = tuple(
        _with_label(worker, part) for worker, part in zip(file.workers, workers, strict=True)
    )
    return render_compose(replace(_with_label(file, main), workers=labelled))


def _with_label(file: ComposeFile, part: str) -> ComposeFile:
    return replace(
        file, labels={**file.labels, RENDERED_LABEL: ownership.digest(part)[:_LABEL_LENGTH]}
    )


@dataclass(frozen=True)
class Worker:
    """A further node on this machine: what it is to be, and how it gets its GPUs."""

    settings: Settings
    plan: ClusterPlan
    passthrough: Passthrough


def compose_file(
    project: Path,
    settings: Settings,
    facts: HostFacts,
    plan: ClusterPlan,
    passthrough: Passthrough,
    image: str,
    build: Mapping[str, Any] | None,
    workers: Sequence[Worker] = (),
) -> ComposeFile:
    """All that stands in docker-compose.yml but the digest in its label.

    Raises DshpcError where the setting isolation asks for what this machine cannot keep.
    """
    refused = None
    if settings.isolation == "enforced":
        images = settings.containers == "on"
        refused = isolation.refusal(facts.engine, plan, images=images)
    if refused is not None:
        raise refused
    profiling = settings.amd_profiling == "yes"
    gpu = gpu_stanza(
        passthrough.handover,
        facts.engine.compose.version if facts.engine.compose else None,
        profiling=profiling,
    )
    rights = isolation.rights(
        settings.isolation, facts.engine, images=settings.containers == "on", profiling=profiling
    )
    rights = _unlabelled(rights, settings, facts)
    if rights.seccomp:
        gpu = with_profile(gpu)
        option = f"seccomp={_profile_path(project, rights.seccomp)}"
        rights = replace(rights, security_opt=(*rights.security_opt, option))
    whole = ComposeFile(
        prefix=settings.prefix,
        container=settings.container,
        node=settings.node,
        image=image,
        shm_size=settings.shm_size,
        pids_limit=pids_limit(settings, facts),
        log=log_bounds(settings, facts.engine),
        gpu_comment=(passthrough.reason, *gpu.comment.split("\n")[1:]),
        environment={
            **settings.container_env(),
            "DSHPC_PREFIX": settings.prefix,
            **_homes_inside(settings),
            **lent.variables(settings.toolkits),
            **_rest_inside(settings, facts),
            **settings.place.to_env(),
            **_left_out(settings, gpu.devices),
            **gpu.environment,
        },
        labels={PROJECT_LABEL: str(project), **gpus_label(plan), RENDERED_LABEL: ""},
        volumes=(*_volumes(project, settings, facts), *gpu.volumes),
        gpu=gpu,
        rights=rights,
        ulimits=ulimits(facts),
        build=build,
        simulated=plan.simulated or any(each.plan.simulated for each in workers),
        ports=rest_ports(settings, facts),
        own_network=not has_machines_network(settings, facts),
        network_mode="host" if settings.listens or _is_podman_with_workers(settings, facts) else "",
    )
    return replace(whole, workers=tuple(_worker(whole, each, project, facts) for each in workers))


def _worker(whole: ComposeFile, worker: Worker, project: Path, facts: HostFacts) -> ComposeFile:
    """The service of a worker: the controller's, but for its names, its place and its GPUs."""
    settings = worker.settings
    gpu = gpu_stanza(
        worker.passthrough.handover,
        facts.engine.compose.version if facts.engine.compose else None,
        profiling=settings.amd_profiling == "yes",
    )
    gpu = with_profile(gpu) if whole.rights.seccomp else gpu
    number = settings.node.rpartition("-")[2]
    return replace(
        whole,
        service=f"slurm-{number}",
        container=f"{settings.container}-{number}",
        node=settings.node,
        environment={
            **settings.container_env(),
            "DSHPC_PREFIX": settings.prefix,
            **_homes_inside(settings),
            **lent.variables(settings.toolkits),
            **settings.place.to_env(),
            **({} if whole.own_network else {SHARED_NETWORK: "1"}),
            **_left_out(settings, gpu.devices),
            **gpu.environment,
        },
        labels={PROJECT_LABEL: str(project), RENDERED_LABEL: ""},
        volumes=(
            *(
                f"{each}:ro" if each.startswith("key:") else each
                for each in _volumes(project, settings, facts)
            ),
            *gpu.volumes,
        ),
        gpu=gpu,
        build=None,
        ports=(),
    )


def has_machines_network(settings: Settings, facts: HostFacts) -> bool:
    """Whether containers have the network of the machine, and none of the cluster's or of their own."""
    builtin = facts.engine.kind == "builtin"
    return builtin or settings.listens or _is_podman_with_workers(settings, facts)


def _is_podman_with_workers(settings: Settings, facts: HostFacts) -> bool:
    """Podman's networks have names only by another program (docs/decisions/0066-podmans-nodes.md)."""
    return facts.engine.by_command and bool(settings.worker_numbers)


def rest_ports(settings: Settings, facts: HostFacts) -> tuple[str, ...]:
    """What the engine publishes for slurmrestd: nothing where the container has the machine's own network."""
    if settings.rest in ("off", "on") or has_machines_network(settings, facts):
        return ()
    return (f"{settings.rest}:{settings.rest.rpartition(':')[2]}",)


def _rest_inside(settings: Settings, facts: HostFacts) -> dict[str, str]:
    """Where slurmrestd listens in a container with a network of its own: at all of its addresses."""
    ports = rest_ports(settings, facts)
    return {REST_LISTEN: f"0.0.0.0:{ports[0].rpartition(':')[2]}"} if ports else {}


def _homes_inside(settings: Settings) -> dict[str, str]:
    """Where users' own homes are seen, where they are."""
    return {HOME_ROOTS: ":".join(settings.homes)} if settings.homes else {}


def _left_out(settings: Settings, handed: Sequence[str]) -> dict[str, str]:
    """Device files of the profile that the plan leaves out (`devices`, `gpu`): the container does not miss
    them. It counts only the GPUs that it has, and so cannot be told them by number."""
    nodes = {item.split(":")[1] for item in handed if ":" in item}
    without = [file for file in simulated_device_files(settings.simulate) if file not in nodes]
    return {LEFT_OUT: ",".join(without)} if without else {}


def gpus_label(plan: ClusterPlan) -> dict[str, str]:
    """By which another cluster with the same GPUs is told; none where they are made up, or there is none."""
    if plan.simulated or not plan.gres:
        return {}
    names = (gpu.uuid or gpu.pci_bus_id or ":".join(gpu.device_files) for gpu in plan.gpus)
    return {GPUS_LABEL: ",".join(sorted({name for name in names if name}))}


def profile_file(text: str) -> str:
    """Where a seccomp profile lies in the project folder: compose reads it whenever it reads our file."""
    return f"{OWN}/{seccomp.file_name(text)}"


def _profile_path(project: Path, text: str) -> str:
    # Compose cuts the option at "=": a path that holds one is given from the folder of the file
    whole = str(project / profile_file(text))
    return profile_file(text) if "=" in whole else whole


def pids_limit(settings: Settings, facts: HostFacts) -> int:
    """How many processes and threads the container may have; 0: no limit.

    Room for what jobs do with all cores, far below what a machine can hold: a job that forks without an
    end takes the container's, in place of the machine's.
    """
    if settings.pids_limit is not None:
        return settings.pids_limit
    # The built-in engine has no control groups, and a user's Podman often none
    podman_without = facts.engine.by_command and facts.engine.cgroup_driver == "none"
    if facts.engine.kind == "builtin" or podman_without:
        return 0
    return max(_PIDS, _PIDS_PER_CPU * (facts.cpu.logical or 0))


def ulimits(facts: HostFacts) -> Mapping[str, tuple[int, int]]:
    """Limits for GPU jobs, soft and hard, in bytes: pinned memory without one, a stack of 64 MiB.

    They are what NVIDIA asks for with its own images. None where the engine may not raise a limit: a
    container for which it cannot set one does not start ("error setting rlimits"). That right
    (CAP_SYS_RESOURCE) is missing in a rootless engine, in some microVMs, and mostly in an engine that runs
    in a container itself, where the engine's own limits stay in force. The built-in engine raises them by
    itself, as far as its user may.
    """
    engine, platform = facts.engine, facts.platform
    if engine.kind == "builtin":
        return {}
    bound = platform.in_container or platform.raises_limits is False
    if engine.rootless or (bound and engine.kind not in ("desktop", "remote")):
        return {}
    # Fortran's jobs say `ulimit -s unlimited`; compose v1 takes that for a hard limit below the soft
    hard = _STACK if engine.compose and engine.compose.major == 1 else _UNLIMITED
    return {"memlock": (_UNLIMITED, _UNLIMITED), "stack": (_STACK, hard)}


def _volumes(project: Path, settings: Settings, facts: HostFacts) -> tuple[str, ...]:
    # SELinux keeps a container from files that are not labelled for containers
    shared = ":z" if facts.platform.selinux == "enforcing" else ""
    read_only = ":ro,z" if shared else ":ro"
    work = work_folder(project, settings)
    folders: tuple[str, ...] = (
        f"{work}:{work}{shared}",
        f"{project / METHODS}:{project / METHODS}{read_only}",
    )
    if settings.homes or settings.mounts or settings.toolkits:
        # Without a label (see _unlabelled); what is mounted below another after it, or it would be hidden
        more = (
            *(f"{each}:{each}" for each in settings.homes),
            *map(_mounted, settings.mounts),
            *lent.mounts(settings.toolkits, beside=settings.mounts),
            *_hidden(project, settings, read_only),
        )
        folders = tuple(sorted((*folders, *more), key=lambda each: each.split(":")[1].count("/")))
    return (
        f"{project / 'config'}:/config{read_only}",
        *folders,
        "state:/var/lib/dshpc/state",
        "key:/var/lib/dshpc/key",
        f"home:{HOMES}",
    )


def _hidden(project: Path, settings: Settings, read_only: str) -> tuple[str, ...]:
    """What the cluster keeps for itself, covered where the project lies in what jobs see: keys of the
    built-in engine's volumes are there."""
    seen = (
        *settings.homes,
        *map(folder_of, settings.mounts),
        *lent.sources(settings.toolkits),
    )
    if not any(lies_in(str(project), each) for each in seen):
        return ()
    return (f"{project / HIDDEN}:{project / OWN}{read_only}",)


def _mounted(mount: str) -> str:
    return f"{folder_of(mount)}:{mount}"


def _unlabelled(rights: isolation.Rights, settings: Settings, facts: HostFacts) -> isolation.Rights:
    """Where SELinux enforces, folders that are not the cluster's alone are reached without its labels: to
    label all of /home or /data anew would take them from the programs that they are labelled for."""
    option = "label=disable"
    shared = settings.homes or settings.mounts or settings.toolkits
    if facts.platform.selinux != "enforcing" or not shared or option in rights.security_opt:
        return rights
    return replace(rights, security_opt=(*rights.security_opt, option))

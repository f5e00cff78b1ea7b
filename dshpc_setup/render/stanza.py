"""The compose file of a plan: how the proven mechanism, the paths and the labels are written down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dshpc_setup.facts import HostFacts
from dshpc_setup.machine.overlay import simulated_device_files
from dshpc_setup.passthrough.handover import GpuStanza
from dshpc_setup.passthrough.model import Passthrough
from dshpc_setup.plan import ClusterPlan
from dshpc_setup.project.folder import OWN
from dshpc_setup.render import isolation, seccomp, volumes
from dshpc_setup.render.configuration import ComposeFile, render_compose
from dshpc_setup.render.gpu_stanza import gpu_stanza, with_profile
from dshpc_setup.render.labels import PROJECT_LABEL, RENDERED_LABEL, digest, gpus_label, parts
from dshpc_setup.render.log_bounds import log_bounds
from dshpc_setup.settings import Settings, lent
from dshpc_setup.slurm.paths import HOME_ROOTS, LEFT_OUT, REST_LISTEN, SHARED_NETWORK

_PIDS, _PIDS_PER_CPU = 16384, 128
_UNLIMITED = -1
_STACK = 64 * 1024 * 1024  # bytes


def image_tag(settings: Settings, gpu_type: str) -> str:
    """The image of this cluster: "dshpc-slurm:nvidia"."""
    return f"{settings.container}:{gpu_type}"


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
    return replace(file, labels={**file.labels, RENDERED_LABEL: digest(part)})


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
    images = settings.containers == "on"
    if settings.isolation == "enforced":
        refused = isolation.refusal(facts.engine, plan, images=images)
        if refused is not None:
            raise refused
    gpu = _gpu_stanza(passthrough, settings, facts)
    rights = isolation.rights(
        settings.isolation,
        facts.engine,
        images=images,
        profiling=settings.amd_profiling == "yes",
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
        environment=_environment(settings, gpu, rest=_rest_inside(settings, facts)),
        labels={PROJECT_LABEL: str(project), **gpus_label(plan), RENDERED_LABEL: ""},
        volumes=(*volumes.mounts(project, settings, facts), *gpu.volumes),
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
    gpu = _gpu_stanza(worker.passthrough, settings, facts)
    gpu = with_profile(gpu) if whole.rights.seccomp else gpu
    number = settings.node.rpartition("-")[2]
    return replace(
        whole,
        service=f"slurm-{number}",
        container=f"{settings.container}-{number}",
        node=settings.node,
        environment=_environment(
            settings, gpu, network={} if whole.own_network else {SHARED_NETWORK: "1"}
        ),
        labels={PROJECT_LABEL: str(project), RENDERED_LABEL: ""},
        volumes=(
            *(
                f"{each}:ro" if each.startswith("key:") else each
                for each in volumes.mounts(project, settings, facts)
            ),
            *gpu.volumes,
        ),
        gpu=gpu,
        build=None,
        ports=(),
    )


def _gpu_stanza(passthrough: Passthrough, settings: Settings, facts: HostFacts) -> GpuStanza:
    version = facts.engine.compose.version if facts.engine.compose else None
    return gpu_stanza(passthrough.handover, version, profiling=settings.amd_profiling == "yes")


def _environment(
    settings: Settings,
    gpu: GpuStanza,
    *,
    rest: Mapping[str, str] | None = None,
    network: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """In an order that stays: another one would make each container anew."""
    return {
        **settings.container_env(),
        "DSHPC_PREFIX": settings.prefix,
        **_homes_inside(settings),
        **lent.variables(settings.toolkits),
        **(rest or {}),
        **settings.place.to_env(),
        **(network or {}),
        **_left_out(settings, gpu.devices),
        **gpu.environment,
    }


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


def _unlabelled(rights: isolation.Rights, settings: Settings, facts: HostFacts) -> isolation.Rights:
    """Where SELinux enforces, folders that are not the cluster's alone are reached without its labels: to
    label all of /home or /data anew would take them from the programs that they are labelled for."""
    option = "label=disable"
    shared = settings.homes or settings.mounts or settings.toolkits
    if facts.platform.selinux != "enforcing" or not shared or option in rights.security_opt:
        return rights
    return replace(rights, security_opt=(*rights.security_opt, option))

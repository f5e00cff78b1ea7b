"""Facts and settings in, the cluster to build out. Pure: no I/O, no Machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

from dshpc_setup import gpu_vendors
from dshpc_setup.errors import Fix, usage_error
from dshpc_setup.plan import affinity, devices, extra, limits, names, node
from dshpc_setup.plan.model import (
    OWNERS,
    ClusterPlan,
    DeviceLink,
    ExtraLine,
    GresLine,
    GresType,
    Isolation,
    Partition,
    Sharing,
)
from dshpc_setup.settings import Settings, Source, WrongSetting, together

if TYPE_CHECKING:
    from dshpc_setup.facts import HostFacts

__all__ = [
    "ClusterPlan",
    "DeviceLink",
    "ExtraLine",
    "GresLine",
    "Isolation",
    "Partition",
    "Sharing",
    "most_nodes",
    "plan_cluster",
    "refuse_too_many",
    "wrong_settings",
]


def plan_cluster(facts: HostFacts, settings: Settings) -> ClusterPlan:
    """The cluster that this machine can carry; the same rule on the host and in the container.

    Raises DshpcError (usage) where `--devices` names a GPU that is not there, where none can be read,
    or where a setting contradicts what the plan itself must say.
    """
    chosen, left_out = devices.choose(facts.gpus, settings)
    gres: list[GresLine] = []
    for device in chosen:
        lines, reason = devices.lines_of(device)
        gres.extend(lines)
        if reason:
            left_out.append(reason)
    used = [device for device in chosen if any(line.index == device.index for line in gres)]
    vendors = sorted({device.vendor for device in used})
    cpus = node.cpus(facts)
    # The database is beside the controller: another node keeps what it is registered with
    has_database = settings.accounting == "on" and settings.place.role != "worker"
    memory = node.memory(facts, settings.reserve_mib, accounting=has_database)
    shape = node.topology(facts, cpus)
    threads = shape[2] if shape else 1
    # Partitions, and with them what a job gets that does not say, are the same for all nodes
    most_gpus = max(len(gres), settings.place.most_gpus)
    sharing, reason = _sharing(settings.gpu_sharing, gres)
    if reason:
        left_out.append(reason)
    gres, device_links = devices.told_apart(sorted(gres, key=lambda line: line.index))
    features, aliases = names.features(used, gres), names.aliases(used, gres)
    ambiguous: dict[str, tuple[str, ...]] = {}
    if settings.gres_type == "index":
        by_model, gres = gres, devices.typed_by_index(gres, used)
        aliases, ambiguous = names.for_any(aliases, by_model, gres)
    return ClusterPlan(
        cluster=settings.prefix,
        node=settings.node,
        partition=settings.partition,
        cpus=cpus,
        real_memory_mib=memory,
        def_mem_per_cpu_mib=node.memory_per_cpu(memory, cpus, most_gpus, threads),
        sockets=shape[0] if shape else None,
        cores_per_socket=shape[1] if shape else None,
        threads_per_core=shape[2] if shape else None,
        oversubscribe=node.oversubscribe(most_gpus, cpus, shape),
        gres=affinity.placed(gres, used, facts.cpu, shape),
        aliases=aliases,
        gres_type=cast(GresType, settings.gres_type),
        ambiguous=ambiguous,
        vendor="none" if not vendors else vendors[0] if len(vendors) == 1 else "mixed",
        gpu_type="none" if not vendors else vendors[0] if len(vendors) == 1 else "all",
        simulated=facts.gpus.simulated,
        gpus=tuple(used),
        left_out=tuple(left_out),
        features=features,
        sharing=sharing,
        device_links=device_links,
        isolation=cast(Isolation, settings.isolation),
        def_cpu_per_gpu=node.share_of_a_gpu(cpus, most_gpus, threads),
        def_mem_per_gpu_mib=node.share_of_a_gpu(memory, most_gpus),
        tmp_disk_mib=node.tmp_disk(facts),
        more_partitions=_more_partitions(settings),
        ports=settings.daemon_ports,
        max_array_size=limits.max_array_size(settings),
        max_job_count=limits.max_job_count(settings),
        extra=extra.lines(settings),
        rest=settings.rest != "off",
        accounting=settings.accounting == "on",
        role=settings.place.role,
        controller=settings.prefix if settings.place.role == "worker" else "",
        shared_as=_shared_as(settings),
        srun_ports=settings.srun_ports if settings.listens else None,
        is_joined=settings.place.is_joined,
        own_work=settings.place.own_work,
        carried_work=settings.place.carried_work,
        owner=settings.place.owner,
    )


def _shared_as(settings: Settings) -> str:
    kind = settings.gpu_sharing.partition(":")[0]
    has_others = settings.place.most_gpus or settings.listens
    return kind if has_others and kind != "none" else ""


_NODES_PER_CPU = 16
_NODE_MIB = 512


def most_nodes(facts: HostFacts) -> int:
    """How many nodes this machine can carry, all of which share its CPUs and memory.

    A node that does nothing takes some 60 MiB; each start takes a CPU for some seconds.
    """
    return max(1, min(node.cpus(facts) * _NODES_PER_CPU, node.memory(facts, 0) // _NODE_MIB))


def refuse_too_many(facts: HostFacts, settings: Settings) -> None:
    """Raises DshpcError (usage) where the machine is too small for so many nodes."""
    wanted, most = 1 + len(settings.worker_numbers), most_nodes(facts)
    if wanted > max(most, 1):
        raise usage_error(
            f"{wanted} nodes are too many for this machine: {most} at most.",
            f"A node takes {_NODE_MIB} MiB of memory at least, and {_NODES_PER_CPU} share a CPU; there are "
            f"{node.cpus(facts)} CPUs and {node.memory(facts, 0)} MiB.",
            Fix("Ask for fewer", f"configure-environment --nodes {most}"),
        )


def wrong_settings(settings: Settings) -> tuple[WrongSetting, ...]:
    """What no machine could make right: it needs no facts. What dshpc.yaml says below a flag counts, too."""
    views = (settings, settings.of_file) if settings.hidden else (settings,)
    found = (each for view in views for each in (*_clashing(view), *extra.wrong(view)))
    return tuple(dict.fromkeys(found))


def _sharing(setting: str, gres: list[GresLine]) -> tuple[Sharing | None, str | None]:
    """How jobs share GPUs, or why they cannot."""
    kind, _, each = setting.partition(":")
    if kind == "none" or not gres:
        return None, None
    vendors = sorted({line.vendor for line in gres})
    others = [each for each in vendors if kind not in gpu_vendors.of(each).slurm.sharing]
    if kind == "mps" and others:
        able = (each.label for each in gpu_vendors.all_of_them() if kind in each.slurm.sharing)
        return None, (
            f"MPS (the setting gpu_sharing): it is {' and '.join(able)}'s, and there are GPUs of "
            f"{' and '.join(others)}. For those: gpu_sharing = shard:4."
        )
    count = len(gres) * (int(each) if each else 100)
    return Sharing(cast(Literal["shard", "mps"], kind), count), None


def _more_partitions(settings: Settings) -> tuple[Partition, ...]:
    if wrong := _clashing(settings):
        raise together(wrong)
    return tuple(Partition(name, longest) for name, longest in settings.partitions)


def _clashing(settings: Settings) -> tuple[WrongSetting, ...]:
    """Further partitions with the default one's name, and any with the one of owned nodes."""
    source = settings.sources.get("partitions", Source("default", "partitions"))
    whose = {settings.partition.lower(): "is the default partition's name already"}
    default: tuple[WrongSetting, ...] = ()
    if settings.listens:
        whose[OWNERS] = "is the partition of nodes that take the jobs of their owner alone"
        if settings.partition.lower() == OWNERS:
            at = settings.sources.get("partition", Source("default", "partition"))
            told = at.said(f"partition: {settings.partition!r} {whose[OWNERS]}.")
            steps = ("Give it another name.",)
            default = (
                WrongSetting("value", at.origin, at.where, told, "", "partition", steps=steps),
            )
    return default + tuple(
        WrongSetting(
            "value",
            source.origin,
            (place := source.of_item(nth)).where,
            place.said(f"partitions, item {nth + 1}: {name!r} {whose[name.lower()]}."),
            "The setting partitions names those beside it.",
            "partitions",
            steps=("Give it another name.",),
        )
        for nth, (name, _) in enumerate(settings.partitions)
        if name.lower() in whose
    )

"""Facts and settings in, the cluster to build out. Pure: no I/O, no Machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.facts import GpuDevice, Gpus, HostFacts, State, Vendor
from dshpc_setup.settings import Settings


@dataclass(frozen=True)
class GresLine:
    """One schedulable GPU (a whole card, a MIG instance or a partition): one line of gres.conf."""

    slurm_type: str
    vendor: Vendor
    files: tuple[str, ...]  # one: File=; several: MultipleFiles=
    index: int
    uuid: str | None = None


@dataclass(frozen=True)
class ClusterPlan:
    """All that the templates need to know."""

    cluster: str
    node: str
    partition: str
    cpus: int
    real_memory_mib: int
    def_mem_per_cpu_mib: int
    sockets: int | None = None  # sockets, cores and threads: all three or none
    cores_per_socket: int | None = None
    threads_per_core: int | None = None
    oversubscribe: int = 1  # jobs a CPU may be given to: more than 1 where GPUs outnumber CPUs
    gres: tuple[GresLine, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)  # "nvidia" -> "h100"
    vendor: str = "none"  # nvidia | amd | intel | mixed | none
    gpu_type: str = "none"  # the image's GPU_TYPE: nvidia | amd | intel | none | all
    simulated: bool = False
    autodetect: str = "off"  # gres.conf's AutoDetect: "nvml" tells jobs a MIG instance's UUID
    gpus: tuple[GpuDevice, ...] = ()
    left_out: tuple[str, ...] = ()  # why a GPU, or every GPU, is not used: one sentence each

    @property
    def gres_counts(self) -> Mapping[str, int]:
        """Slurm type -> count, in the order of first appearance."""
        counts: dict[str, int] = {}
        for line in self.gres:
            counts[line.slurm_type] = counts.get(line.slurm_type, 0) + 1
        return counts

    @property
    def gres_flags(self) -> str:
        """`Flags=` of every line: which variables name a job's GPUs. Slurm wants all lines alike."""
        vendors = dict.fromkeys(line.vendor for line in self.gres)
        return ",".join(f"{vendor}_gpu_env" for vendor in vendors)

    @property
    def gres_text(self) -> str:
        """As `Gres=` wants it: "gpu:h100:7,gpu:1g.10gb:2"; "" without a GPU."""
        return ",".join(f"gpu:{kind}:{count}" for kind, count in self.gres_counts.items())


def plan_cluster(facts: HostFacts, settings: Settings) -> ClusterPlan:
    """The cluster that this machine can carry; the same rule on the host and in the container.

    Raises DshpcError (usage) where `--devices` names a GPU that is not there, or none can be read.
    """
    chosen, left_out = _choose(facts.gpus, settings)
    gres: list[GresLine] = []
    for device in chosen:
        lines, reason = _lines_of(device)
        gres.extend(lines)
        if reason:
            left_out.append(reason)
    used = [device for device in chosen if any(line.index == device.index for line in gres)]
    vendors = sorted({device.vendor for device in used})
    cpus = _cpus(facts)
    memory = _memory(facts, settings.reserve_mib)
    topology = _topology(facts, cpus)
    return ClusterPlan(
        cluster=settings.prefix,
        node=settings.node,
        partition=settings.partition,
        cpus=cpus,
        real_memory_mib=memory,
        def_mem_per_cpu_mib=_memory_per_cpu(memory, cpus, len(gres)),
        sockets=topology[0] if topology else None,
        cores_per_socket=topology[1] if topology else None,
        threads_per_core=topology[2] if topology else None,
        oversubscribe=_oversubscribe(len(gres), cpus, topology),
        gres=tuple(sorted(gres, key=lambda line: line.index)),
        aliases=_aliases(used, gres),
        vendor="none" if not vendors else vendors[0] if len(vendors) == 1 else "mixed",
        gpu_type="none" if not vendors else vendors[0] if len(vendors) == 1 else "all",
        simulated=facts.gpus.simulated,
        autodetect=_autodetect(facts, used),
        gpus=tuple(used),
        left_out=tuple(left_out),
    )


def _choose(gpus: Gpus, settings: Settings) -> tuple[list[GpuDevice], list[str]]:
    """The devices that the settings allow, and a sentence for each reason why one is not."""
    if settings.gpu == "none":
        return [], ["GPUs are switched off by the setting gpu = none."]
    if gpus.state != "present":
        if settings.devices:
            raise usage_error(
                f"--devices names {', '.join(settings.devices)}, but no GPU can be read here "
                f"({gpus.state}).",
                gpus.detail or "",
                "Mend that and run again, or leave --devices out.",
            )
        return [], [gpus.detail or f"GPUs: {gpus.state}."]
    devices, left_out = list(gpus.devices), []
    if settings.gpu != "auto":
        devices = [device for device in devices if device.vendor == settings.gpu]
        if not devices:
            left_out.append(f"The setting gpu = {settings.gpu} leaves none of the GPUs found.")
    if settings.devices:
        devices = [_named(name, devices) for name in settings.devices]
    return devices, left_out


def _named(name: str, devices: list[GpuDevice]) -> GpuDevice:
    for device in devices:
        if name == str(device.index) or name == device.uuid:
            return device
        for instance in device.mig:
            if name == instance.uuid:
                return replace(device, mig=(instance,))
    known = ", ".join(f"{device.index} ({device.name or device.vendor})" for device in devices)
    raise usage_error(
        f"--devices names {name}, but there is no such GPU.",
        f"There are: {known or 'none'}.",
        "List them with `dshpc detect`, and name those to use by index or UUID.",
    )


def _lines_of(device: GpuDevice) -> tuple[list[GresLine], str | None]:
    label = f"GPU {device.index} ({device.name or device.vendor})"
    if device.problems:
        return [], f"{label}: {', '.join(device.problems)}."
    if device.mig_mode == "enabled":
        if not device.mig:
            return [], f"{label} is in MIG mode and has no instances: nvidia-smi mig -cgi ... -C"
        lines = [
            GresLine(item.profile, device.vendor, item.device_files, device.index, item.uuid)
            for item in device.mig
            if item.device_files
        ]
        short = len(device.mig) - len(lines)
        return lines, f"{label}: {short} MIG instance(s) without device files." if short else None
    if not device.device_files:
        return [], f"{label} has no device file that is visible here."
    line = GresLine(
        device.slurm_type, device.vendor, device.device_files, device.index, device.uuid
    )
    return [line], None


def _autodetect(facts: HostFacts, used: list[GpuDevice]) -> str:
    """NVML where MIG instances are handed out: an index names none of them, a UUID does.

    A made-up instance is none that NVML knows. Debian has Slurm's NVML plugin for amd64 alone, and
    slurmd without the plugin that it is told to use has no GPU at all.
    """
    cut = any(device.mig_mode == "enabled" for device in used)
    here = facts.platform.arch == "x86_64" and not facts.gpus.simulated
    return "nvml" if cut and here else "off"


def _cpus(facts: HostFacts) -> int:
    limits = (facts.cpu.usable, facts.cpu.logical, facts.engine.cpus)
    known = [limit for limit in limits if limit]
    if not known:
        raise _unknown("how many CPUs this machine has", facts.cpu.state)
    return min(known)


def _memory(facts: HostFacts, reserve_mib: int | None) -> int:
    """MiB for jobs: what every limit allows, less the reserve (by default a tenth)."""
    limits = (facts.memory.limit_mib, facts.engine.memory_mib)
    known = [limit for limit in limits if limit]
    if not known:
        raise _unknown("how much memory this machine has", facts.memory.state)
    limit = min(known)
    kept = limit // 10 if reserve_mib is None else reserve_mib
    return max(1, limit - kept)


def _unknown(what: str, state: State) -> DshpcError:
    return DshpcError(
        f"It could not be found out {what}.",
        f"The answer was: {state}.",
        ("See what was looked at: dshpc detect --explain",),
    )


def _memory_per_cpu(memory: int, cpus: int, gres: int) -> int:
    """Without a default, each job would take the whole memory and a second GPU job would wait."""
    return max(1, memory // max(cpus, gres, 1))


def _topology(facts: HostFacts, cpus: int) -> tuple[int, int, int] | None:
    """Sockets, cores, threads: only where no limit makes the machine's own shape untrue."""
    cpu = facts.cpu
    if not (cpu.sockets and cpu.cores_per_socket and cpu.threads_per_core):
        return None
    shape = (cpu.sockets, cpu.cores_per_socket, cpu.threads_per_core)
    whole = shape[0] * shape[1] * shape[2]
    return shape if whole == cpu.logical == cpus and cpu.limited_by is None else None


def _oversubscribe(gpus: int, cpus: int, topology: tuple[int, int, int] | None) -> int:
    """How many jobs share what is handed out as one, so that each GPU can have a job of its own."""
    units = topology[0] * topology[1] if topology else cpus
    return -(-gpus // units) if gpus > units else 1


def _aliases(devices: list[GpuDevice], gres: list[GresLine]) -> dict[str, str]:
    """Names that also work: the vendor's, and the full model name as NVML and `slurmd -C` spell it.

    "" where the vendor's GPUs are all there is and of several types: any GPU of the node will do.
    """
    names: dict[str, str] = {}
    types_of: dict[str, list[str]] = {}
    for line in gres:
        types = types_of.setdefault(line.vendor, [])
        if line.slurm_type not in types:
            types.append(line.slurm_type)
    for vendor, types in types_of.items():
        several = len(types) > 1 and len(types_of) == 1
        names[vendor] = "" if several else types[0]
    models: dict[str, set[str]] = {}
    for device in devices:
        if device.name and device.mig_mode != "enabled":
            model = re.sub(r"[^a-z0-9]+", "_", device.name.lower()).strip("_")
            models.setdefault(model, set()).add(device.slurm_type)
    for model, meant in models.items():
        if len(meant) == 1 and model not in types_of:
            names.setdefault(model, next(iter(meant)))
    known = {line.slurm_type for line in gres}
    return {said: meant for said, meant in names.items() if said not in known}

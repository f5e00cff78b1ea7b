"""What is known about a machine: frozen values, made by probes and read by everything after them.

A fact is never just missing: every probe says `present`, `absent`, `denied`, `timeout`, `error` or
`unsupported`, and where it looked. A single value that is not known is None, never 0 or "".
`HostFacts.to_json()` is the contract of `dshpc detect --json` (schema `dshpc.facts/1`).

Beside the facts stand the ways to them: `Evidence` is what was looked at, `Conclusion` what follows
from it and what was not chosen, `Disagreement` where two layers of one machine say different things.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

State = Literal["present", "absent", "denied", "timeout", "error", "unsupported"]
Vendor = str  # the name of a folder of `vendors/`; gpu_vendors says what is known of it
PlatformKind = Literal["linux", "wsl2", "wsl1", "macos"]
EngineKind = Literal["engine", "desktop", "podman", "snap", "remote", "builtin"]
MigMode = Literal["enabled", "disabled", "unsupported"]
ComputeMode = Literal["default", "exclusive-thread", "prohibited", "exclusive-process"]
Virtualization = Literal["none", "passthrough", "vgpu", "host-vgpu", "host-vsga"]
FabricFault = Literal[
    "unhealthy", "limited-capacity", "degraded-bandwidth", "route-recovery", "route-unhealthy",
    "access-timeout", "incorrect-configuration",
]  # fmt: skip
FabricState = Literal["not-supported", "not-started", "in-progress", "completed"]

Section = Literal["platform", "cpu", "memory", "gpus", "docker"]
SECTIONS: tuple[Section, ...] = ("platform", "cpu", "memory", "gpus", "docker")
"""The parts of the facts, by their keys in JSON: what can be asked for by itself."""

SCHEMA = "dshpc.facts/1"


# NVIDIA's own kernel modules, by their kind; "nvidia": of a kind that is not known
ModuleKind = Literal["nvidia", "nvidia-open", "nvidia-proprietary"]


@dataclass(frozen=True)
class Evidence:
    """Where a fact was read, how it went and how long it took."""

    probe: str
    state: State
    source: str
    ms: float
    detail: str | None = None  # of an `error`: the text that could not be read, or its beginning
    code: int | None = None  # the library's own error number, the command's exit code
    module: ModuleKind | None = None  # of a kernel driver that was found


@dataclass(frozen=True)
class Because:
    """A source ("/sys/bus/pci/devices", "NVML") and what it says, in words for the screen."""

    source: str
    says: str
    key: Literal["own-rootless-engine"] | None = None  # where a check has to tell it from others


@dataclass(frozen=True)
class Conclusion:
    """What was concluded, from what, and why nothing else was: the text of `detect --explain`."""

    about: str  # the fact's place: "platform.kind", "gpus 0000:1a:00.0", "docker.compose"
    says: str  # "wsl2", "1 GPU"
    because: tuple[Because, ...] = ()
    instead: tuple[Because, ...] = ()  # what was not chosen, and why not


# A card that the driver did not start, that left the bus, whose module is not loaded, whose kernel has no
# KFD; how many GPUs there are
DisagreementCode = Literal["not-started", "off-the-bus", "not-loaded", "no-kfd", "count"]


@dataclass(frozen=True)
class Disagreement:
    """Two or more layers that contradict each other about one thing."""

    about: str  # a PCI address, a file, "driver version"
    layers: tuple[Because, ...]
    meaning: str  # what it most likely is, for people
    finding: str | None = None  # its id, if there is one
    packages: tuple[str, ...] = ()  # those that a remedy has to remove
    code: DisagreementCode | None = None  # where a check has to tell it from others


@dataclass(frozen=True)
class Platform:
    """What runs here: the system, its distribution, and what it runs in."""

    kind: PlatformKind
    in_container: bool = False
    container: str | None = None  # docker|podman|lxc|kubernetes|systemd-nspawn|other, if in one
    virtual_machine: str | None = None  # kvm|qemu|vmware|hyperv|xen|virtualbox|...; "none": metal
    os_id: str | None = None  # ID of /etc/os-release: debian, ubuntu, fedora, ...
    os_version: str | None = None
    os_like: tuple[str, ...] = ()
    kernel: str | None = None
    arch: str | None = "x86_64"  # as `uname -m` says it
    selinux: Literal["enforcing", "permissive", "disabled"] | None = None
    state: State = "present"
    tmp_disk_mib: int | None = None  # size of the file system that holds /tmp
    raises_limits: bool | None = None  # whether root's programs may raise a resource limit here


@dataclass(frozen=True)
class Cpu:
    """Logical CPUs as the kernel counts them; `usable` after affinity, cpuset and CPU quota."""

    logical: int | None = None
    sockets: int | None = None
    cores_per_socket: int | None = None
    threads_per_core: int | None = None
    usable: int | None = None
    limited_by: str | None = None  # "cpuset" | "cgroup quota" | "affinity" | "engine"
    state: State = "present"
    socket_cpus: tuple[str, ...] = ()  # logical CPUs of each socket, in order: "0-15,32-47"


@dataclass(frozen=True)
class Memory:
    """MiB: `limit_mib` is the least of the machine's own and every limit on this process.

    `usable_mib` is what Slurm may hand out by default: the limit less a tenth.
    """

    total_mib: int | None = None
    limit_mib: int | None = None
    limited_by: str | None = None  # "cgroup" | "cpuset" | "engine"
    state: State = "present"

    @property
    def usable_mib(self) -> int | None:
        return None if self.limit_mib is None else self.limit_mib - self.limit_mib // 10


@dataclass(frozen=True)
class MigInstance:
    """A part of an NVIDIA GPU that is a device of its own."""

    profile: str  # "1g.10gb"
    uuid: str | None = None
    memory_mib: int | None = None
    device_files: tuple[str, ...] = ()  # the card's node and both capability nodes


@dataclass(frozen=True)
class Link:
    """Direct connections between a GPU and one other thing: `count` of them that are up."""

    kind: Literal["nvlink", "xgmi"]
    count: int
    peer: str | None = None  # PCI address; None where the driver does not tell
    peer_kind: Literal["gpu", "switch", "cpu"] | None = None


@dataclass(frozen=True)
class Fabric:
    """NVSwitch systems: how far the Fabric Manager has come with this GPU."""

    state: FabricState
    status: int | None = None  # nvmlReturn_t; says something only where `state` is completed


@dataclass(frozen=True)
class RasCount:
    """Errors that a part of an AMD GPU found itself and could not correct, since the driver's start."""

    block: str  # "umc" (memory), "gfx", "sdma", ...
    count: int


@dataclass(frozen=True)
class GpuHealth:
    """What a GPU's firmware and driver count of its own faults; None: they do not tell.

    Uncorrected memory errors: `volatile` since the driver's start, `aggregate` of the card's life; `dram` of
    its memory (all places, where a card does not tell them apart), `sram` inside the chip.
    """

    volatile_dram: int | None = None
    volatile_sram: int | None = None
    aggregate_dram: int | None = None
    aggregate_sram: int | None = None
    sram_over_threshold: bool | None = None  # more than the firmware allows
    remap_pending: bool | None = None  # rows of memory wait for a reset to be replaced
    remap_failed: bool | None = None  # a row could not be replaced: no spare one is left
    retirement_pending: bool | None = None  # pages of memory wait for a reset (before Ampere)
    mig_pending: MigMode | None = None  # the mode after the next reset, where it is another one
    fabric: tuple[FabricFault, ...] = ()
    ras: tuple[RasCount, ...] = ()  # AMD: parts with uncorrected errors


# Why a card is not counted. By somebody's choice or by its kind, with nothing wrong: it is handed to virtual
# machines, a setting of its driver excludes it, it is a display adapter, it is too old to compute. Else
# something is: no driver has it, its driver's module is not loaded, another driver holds it, the list that
# NVML or KFD gives lacks it, the kernel was built without KFD, it has no render node.
UnusedCode = Literal[
    "virtual-machines",
    "excluded",
    "display",
    "too-old",
    "no-driver",
    "not-loaded",
    "other-driver",
    "not-listed",
    "no-kfd",
    "no-render-node",
]
BY_CHOICE: frozenset[UnusedCode] = frozenset(("virtual-machines", "excluded", "display", "too-old"))


@dataclass(frozen=True)
class UnusedGpu:
    """Graphics hardware that is there and is not counted: bound to vfio-pci, display only, ..."""

    vendor: Vendor
    reason: str  # one sentence
    pci_bus_id: str | None = None
    name: str | None = None
    driver: str | None = None  # the kernel driver that holds it
    code: UnusedCode | None = None  # None: not known


@dataclass(frozen=True)
class GpuDevice:
    """One GPU, or one partition of an AMD card, as a job would get it."""

    index: int
    vendor: Vendor
    name: str | None = None
    uuid: str | None = None
    pci_bus_id: str | None = None  # lower case, four-digit domain: 0000:1a:00.0
    memory_mib: int | None = None
    driver_version: str | None = None
    compute: str | None = None  # NVIDIA compute capability "9.0", AMD gfx target "gfx942"
    slurm_type: str = "gpu"  # what --gres=gpu:<type>:1 calls it
    device_files: tuple[str, ...] = ()
    numa_node: int | None = None
    cores: str | None = None  # logical CPUs near it: "0-15"
    mig_mode: MigMode = "unsupported"
    mig: tuple[MigInstance, ...] = ()
    partition_of: str | None = None  # AMD: the PCI address of the card this is a partition of
    problems: tuple[str, ...] = ()  # finding ids; a device with problems is not scheduled
    minor: int | None = None  # N of /dev/nvidiaN, of /dev/dri/renderDN
    driver: str | None = None  # the kernel driver: nvidia, amdgpu, i915, xe, nvgpu (Jetson)
    group_ids: tuple[int, ...] = ()  # of the device files (AMD: /dev/kfd's too): for group_add
    unified_memory: bool | None = None  # one memory for CPU and GPU: GB10, Jetson, APUs
    links: tuple[Link, ...] = ()
    persistence: bool | None = None
    compute_mode: ComputeMode | None = None
    ecc: bool | None = None
    virtualization: Virtualization | None = None
    fabric: Fabric | None = None
    partition_mode: str | None = None  # AMD: SPX, DPX, QPX, CPX, ...
    health: GpuHealth | None = None  # None: it tells nothing of it


# Why there is none for us, where a check has to tell it from others: this process' control group lets it use
# none; a Jetson's GPU has its driver and did not start
GpusCause = Literal["control-group", "not-started"]


@dataclass(frozen=True)
class Gpus:
    """All GPUs, in the vendors' own order. `state` is `present` only where devices are listed."""

    state: State
    devices: tuple[GpuDevice, ...] = ()
    simulated: bool = False
    driver_version: str | None = None
    cuda_version: str | None = None
    detail: str | None = None  # for any state but present: why, in one sentence
    complete: bool = True  # False: a driver stopped answering before it had told of all
    unused: tuple[UnusedGpu, ...] = ()
    disagreements: tuple[Disagreement, ...] = ()
    causes: tuple[GpusCause, ...] = ()

    @property
    def vendor(self) -> str:
        """`nvidia|amd|intel|mixed|none`, over the devices."""
        vendors = {device.vendor for device in self.devices}
        return "none" if not vendors else vendors.pop() if len(vendors) == 1 else "mixed"


@dataclass(frozen=True)
class Compose:
    """A compose tool: the v2 plugin (`docker compose`) or the v1 program (`docker-compose`)."""

    version: str
    argv: tuple[str, ...]

    @property
    def major(self) -> int:
        return 1 if self.version.lstrip("v").startswith("1.") else 2


@dataclass(frozen=True)
class Toolkit:
    """What the file system holds of a vendor's container toolkit: paths, None where not there.

    `state` is `absent` where nothing of it is installed; the engine may run elsewhere all the same.
    """

    vendor: Vendor
    state: State
    version: str | None = None
    hook: str | None = None  # nvidia-container-runtime-hook: what --gpus calls
    runtime: str | None = None  # nvidia-container-runtime, amd-container-runtime
    ctk: str | None = None  # nvidia-ctk, amd-ctk
    cdi_hook: str | None = None  # nvidia-cdi-hook
    no_cgroups: bool | None = None  # of its config.toml
    mode: str | None = None  # of its config.toml: auto | legacy | cdi | csv | jit-cdi
    capabilities: tuple[str, ...] = ()  # of its config.toml: what it may hand over; (): all
    detail: str | None = None


@dataclass(frozen=True)
class CdiDevice:
    """A device that a CDI specification names."""

    name: str  # qualified: "nvidia.com/gpu=0"
    nodes: tuple[str, ...] = ()  # device nodes of the host that it alone brings
    group_ids: tuple[int, ...] = ()  # additionalGids


@dataclass(frozen=True)
class CdiSpec:
    """A CDI specification file: what containers are given by name.

    Formats 0.3 to 1.1, YAML or JSON. Paths are those of the host. Devices that another file names with
    more weight are left out; `detail` of a `present` one names a file that clashes with it.
    """

    path: str
    state: State  # present | denied | error: what cannot be read as one
    kind: str | None = None  # "nvidia.com/gpu"
    devices: tuple[CdiDevice, ...] = ()
    nodes: tuple[str, ...] = ()  # device nodes for every device
    missing: tuple[str, ...] = ()  # nodes and mounted files that are not on this machine
    driver_version: str | None = None  # as the names of its libraries say it: "550.163.01"
    detail: str | None = None
    version: str | None = None  # of the format, "0.7.0": an engine that knows older ones refuses it


@dataclass(frozen=True)
class Engine:
    """The Docker engine as it answers; what it alone can tell is None/empty unless present."""

    state: State
    server_version: str | None = None
    api_version: str | None = None
    kind: EngineKind | None = None
    rootless: bool | None = None
    cgroup_driver: str | None = None
    cgroup_version: int | None = None
    runtimes: tuple[str, ...] = ()
    default_runtime: str | None = None
    cdi_devices: tuple[str, ...] = ()
    cdi_folders: tuple[str, ...] = ()
    compose: Compose | None = None
    composes: tuple[Compose, ...] = ()  # every one that is installed, the one to use first
    buildx: str | None = None  # version of the buildx plugin, if any
    context: str | None = None  # name of the docker context, "default" where none is chosen
    host: str | None = None  # the endpoint that was asked
    name: str | None = None  # the daemon's own host name
    os_type: str | None = None
    arch: str | None = None
    cpus: int | None = None  # what the daemon's machine has (a VM's on Docker Desktop)
    memory_mib: int | None = None
    security_options: tuple[str, ...] = ()
    root_dir: str | None = None
    disk_mib: int | None = None  # size of the file system that holds root_dir, where it is here
    storage_driver: str | None = None
    log_driver: str | None = None  # of containers that name none: "json-file", "journald"
    engine_id: str | None = None
    detail: str | None = None
    # Of this machine's file system, whatever the engine answers; of a container's not, where the engine
    # runs outside of it:
    toolkits: tuple[Toolkit, ...] = ()  # of each vendor whose GPUs or toolkit are here
    cdi_specs: tuple[
        CdiSpec, ...
    ] = ()  # that count, in its folders, else /etc/cdi and /var/run/cdi
    registered: tuple[str, ...] = ()  # runtimes that daemon.json names, in force or not
    newer: tuple[str, ...] = ()  # files that were installed or changed after the engine started
    log_max_size: str | None = None  # that daemon.json gives each container's log
    product: str | None = None  # of the kind "desktop", where it is another one than Docker Desktop

    @property
    def by_command(self) -> bool:
        """Whether it is Podman by its own command, and not by Docker's client and a socket."""
        return self.host == "podman"

    @property
    def application(self) -> str:
        """What brings the engine, of the kind "desktop"."""
        return self.product or "Docker Desktop"


@dataclass(frozen=True)
class Unanswered:
    """What could not be asked. `about`: the probe that timed out, or the section of the facts."""

    about: str
    state: State
    detail: str = ""
    section: bool = False

    def __str__(self) -> str:
        """ "nvml: no answer within 9.6 s", "docker: denied, unix:///var/run/docker.sock: ..."."""
        state = self.state if self.section else ""
        return f"{self.about}: {', '.join(filter(None, (state, self.detail)))}"


@dataclass(frozen=True)
class HostFacts:
    """All that was found out about one machine."""

    platform: Platform
    cpu: Cpu
    memory: Memory
    gpus: Gpus
    engine: Engine
    evidence: tuple[Evidence, ...] = field(default=(), compare=False)
    conclusions: tuple[Conclusion, ...] = field(default=(), compare=False)

    def to_json(
        self, only: Collection[Section] = SECTIONS, *, explain: bool = False
    ) -> dict[str, Any]:
        """The `dshpc.facts/1` object, JSON values only: sections not in `only` are null.

        With `explain` the conclusions are in it.
        """
        sections = {
            "platform": self._platform_json,
            "cpu": self._cpu_json,
            "memory": self._memory_json,
            "gpus": self._gpus_json,
            "docker": self._docker_json,
        }
        found: dict[str, Any] = {
            "schema": SCHEMA,
            "simulated": self.gpus.simulated,
            **{key: make() if key in only else None for key, make in sections.items()},
            "evidence": [_less(asdict(item), "module") for item in self.evidence],
        }
        if explain:
            found["conclusions"] = [
                asdict(item, dict_factory=_keyless) for item in self.conclusions
            ]
        return found

    def late(self, probe: str | None = None) -> tuple[Evidence, ...]:
        """Who gave no answer in time: of what they tell nothing is known, absence neither."""
        return tuple(
            item
            for item in self.evidence
            if item.state == "timeout" and probe in (None, item.probe)
        )

    @property
    def forbidden(self) -> bool:
        """Whether the engine answered, and by HTTP 401 or 403: no socket's mode keeps us out."""
        return self.engine.state == "denied" and any(
            item.probe == "engine" and item.code in (401, 403) for item in self.evidence
        )

    @property
    def refusing_plugin(self) -> str | None:
        """The authorization plugin that refuses us, where the engine names one ("authorization denied by
        plugin NAME: why")."""
        found = re.search(r"\bdenied by plugin ([^\s:]{1,80})", self.engine.detail or "")
        return found[1] if self.forbidden and found else None

    @property
    def without_engine(self) -> bool:
        """Whether a proxy answered that no engine is behind it (HTTP 502)."""
        return self.engine.state == "error" and any(
            item.probe == "engine" and item.code == 502 for item in self.evidence
        )

    def unanswered(self, only: Collection[Section] = SECTIONS) -> tuple[Unanswered, ...]:
        """What timed out or could not be asked; () where all was answered."""
        late = self.late()
        told = [
            Unanswered(each.probe, each.state, each.detail or "no answer in time") for each in late
        ]
        for name, fact in (
            ("platform", self.platform),
            ("cpu", self.cpu),
            ("memory", self.memory),
            ("gpus", self.gpus),
            ("docker", self.engine),
        ):
            failed = fact.state in ("denied", "error") or (fact.state == "timeout" and not late)
            if name in only and failed:
                said = (getattr(fact, "host", None), getattr(fact, "detail", None))
                detail = ": ".join(filter(None, said))
                told.append(Unanswered(name, fact.state, detail, section=True))
        if "gpus" in only and not self.gpus.complete and not late:
            detail = self.gpus.detail or "not all of them are known"
            told.append(Unanswered("gpus", self.gpus.state, detail))
        return tuple(dict.fromkeys(told))

    def _platform_json(self) -> dict[str, Any]:
        return asdict(self.platform)

    def _cpu_json(self) -> dict[str, Any]:
        return asdict(self.cpu)

    def _memory_json(self) -> dict[str, Any]:
        return {**asdict(self.memory), "usable_mib": self.memory.usable_mib}

    def _gpus_json(self) -> dict[str, Any]:
        found = asdict(self.gpus, dict_factory=_keyless)
        return {**_less(found, "causes"), "vendor": self.gpus.vendor}

    def _docker_json(self) -> dict[str, Any]:
        found = asdict(self.engine)
        compose = self.engine.compose
        found["compose"] = compose.version.lstrip("v") if compose else None
        return found


def _less(found: dict[str, Any], key: str) -> dict[str, Any]:
    """Without what few have and this one does not."""
    return {name: value for name, value in found.items() if name != key or value}


def _keyless(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return _less(dict(pairs), "key")

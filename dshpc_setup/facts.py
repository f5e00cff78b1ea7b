"""What is known about a machine: frozen values, made by probes and read by everything after them.

A fact is never just missing: every probe says `present`, `absent`, `denied`, `timeout`, `error` or
`unsupported`, and where it looked. A single value that is not known is None, never 0 or "".
`HostFacts.to_json()` is the contract of `dshpc detect --json` (schema `dshpc.facts/1`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

State = Literal["present", "absent", "denied", "timeout", "error", "unsupported"]
Vendor = Literal["nvidia", "amd", "intel"]
PlatformKind = Literal["linux", "wsl2", "wsl1", "macos"]
EngineKind = Literal["engine", "desktop", "podman", "snap", "remote"]
MigMode = Literal["enabled", "disabled", "unsupported"]

SCHEMA = "dshpc.facts/1"


@dataclass(frozen=True)
class Evidence:
    """Where a fact was read, how it went and how long it took."""

    probe: str
    state: State
    source: str
    ms: float
    detail: str | None = None


@dataclass(frozen=True)
class Platform:
    kind: PlatformKind
    in_container: bool = False
    os_id: str | None = None  # ID of /etc/os-release: debian, ubuntu, fedora, ...
    os_version: str | None = None
    os_like: tuple[str, ...] = ()
    kernel: str | None = None
    arch: str = "x86_64"  # as `uname -m` says it
    selinux: Literal["enforcing", "permissive", "disabled"] | None = None


@dataclass(frozen=True)
class Cpu:
    """Logical CPUs as the kernel counts them; `usable` after affinity, cpuset and CPU quota."""

    logical: int
    sockets: int | None = None
    cores_per_socket: int | None = None
    threads_per_core: int | None = None
    usable: int = 1
    limited_by: str | None = None  # "cpuset" | "cgroup quota" | "affinity" | "engine"


@dataclass(frozen=True)
class Memory:
    """MiB: `limit_mib` is the least of the machine's own and every limit on this process.

    `usable_mib` is what Slurm may hand out by default: the limit less a tenth.
    """

    total_mib: int
    limit_mib: int
    limited_by: str | None = None

    @property
    def usable_mib(self) -> int:
        return self.limit_mib - self.limit_mib // 10


@dataclass(frozen=True)
class MigInstance:
    profile: str  # "1g.10gb"
    uuid: str | None = None
    memory_mib: int | None = None
    device_files: tuple[str, ...] = ()  # the card's node and both capability nodes


@dataclass(frozen=True)
class GpuDevice:
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


@dataclass(frozen=True)
class Gpus:
    """All GPUs, in the vendors' own order. `state` is `present` only where devices are listed."""

    state: State
    devices: tuple[GpuDevice, ...] = ()
    simulated: bool = False
    driver_version: str | None = None
    cuda_version: str | None = None
    detail: str | None = None  # for any state but present: why, in one sentence

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
class Engine:
    """The Docker engine as it answers; every field beside `state` is None/empty unless present."""

    state: State
    server_version: str | None = None
    api_version: str | None = None
    kind: EngineKind | None = None
    rootless: bool | None = None
    cgroup_driver: str | None = None
    cgroup_version: int | None = None
    runtimes: tuple[str, ...] = ()
    cdi_devices: tuple[str, ...] = ()
    compose: Compose | None = None
    buildx: str | None = None  # version of the buildx plugin, if any
    host: str | None = None  # the endpoint that was asked
    name: str | None = None  # the daemon's own host name
    os_type: str | None = None
    arch: str | None = None
    cpus: int | None = None  # what the daemon's machine has (a VM's on Docker Desktop)
    memory_mib: int | None = None
    security_options: tuple[str, ...] = ()
    root_dir: str | None = None
    storage_driver: str | None = None
    engine_id: str | None = None
    detail: str | None = None


@dataclass(frozen=True)
class HostFacts:
    platform: Platform
    cpu: Cpu
    memory: Memory
    gpus: Gpus
    engine: Engine
    evidence: tuple[Evidence, ...] = field(default=(), compare=False)

    def to_json(self) -> dict[str, Any]:
        """The `dshpc.facts/1` object: JSON values only."""
        gpus = asdict(self.gpus)
        gpus["vendor"] = self.gpus.vendor
        docker = asdict(self.engine)
        compose = self.engine.compose
        docker["compose"] = compose.version.lstrip("v") if compose else None
        return {
            "schema": SCHEMA,
            "simulated": self.gpus.simulated,
            "platform": asdict(self.platform),
            "cpu": asdict(self.cpu),
            "memory": {**asdict(self.memory), "usable_mib": self.memory.usable_mib},
            "gpus": gpus,
            "docker": docker,
            "evidence": [asdict(item) for item in self.evidence],
        }

"""GPUs: what is known of each, of their parts and links, and why a card is not counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dshpc_setup.facts.evidence import Disagreement, State

Vendor = str  # the name of a folder of `vendors/`; gpu_vendors says what is known of it
MigMode = Literal["enabled", "disabled", "unsupported"]
ComputeMode = Literal["default", "exclusive-thread", "prohibited", "exclusive-process"]
Virtualization = Literal["none", "passthrough", "vgpu", "host-vgpu", "host-vsga"]
FabricFault = Literal[
    "unhealthy", "limited-capacity", "degraded-bandwidth", "route-recovery", "route-unhealthy",
    "access-timeout", "incorrect-configuration",
]  # fmt: skip
FabricState = Literal["not-supported", "not-started", "in-progress", "completed"]


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

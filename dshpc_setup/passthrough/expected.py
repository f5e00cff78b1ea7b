"""What a container must see of the GPUs that it was promised. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dshpc_setup import gpu_vendors
from dshpc_setup.facts import GpuDevice, HostFacts, Vendor
from dshpc_setup.passthrough import vendor_ways
from dshpc_setup.passthrough.vendor_ways import DriverInside
from dshpc_setup.plan import ClusterPlan, GresLine

COMPUTE_LIBRARY = "libcuda.so.1"
MANAGEMENT_LIBRARY = "libnvidia-ml.so.1"
DXG = "/dev/dxg"
_SAME_KERNEL = ("engine", "podman", "snap", "builtin")


@dataclass(frozen=True)
class ExpectedNode:
    """A device node that must open; `number` ("195:0") and `pci` None where not to be compared."""

    path: str
    number: str | None = None  # None as well where this machine has no such node
    pci: str | None = None


@dataclass(frozen=True)
class Expected:
    """The promise: all of it must be seen, no node of `foreign`, and of the UUIDs none but `allowed`."""

    nodes: tuple[ExpectedNode, ...]
    gpus: tuple[tuple[str, ...], ...] = ()  # the nodes of each GPU, whole cards and parts alike
    foreign: frozenset[str] = frozenset()  # nodes of GPUs that were not asked for
    uuids: tuple[str, ...] = ()
    allowed: frozenset[str] = frozenset()  # empty: any
    libraries: tuple[str, ...] = ()
    driver_version: str | None = None  # the libraries' version, where their names tell one

    @property
    def count(self) -> int:
        return len(self.gpus)


def vendors_of(plan: ClusterPlan) -> frozenset[Vendor]:
    return frozenset(line.vendor for line in plan.gres)


def takes_all(facts: HostFacts, plan: ClusterPlan, whole: bool, vendor: Vendor) -> bool:
    """Whether a vendor's GPUs may be asked for as "all": none was selected, and none is left out.

    A card with a problem is left out of the plan, and "all" would hand it over, or fail because of
    it. WSL has one device node for all GPUs, and knows no other way.
    """
    if not whole or facts.platform.kind == "wsl2":
        return whole
    known = sum(
        max(1, len(gpu.mig)) if gpu.mig_mode == "enabled" else 1
        for gpu in facts.gpus.devices
        if gpu.vendor == vendor
    )
    return facts.gpus.complete and known == sum(line.vendor == vendor for line in plan.gres)


def node_paths(facts: HostFacts, plan: ClusterPlan) -> tuple[str, ...]:
    """The device nodes that jobs open for all that the plan hands out.

    WSL2 has one node for all its GPUs; an AMD GPU computes through /dev/kfd as well as its own, an
    NVIDIA GPU through the control node and that of unified memory.
    """
    if facts.platform.kind == "wsl2":
        return (DXG,)
    before: list[str] = []
    behind: list[str] = []
    for vendor in gpu_vendors.names():
        if vendor in vendors_of(plan):
            more = vendor_ways.of(vendor).more_nodes
            behind += more(plan) if more is not None else ()
            before += gpu_vendors.of(vendor).nodes.shared if more is None else ()
    files = (file for line in plan.gres for file in _files(line, plan))
    return tuple(dict.fromkeys((*before, *files, *behind)))


def expect(
    facts: HostFacts, plan: ClusterPlan, whole: bool, numbers: Mapping[str, tuple[int, int]]
) -> Expected:
    """What is promised for these GPUs; `numbers` are this machine's, of the nodes that it has.

    `whole`: no GPU was selected.
    """
    inside = _driver(facts, plan, whole)
    here = facts.engine.kind in _SAME_KERNEL
    pci = _addresses(plan.gpus) if here else {}
    told = {path: "{}:{}".format(*number) for path, number in numbers.items()} if here else {}
    return Expected(
        nodes=tuple(
            ExpectedNode(path, told.get(path), pci.get(path)) for path in node_paths(facts, plan)
        ),
        gpus=tuple(
            (DXG,) if facts.platform.kind == "wsl2" else _files(line, plan) for line in plan.gres
        ),
        foreign=_foreign(facts, plan, whole),
        uuids=inside.uuids,
        allowed=inside.allowed,
        libraries=inside.libraries,
        driver_version=inside.version,
    )


def _driver(facts: HostFacts, plan: ClusterPlan, whole: bool) -> DriverInside:
    """Of the first vendor whose driver is looked for inside."""
    for vendor in gpu_vendors.names():
        told = vendor_ways.of(vendor).driver if vendor in vendors_of(plan) else None
        if told is not None:
            return told(facts, plan, whole)
    return DriverInside()


def _files(line: GresLine, plan: ClusterPlan) -> tuple[str, ...]:
    """The nodes of a GPU that a job cannot do without."""
    own = vendor_ways.of(line.vendor).files
    return line.files if own is None else own(line, plan)


def _addresses(gpus: tuple[GpuDevice, ...]) -> dict[str, str]:
    """Node -> PCI address, for render nodes: sysfs tells a container whose they are.

    The partitions of an AMD card are platform devices, which have none.
    """
    return {
        node: gpu.pci_bus_id
        for gpu in gpus
        for node in gpu.device_files
        if gpu.pci_bus_id and gpu.partition_of is None and node.startswith("/dev/dri/render")
    }


def _foreign(facts: HostFacts, plan: ClusterPlan, whole: bool) -> frozenset[str]:
    if facts.platform.kind == "wsl2":
        return frozenset()
    partly = {vendor for vendor in vendors_of(plan) if not takes_all(facts, plan, whole, vendor)}
    asked = {file for line in plan.gres for file in line.files}
    known = {
        file for gpu in facts.gpus.devices if gpu.vendor in partly for file in gpu.device_files
    }
    return frozenset(known - asked)

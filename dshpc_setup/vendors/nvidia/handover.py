"""How NVIDIA's GPUs come into a container, and what it must show of their driver. Pure."""

from __future__ import annotations

from dshpc_setup.facts import HostFacts
from dshpc_setup.passthrough.expected import COMPUTE_LIBRARY, MANAGEMENT_LIBRARY, takes_all
from dshpc_setup.passthrough.handover import Handover
from dshpc_setup.passthrough.vendor_ways import DriverInside, VendorWays
from dshpc_setup.passthrough.wanted import WantedGpus
from dshpc_setup.plan import ClusterPlan, GresLine
from dshpc_setup.vendors.nvidia.descriptor import DESCRIPTOR

_NAME = DESCRIPTOR.name
_TEGRA = "nvgpu"  # the driver of Jetsons
# Of the dozen nodes of a Jetson those that CUDA opens first: the toolkit's lists leave others out.
_JETSON = ("/nvidia0", "/as", "/ctrl", "/channel", "-as-gpu", "-ctrl-gpu", "/nvmap")


def _ids(asked: WantedGpus) -> tuple[str, ...]:
    """UUIDs where known: an index may mean another card after the next boot."""
    lines = asked.lines(_NAME)
    return tuple(dict.fromkeys(line.uuid or str(line.index) for line in lines))


def _request(asked: WantedGpus) -> Handover:
    ids = () if asked.every(_NAME) else _ids(asked)
    return Handover("device-request", ids=ids, environment=DESCRIPTOR.capabilities)


def _files(line: GresLine, plan: ClusterPlan) -> tuple[str, ...]:
    if not any(gpu.index == line.index and gpu.driver == _TEGRA for gpu in plan.gpus):
        return line.files
    return tuple(file for file in line.files if file.endswith(_JETSON)) or line.files


def _more_nodes(plan: ClusterPlan) -> tuple[str, ...]:
    """The control node and that of unified memory; a Jetson has these two at times."""
    cards = any(gpu.vendor == _NAME and gpu.driver != _TEGRA for gpu in plan.gpus)
    return DESCRIPTOR.nodes.shared if cards else ()


def _driver(facts: HostFacts, plan: ClusterPlan, whole: bool) -> DriverInside:
    named = (line.uuid for line in plan.gres if line.vendor == _NAME)
    wanted = tuple(dict.fromkeys(filter(None, named)))
    known = _allowed(facts, plan, whole) | set(wanted) if facts.gpus.complete else frozenset()
    return DriverInside(wanted, known, _libraries(plan), _version(facts, plan))


def _allowed(facts: HostFacts, plan: ClusterPlan, whole: bool) -> frozenset[str]:
    """UUIDs that may be seen: a MIG instance is listed below its card."""
    every = takes_all(facts, plan, whole, _NAME)
    gpus = facts.gpus.devices if every else plan.gpus
    known = [uuid for gpu in gpus for uuid in (gpu.uuid, *(item.uuid for item in gpu.mig))]
    return frozenset(filter(None, known))


def _libraries(plan: ClusterPlan) -> tuple[str, ...]:
    # Jetson's older releases have CUDA without NVML
    jetson = any(gpu.driver == _TEGRA for gpu in plan.gpus)
    return (COMPUTE_LIBRARY,) if jetson else (MANAGEMENT_LIBRARY, COMPUTE_LIBRARY)


def _version(facts: HostFacts, plan: ClusterPlan) -> str | None:
    told = (gpu.driver_version for gpu in plan.gpus if gpu.vendor == _NAME)
    only = facts.gpus.driver_version if facts.gpus.vendor == _NAME else None
    return next(filter(None, told), only)


WAYS = VendorWays(_ids, _request, _files, _more_nodes, _driver)

"""What a vendor's ways into a container have of their own: `WAYS` of its aspect `handover`. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dshpc_setup import gpu_vendors

if TYPE_CHECKING:
    from dshpc_setup.facts import HostFacts
    from dshpc_setup.passthrough.handover import Handover
    from dshpc_setup.passthrough.model import Cause
    from dshpc_setup.passthrough.wanted import WantedGpus
    from dshpc_setup.plan import ClusterPlan, GresLine


@dataclass(frozen=True)
class DriverInside:
    """What a container must show of the vendor's driver."""

    uuids: tuple[str, ...] = ()
    allowed: frozenset[str] = frozenset()  # UUIDs that may be there beside them; empty: any
    libraries: tuple[str, ...] = ()
    version: str | None = None  # the libraries', where their names tell one


@dataclass(frozen=True)
class VendorWays:
    """Without an aspect a vendor's GPUs come by CDI, by its runtime, or as device nodes."""

    ids: Callable[[WantedGpus], tuple[str, ...]] | None = None  # what its toolkit calls these GPUs
    request: Callable[[WantedGpus], Handover | Cause] | None = None  # what --gpus comes to
    files: Callable[[GresLine, ClusterPlan], tuple[str, ...]] | None = (
        None  # of a GPU: those jobs open
    )
    more_nodes: Callable[[ClusterPlan], tuple[str, ...]] | None = None  # in place of `nodes.shared`
    driver: Callable[[HostFacts, ClusterPlan, bool], DriverInside] | None = None


def of(vendor: str) -> VendorWays:
    module = gpu_vendors.aspect(vendor, "handover")
    found: VendorWays = VendorWays() if module is None else module.WAYS
    return found

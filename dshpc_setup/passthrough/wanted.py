"""What is to be handed over, on which machine. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dshpc_setup import gpu_vendors
from dshpc_setup.facts import Engine, HostFacts, Vendor
from dshpc_setup.passthrough.expected import takes_all, vendors_of
from dshpc_setup.plan import ClusterPlan, GresLine

if TYPE_CHECKING:
    from dshpc_setup.passthrough.driver_files import DriverFiles


@dataclass(frozen=True)
class WantedGpus:
    """GPUs of a plan; `whole`: none was selected, so that they may be asked for as "all".

    `files` is what the built-in engine would bind; None where the machine was not asked.
    """

    facts: HostFacts
    plan: ClusterPlan
    whole: bool = True
    files: DriverFiles | None = None

    @property
    def engine(self) -> Engine:
        return self.facts.engine

    @property
    def wsl(self) -> bool:
        return self.facts.platform.kind == "wsl2"

    @property
    def vendors(self) -> frozenset[Vendor]:
        return vendors_of(self.plan)

    @property
    def vendor(self) -> Vendor:
        """Whose mechanisms come first: others' device nodes can join NVIDIA's, not the reverse."""
        return next(vendor for vendor in gpu_vendors.names() if vendor in self.vendors)

    def lines(self, vendor: Vendor) -> tuple[GresLine, ...]:
        return tuple(line for line in self.plan.gres if line.vendor == vendor)

    def every(self, vendor: Vendor) -> bool:
        return takes_all(self.facts, self.plan, self.whole, vendor)

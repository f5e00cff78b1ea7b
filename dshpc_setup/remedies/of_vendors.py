"""What only a vendor knows to fix: `REMEDIES` of its aspect `remedies`. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dshpc_setup import gpu_vendors
from dshpc_setup.facts import HostFacts
from dshpc_setup.remedies.family import Fixes

FIRST = gpu_vendors.names()[0]
"""Whose steps are given where it is not known whose GPUs they are."""


@dataclass(frozen=True)
class VendorRemedies:
    """Without an aspect the steps name the vendor's guide, and its programs by the descriptor."""

    guide: str = ""
    # And whether that is all; None where it is by the guide
    install: Callable[[HostFacts], tuple[Fixes, bool] | None] | None = None
    generate: Callable[[HostFacts, tuple[str, ...]], Fixes] | None = (
        None  # the CDI specifications there
    )
    make_nodes: Callable[[HostFacts, bool], Fixes] | None = None  # of whole cards, else of parts


def of(vendor: str) -> VendorRemedies:
    module = gpu_vendors.aspect(vendor, "remedies")
    found: VendorRemedies = VendorRemedies() if module is None else module.REMEDIES
    return found

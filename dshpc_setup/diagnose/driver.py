"""Drivers and cards: the checks of each vendor, in the vendors' order."""

from __future__ import annotations

from dshpc_setup import gpu_vendors
from dshpc_setup.diagnose.model import Check, CheckInput


def checks() -> tuple[Check, ...]:
    """`CHECKS` of each vendor's aspect `checks`."""
    found: tuple[Check, ...] = ()
    for vendor in gpu_vendors.names():
        module = gpu_vendors.aspect(vendor, "checks")
        found += () if module is None else module.CHECKS
    return found


def told_by_vendors(known: CheckInput) -> frozenset[str]:
    """PCI addresses of cards of which a vendor's own check says all that is wrong: its `told`."""
    found: set[str] = set()
    for vendor in gpu_vendors.names():
        module = gpu_vendors.aspect(vendor, "checks")
        told = getattr(module, "told", None)
        found |= set() if told is None else told(known)
    return frozenset(found)

"""Drivers and cards, by vendor."""

from __future__ import annotations

from dshpc_setup.diagnose import amd, intel, nvidia
from dshpc_setup.diagnose.model import Check

CHECKS: tuple[Check, ...] = (*nvidia.CHECKS, *amd.CHECKS, *intel.CHECKS)

"""What the vendors of GPUs and their container toolkits are called."""

from __future__ import annotations

from collections.abc import Mapping

from dshpc_setup.facts import Vendor

NAMES: Mapping[Vendor, str] = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel"}

# Intel has none
TOOLKITS: Mapping[Vendor, str] = {
    "nvidia": "NVIDIA Container Toolkit",
    "amd": "AMD Container Toolkit",
}

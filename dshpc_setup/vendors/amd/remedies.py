"""Where AMD says how its container toolkit is installed: its quick start guide."""

from __future__ import annotations

from dshpc_setup.remedies.of_vendors import VendorRemedies

REMEDIES = VendorRemedies(
    guide="https://instinct.docs.amd.com/projects/container-toolkit/en/latest/"
    "container-runtime/quick-start-guide.html"
)

"""NVIDIA's driver: the oldest that is of use, and where WSL 2 has what Windows lends of it."""

from __future__ import annotations

import re

OLDEST_DRIVER = 470
CONTROL = "/dev/nvidiactl"
UVM = "/dev/nvidia-uvm"
WSL_DEVICE = "/dev/dxg"
WSL_FOLDER = "/usr/lib/wsl/lib"


def too_old(version: str | None) -> bool:
    """Whether a driver ("460.91.03") is older than what containers and CUDA want."""
    match = re.match(r"(\d{1,4})(?:\.|$)", version or "", re.ASCII)
    return match is not None and int(match[1]) < OLDEST_DRIVER

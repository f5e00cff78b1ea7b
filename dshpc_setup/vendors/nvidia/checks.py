"""The checks of NVIDIA's drivers and cards, which lie in `diagnose`."""

from dshpc_setup.diagnose.nvidia import CHECKS

__all__ = ["CHECKS"]

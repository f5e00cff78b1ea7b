"""The checks of AMD's driver and cards, which lie in `diagnose`."""

from dshpc_setup.diagnose.amd import CHECKS

__all__ = ["CHECKS"]

"""What there is of AMD's GPUs: the probe, whose parts lie in `probes/amd`."""

from dshpc_setup.probes.amd.probe import probe

__all__ = ["probe"]

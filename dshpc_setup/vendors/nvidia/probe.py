"""What there is of NVIDIA's GPUs: the probe, whose parts lie in `probes/nvidia`."""

from dshpc_setup.probes.nvidia.probe import probe

__all__ = ["probe"]

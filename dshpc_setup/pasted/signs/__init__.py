"""What programs say, and the findings it is a sign of: a table for each who says it, the more telling first.

Beside this table count the catalogue of refusals (`passthrough.causes`) and the checks of the kernel's log;
what these know is not said here again, and a line in the kernel's own form is for its checks alone. Here
stands what nobody asks a machine for: what CUDA, ROCm, PyTorch and Slurm say to who uses them, and words that
mean another thing in a person's hands than in a test-run.

Sources: the CUDA Runtime and Driver API references (error names and texts), c10/cuda of PyTorch, HIP's error
names, Slurm's slurm_errno.c and its node reasons, NVIDIA's driver and installer (NVRM: ...), moby, and the
threads that tests/messages names, without those of its second half.
"""

from __future__ import annotations

from dshpc_setup.pasted.signs.cluster import OWN
from dshpc_setup.pasted.signs.computing import CUDA
from dshpc_setup.pasted.signs.drivers import DRIVER, LOST
from dshpc_setup.pasted.signs.engines import ENGINE
from dshpc_setup.pasted.signs.general import REST
from dshpc_setup.pasted.signs.sign import Sign
from dshpc_setup.pasted.signs.slurms import SLURM

__all__ = ["FIRST", "LAST", "NEXT", "Sign"]

FIRST: tuple[Sign, ...] = (*OWN, *LOST)
"""Before all else."""
NEXT: tuple[Sign, ...] = (*DRIVER, *CUDA, *ENGINE, *SLURM)
"""After the checks of the kernel's log, before the catalogue of refusals."""
LAST: tuple[Sign, ...] = REST
"""After both: words that others explain better."""

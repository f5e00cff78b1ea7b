"""Slurm 26.05: where it differs from 24.11."""

from __future__ import annotations

from dshpc_setup.slurm_releases import v24_11

# `sbatch --help` and `srun --help`
OPTIONS = v24_11.OPTIONS._replace(
    sbatch=v24_11.OPTIONS.sbatch | {"spread-segments"},
    srun=v24_11.OPTIONS.srun | {"async", "wait-for-children"},
)

# https://slurm.schedmd.com/upgrades.html: the three releases before it
RELEASE = v24_11.RELEASE._replace(
    version=(26, 5), options=OPTIONS, oldest_node=(24, 11), package=None
)

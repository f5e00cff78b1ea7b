"""What the steps of a start, or of a reconfiguration, hand on to each other."""

from __future__ import annotations

import pwd
from dataclasses import dataclass

from dshpc_setup.container.interrupted import Interrupted
from dshpc_setup.container.status import Status
from dshpc_setup.machine import Machine
from dshpc_setup.settings import Settings
from dshpc_setup.slurm.paths import Paths


@dataclass
class Run:
    machine: Machine
    paths: Paths
    status: Status
    settings: Settings
    slurm: tuple[int, int]  # SlurmUser's uid and gid
    restored: bool = False  # slurmctld has a saved state: this is not the first start
    interrupted: Interrupted | None = None  # the jobs that ran before; None: nobody says
    contested: bool = (
        False  # interrupted jobs are to begin again, and others could come before them
    )
    held: bool = False  # the node is taken out until the interrupted ones may begin
    drained_by_proof: bool = False  # the node, since the Prolog failed before the first job
    up_since: float = 0.0  # when slurmd was started last, in seconds of the epoch

    @property
    def is_worker(self) -> bool:
        """Whether slurmctld is elsewhere."""
        return self.settings.place.role == "worker"


def slurm_user() -> tuple[int, int]:
    """uid and gid of SlurmUser."""
    entry = pwd.getpwnam("slurm")
    return entry.pw_uid, entry.pw_gid

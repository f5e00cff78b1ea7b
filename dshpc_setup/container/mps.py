"""NVIDIA's MPS: the daemon without which a share of a GPU is a number that nobody enforces."""

from __future__ import annotations

import os
import time

from dshpc_setup.machine import Machine
from dshpc_setup.plan.model import ClusterPlan
from dshpc_setup.slurm.paths import Paths

PROGRAM = "nvidia-cuda-mps-control"
_UP_S = 5.0
_ASK_S = 5.0


def prepare(
    machine: Machine, paths: Paths, plan: ClusterPlan, *, wait_s: float = _UP_S
) -> tuple[str, ...]:
    """Start the control daemon where jobs share GPUs by MPS; sentences for people on what is not so.

    The program is the driver's, and the container toolkit hands it in. Slurm itself sets
    CUDA_MPS_ACTIVE_THREAD_PERCENTAGE and no more.
    """
    if plan.sharing is None or plan.sharing.kind != "mps":
        return ()
    if machine.which(PROGRAM) is None:
        return (
            f"GPUs are shared by time, and the percentages of gres/mps are not enforced: {PROGRAM} is "
            "not in this container.",
        )
    ended = f"{paths.run}/mps.ended"
    if os.path.lexists(ended):
        os.unlink(ended)
    until = time.monotonic() + wait_s
    while True:  # s6-svscan may just be starting
        told = machine.run(["s6-svc", "-U", f"{paths.services}/mps"], deadline_s=_ASK_S)
        if told.ok:
            break
        if time.monotonic() >= until:
            return (_not_up("the supervisor does not take the order to start it"),)
        time.sleep(0.01)
    while not os.path.exists(f"{paths.run}/mps/pipe/control"):
        if os.path.exists(ended):
            return (_not_up("it ended at once"),)
        if time.monotonic() >= until:
            return (_not_up(f"it does not listen after {wait_s:.0f} s"),)
        time.sleep(0.01)
    return ()


def _not_up(why: str) -> str:
    return (
        f"GPUs are shared by time, and the percentages of gres/mps are not enforced: {PROGRAM} is not "
        f"up, {why}. What it says is in the container's log and in /run/dshpc/mps/log."
    )

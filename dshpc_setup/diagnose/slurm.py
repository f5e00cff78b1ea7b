"""The cluster: its start, and whether jobs can run; its parts are looked at in `slurm_*.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dshpc_setup.diagnose.common import cluster
from dshpc_setup.diagnose.model import (
    Check,
    CheckInput,
    Verdict,
    fault,
    fine,
    not_here,
    note,
    warning,
)
from dshpc_setup.diagnose.slurm_accounting import ACCOUNTING_CHECKS
from dshpc_setup.diagnose.slurm_across import ACROSS_CHECKS
from dshpc_setup.diagnose.slurm_container import CONTAINER_CHECKS
from dshpc_setup.diagnose.slurm_daemons import DAEMON_CHECKS
from dshpc_setup.diagnose.slurm_gpus import GPU_CHECKS
from dshpc_setup.diagnose.slurm_known import (
    ACROSS,
    CONTROLLER,
    DOWN,
    DRAINED,
    INVALID,
    LOG,
    NODE,
    PROLOG,
    RUNS,
    nodes,
)
from dshpc_setup.diagnose.slurm_node import NODE_CHECKS
from dshpc_setup.diagnose.slurm_programs import PROGRAM_CHECKS
from dshpc_setup.diagnose.slurm_queue import QUEUE_CHECKS
from dshpc_setup.diagnose.slurm_upkeep import UPKEEP_CHECKS
from dshpc_setup.errors import Fix, told_error
from dshpc_setup.observed.cluster_status import TIERS

START = "DSH-SL-006"
STARTING = "DSH-SL-007"


def _start(known: CheckInput) -> Verdict:
    found = cluster(known)
    if found.failure is not None:
        return in_its_words(
            "The container started, and the cluster in it did not.", found.failure, known
        )
    return fine(found.phase or "not started yet")


def _starting(known: CheckInput) -> Verdict:
    found = cluster(known)
    if found.phase == "ready" or found.problem:
        return fine()
    how = Fix("See how it goes", "dshpc status", step="look")
    return warning("The cluster is still starting.", found.phase or "not started yet", fix=(how,))


def _takes_jobs(known: CheckInput) -> Verdict:
    """The sum of it all: a fault here is explained by another, but for states that are rare."""
    found = cluster(known)
    if found.failure is not None:
        return in_its_words("The start failed.", found.failure, known)
    if found.problem:
        return fault("The controller does not answer.", found.problem, fix=(LOG,))
    if found.phase != "ready":
        return _starting(known)
    seen = nodes(known)
    evidence = tuple(
        f"{node.name}: {node.state}, {node.gres or 'no GPU'}"
        + (f", because: {node.reason}" if node.reason else "")
        for node in found.nodes
    )
    if found.ready:
        return fine(*evidence)
    if not seen:
        return fault("The controller knows no node.", fix=(LOG,))
    unusable = [node for node, told in zip(seen, found.nodes, strict=True) if not told.usable]
    planned = all(node.by_a_person or node.reserved for node in unusable)
    tell = warning if planned else fault
    by = " Somebody took it out of use." if planned else ""
    return tell(f"The node is not available to jobs.{by}", *evidence, fix=(NODE,))


def _isolation(known: CheckInput) -> Verdict:
    found = cluster(known)
    if not any(node.gres for node in found.nodes):
        return not_here("The node has no GPU.")
    cause = f"The tier in force is {found.isolation}: {TIERS[found.isolation]}."
    if found.isolation == "enforced":
        return fine(cause)
    not_told = "It is not known whether jobs are kept to their own GPUs"
    return note(cause, title=not_told if found.isolation == "unknown" else None)


def in_its_words(cause: str, failure: dict[str, Any], known: CheckInput) -> Verdict:
    """An error as the container's start told it.

    The container does not know where the project folder is on the host, and its steps name it so.
    """
    error = told_error(failure)
    folder = known.observed.project
    return fault(
        cause,
        error.brief,
        *error.details.splitlines(),
        fix=tuple(_in_folder(fix, folder) for fix in error.fixes),
    )


def _in_folder(fix: Fix, folder: str | None) -> Fix:
    if folder is None or fix.place != "project":
        return fix
    return replace(fix, text=f"{fix.text}, in {folder}", place=None)


CHECKS: tuple[Check, ...] = (
    *CONTAINER_CHECKS,
    Check(START, "slurm", "The cluster's start succeeded", "The cluster's start failed", _start,
          needs=(RUNS,), because=("DSH-SL-026", "DSH-SL-027", PROLOG)),
    Check(STARTING, "slurm", "The cluster's start is done", "The cluster is still starting",
          _starting, needs=(RUNS, START)),
    *UPKEEP_CHECKS,
    *DAEMON_CHECKS,
    *ACCOUNTING_CHECKS,
    *GPU_CHECKS,
    *NODE_CHECKS,
    *ACROSS_CHECKS,
    Check("DSH-SL-002", "slurm", "The node takes jobs", "The node takes no jobs", _takes_jobs,
          needs=(RUNS,), because=(START, STARTING, CONTROLLER, *ACROSS, DRAINED, DOWN, INVALID)),
    Check("DSH-SL-003", "slurm", "Jobs are kept to their own GPUs",
          "Jobs are not kept to their own GPUs", _isolation, needs=(RUNS, CONTROLLER)),
    *PROGRAM_CHECKS,
    *QUEUE_CHECKS,
)  # fmt: skip

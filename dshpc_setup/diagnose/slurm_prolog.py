"""A Prolog or Epilog that ended with an error: Slurm drains the node, and holds the job."""

from __future__ import annotations

from dshpc_setup import slurm_releases
from dshpc_setup.diagnose.common import cluster
from dshpc_setup.diagnose.model import CheckInput, Verdict, fault, fine, unknown
from dshpc_setup.diagnose.slurm_known import (
    LOG,
    correct_lines,
    described,
    nodes,
    release,
    resume,
)
from dshpc_setup.errors import Fix
from dshpc_setup.slurm import slurm_conf
from dshpc_setup.slurm.nodes import Node

_ENDED = slurm_releases.says("program_ended")


def prolog(known: CheckInput) -> Verdict:
    """Also where the start failed at it: then the container alone tells of the node."""
    found = nodes(known)
    if not found:
        return unknown("The controller has told of no node.")
    bad = [node for node in found if node.drained and node.is_for("program_failed")]
    if not bad:
        return fine()
    key = bad[0].failed_program or "Prolog"
    program, line = _named(known, key)
    named = f"The {key} {program}" if program else f"The {key} program that slurm.conf names"
    return fault(
        f"{named} {_how(known, key)}. Slurm drains the node then, and holds the job.",
        *map(described, bad),
        *line,
        fix=(
            LOG,
            Fix("Correct the program: it must end with exit code 0, and has no PATH"),
            *correct_lines(known, "its line"),
            *_afterwards(known, bad[0]),
        ),
    )


def _named(known: CheckInput, key: str) -> tuple[str | None, tuple[str, ...]]:
    """The program of the slurm.conf in force, and where its line is set."""
    inside = known.observed.inside
    path = slurm_conf.last(inside.slurm_conf or "", key) if inside else None
    if path is None:
        return None, ()
    owner = (cluster(known).files or {}).get("slurm.conf")
    where = {
        "rendered": "the setting slurm_conf_extra",
        "custom": "your own config/slurm.conf",
        "edited": "your own config/slurm.conf",
    }.get(owner or "", "slurm.conf (the setting slurm_conf_extra, or a file of your own)")
    return path, (f"{key}={path} is set in {where}",)


def _how(known: CheckInput, key: str) -> str:
    """With its exit code, which slurmd alone tells."""
    seen = known.observed.container
    inside = known.observed.inside
    lines = (*(inside.errors if inside else ()), *(seen.log if seen else ()))
    ends = [found for line in lines if (found := _ENDED.search(line)) and found[1] == key.lower()]
    if not ends:
        return "ended with an error"
    _, code, signal = ends[-1].groups()
    return f"ended by signal {signal}" if signal != "0" else f"ended with exit code {code}"


def _afterwards(known: CheckInput, node: Node) -> tuple[Fix, ...]:
    """The node back, and the jobs that Slurm holds since then; a failed start does the first itself."""
    pending = cluster(known).pending or ()
    jobs = tuple(job for job in pending if job.hold == "launch")
    held = release(jobs, "Then release the jobs that Slurm holds for it", "after")
    if cluster(known).failure is not None:
        again = "Then start the cluster again, which takes the node back"
        return (Fix(again, "dshpc restart", step="after"), *held)
    return (*resume(node), *held)

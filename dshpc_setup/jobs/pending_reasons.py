"""Why queued jobs wait, in words: what cannot run as things are, and what only waits for its turn."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dshpc_setup.jobs import clock
from dshpc_setup.machine import Machine
from dshpc_setup.slurm import blocked_jobs
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.slurm.job_states import SlurmJob, shown
from dshpc_setup.slurm_releases import waits_for
from dshpc_setup.slurm_releases.model import Waits

_ASK_S = 30.0
_WORDS: Mapping[Waits, str] = {
    "first_look": "Slurm has not looked at it yet",
    "turn": "other jobs are before it",
    "resources": "what it asks for is held by other jobs",
    "array": "as many tasks of its array run as may at once",
    "licenses": "the licenses that it asks for are in use",
    "reservation": "its reservation has not begun",
    "prolog": "the node gets ready for it",
    "cleaning": "its last run is being cleared away",
    "node": "the node that it asks for is not available",
}


def reasons(machine: Machine, jobs: tuple[SlurmJob, ...]) -> dict[str, str]:
    """Id -> why, for the queued ones; one more question, and only where there are any."""
    waiting = [job for job in jobs if job.state == "PENDING"]
    if not waiting:
        return {}
    queue = Slurm(machine).pending(deadline_s=_ASK_S).value
    found = (
        {} if queue is None else {_plain(item.job): item.why for item in blocked_jobs.judge(queue)}
    )
    return {job.id: why(job, found) for job in waiting}


def why(job: SlurmJob, cannot: Mapping[str, str]) -> str:
    """`cannot`: id of a job, of an array as a whole -> why it cannot run as things are."""
    told = cannot.get(_plain(job.id))
    if told:
        return told
    waits = waits_for(job.reason)
    if waits == "dependency":
        asked = re.sub(r"\(\w+\)", "", job.dependency)
        return f"it waits for other jobs: {shown(asked)}" if asked else "it waits for other jobs"
    if waits == "time" and job.begins:
        return f"it begins at {clock.told(job.begins)}"
    if waits == "resources" and "gpu" in job.asked:
        asked = job.asked.replace("gres/", "").replace("gres:", "")
        return f"{shown(asked)} is not free: other jobs hold GPUs, CPUs or memory"
    known = _WORDS.get(waits) if waits else None
    return known or f"Slurm's reason is {shown(job.reason)}"


def _plain(job: str) -> str:
    return job.partition("_[")[0]

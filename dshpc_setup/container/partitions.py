"""Partitions that the configuration no longer has, while jobs of them are in the queue.

As slurmctld starts with a slurm.conf without the partition of a job, it ends that job, a waiting or a
held one too, with state NODE_FAIL (reset_job_bitmaps in job_mgr.c; seen with 24.11.5). With State=DRAIN
a partition takes no new jobs, and those that it has still run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dshpc_setup.container.config import Candidate
from dshpc_setup.container.run import Run
from dshpc_setup.machine import Machine
from dshpc_setup.slurm import slurm_conf
from dshpc_setup.slurm.client import Slurm

_ASK_S = 20.0
_MARK = "# Not in the configuration any more: stays until no job of it is left"


def with_former(candidate: Candidate, last: Mapping[str, str] | None) -> Candidate:
    """With a line for each partition that is in the last good slurm.conf alone.

    slurmctld does not run yet, so that nobody can say which of them has jobs: see `settle`.
    """
    text = candidate.texts["slurm.conf"]
    if not named(text):
        return candidate  # what is wrong with it Slurm says
    former = named((last or {}).get("slurm.conf", ""))
    lines = [_line(former[name], text) for name in former if name not in named(text)]
    if not lines:
        return candidate
    whole = "\n".join([text.rstrip("\n"), "", _MARK, *lines, ""])
    return replace(candidate, texts={**candidate.texts, "slurm.conf": whole})


def named(text: str) -> dict[str, Mapping[str, str]]:
    """Partition -> what its line says, in the order of the lines."""
    found = {}
    for entry in slurm_conf.entries(text):
        name = entry.values.get("partitionname", "")
        if re.fullmatch(r"[\w.-]+", name) and name.upper() != "DEFAULT":
            found[name] = entry.values
    return found


def _line(values: Mapping[str, str], text: str) -> str:
    """Nothing of the former line that could not be right any more: it may be another node now."""
    own = values.get("nodes", "")
    nodes = own if re.search(rf"(?m)^NodeSet={re.escape(own)}\s", text) else "ALL"
    longest = values.get("maxtime", "")
    limit = f" MaxTime={longest}" if re.fullmatch(r"[\w:-]+", longest) else ""
    return f"PartitionName={values['partitionname']} Nodes={nodes} Default=NO{limit} State=DRAIN"


@dataclass(frozen=True)
class _Former:
    text: str  # of slurm.conf without them
    names: tuple[str, ...]


def _former(text: str) -> _Former:
    own, mark, added = text.partition(f"\n{_MARK}\n")
    return _Former(own if mark else text, tuple(named(added)))


def same(old: Mapping[str, str], new: Mapping[str, str]) -> bool:
    """Whether the new texts are the old ones, less former partitions at most: see `settle`."""
    before, after = _former(old["slurm.conf"]), _former(new["slurm.conf"])
    others = {**old, "slurm.conf": ""} == {**new, "slurm.conf": ""}
    alike = before.text.rstrip("\n") == after.text.rstrip("\n")
    return others and alike and set(after.names) <= set(before.names)


def settle(run: Run, candidate: Candidate) -> dict[str, str]:
    """Take away the former partitions that have no jobs; the texts to remember as good.

    A note in the status for each of the others.
    """
    former = _former(candidate.texts["slurm.conf"])
    kept = []
    for name in former.names:
        jobs = _jobs(run.machine, name)
        if jobs == () and _delete(run.machine, name):
            continue
        kept.append(name)
        which = f" ({', '.join(jobs)})" if jobs else ""
        run.status.note(
            f"The partition {name} is not in the configuration any more and takes no new jobs. Jobs "
            f"of it{which} are in the queue: it stays until they have ended."
        )
    if not former.names or tuple(kept) == former.names:
        return dict(candidate.texts)
    lines = named(candidate.texts["slurm.conf"])
    added = [_MARK, *(_line(lines[name], former.text) for name in kept), ""] if kept else []
    text = "\n".join([former.text, *added])
    return {**candidate.texts, "slurm.conf": text}


def _jobs(machine: Machine, partition: str) -> tuple[str, ...] | None:
    """Ids of the jobs that have not ended; None where nobody knows."""
    states = "PENDING,RUNNING,SUSPENDED,STOPPED,COMPLETING,CONFIGURING"
    jobs = Slurm(machine).rows("JobID Partition", states, deadline_s=_ASK_S).value
    if jobs is None:
        return None
    return tuple(job.id for job in jobs if partition in job.partition.split(","))


def _delete(machine: Machine, partition: str) -> bool:
    return Slurm(machine).delete_partition(partition, deadline_s=_ASK_S).ok

"""Why queued jobs wait, in words: what cannot run as things are, and what only waits for its turn."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from dshpc_setup.jobs import clock
from dshpc_setup.machine import Machine
from dshpc_setup.slurm import blocked_jobs
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.slurm.holders import Holder
from dshpc_setup.slurm.job_states import SlurmJob, shown
from dshpc_setup.slurm.longest_wait import OURS
from dshpc_setup.slurm.nodes import parse_gres
from dshpc_setup.slurm.pending import parse_tres
from dshpc_setup.slurm_releases import waits_for
from dshpc_setup.slurm_releases.model import Waits

_ASK_S = 30.0
_MOST = 5  # jobs that are named
_WORDS: Mapping[Waits, str] = {
    "first_look": "Slurm has not looked at it yet",
    "turn": "other jobs are before it",
    "resources": "what it asks for is held by other jobs",
    "array": "as many tasks of its array run as may at once",
    "licenses": "the licenses that it asks for are in use",
    "reservation": "its reservation has not started",
    "prolog": "the node gets ready for it",
    "cleaning": "its last run is being cleared away",
    "node": "the node that it asks for is not available",
}

_LIMIT = re.compile(r"(Assoc|QOS)(?:Grp|Max)")  # Slurm's words for limits of sacctmgr's


def reasons(machine: Machine, jobs: tuple[SlurmJob, ...]) -> dict[str, str]:
    """Id -> why, for the queued ones; one more question, and only where there are any."""
    waiting = [job for job in jobs if job.state == "PENDING"]
    if not waiting:
        return {}
    queue = Slurm(machine).pending(deadline_s=_ASK_S).value
    found = (
        {} if queue is None else {_plain(item.job): item.why for item in blocked_jobs.judge(queue)}
    )
    first = _first(Slurm(machine), waiting)
    return {job.id: first.get(job.id) or why(job, found) for job in waiting}


def _first(slurm: Slurm, jobs: Sequence[SlurmJob]) -> dict[str, str]:
    """Of those that come first after longest_wait, or behind one that does; asked where there may be any."""
    ours = [job for job in jobs if job.reservation.startswith(OURS)]
    behind = [job for job in jobs if not job.reservation and waits_for(job.reason) == "node"]
    reservations = slurm.reservations(deadline_s=_ASK_S) if ours or behind else {}
    firsts = [each.first for each in reservations.values() if each.first]
    if not firsts:
        return {}
    holders = (slurm.holders(deadline_s=_ASK_S).value or ()) if ours else ()
    said = {
        job.id: _comes_first(job, reservations[job.reservation].nodes, holders)
        for job in ours
        if job.reservation in reservations and reservations[job.reservation].first
    }
    one = len(firsts) == 1
    come = f"job{'' if one else 's'} {', '.join(firsts)} {'comes' if one else 'come'} first there"
    return {**{job.id: f"{come}, after longest_wait" for job in behind}, **said}


def _comes_first(job: SlurmJob, nodes: Sequence[str], holders: Sequence[Holder]) -> str:
    """With who holds what it waits for."""
    asked = [name for name in parse_tres(job.asked) if name.split(":")[0] == "gpu"]
    near = [
        holder
        for holder in holders
        if set(nodes) & set(holder.nodes)
        and (not asked or any(_has(holder.on(node), asked) for node in nodes))
    ]
    told = [
        f"{holder.job_id} ({shown(holder.user)}, "
        + (f"until {clock.told(holder.until)} at the latest)" if holder.until else "no time limit)")
        for holder in near[:_MOST]
    ]
    more = [f"{len(near) - _MOST} more"] if len(near) > _MOST else []
    end = f" It begins as enough of these jobs end: {', '.join([*told, *more])}" if told else ""
    return (
        f"it comes first on {', '.join(map(shown, nodes))} after longest_wait: nothing begins there that "
        f"takes what it needs.{end}"
    )


def _has(held: str, asked: Sequence[str]) -> bool:
    return any(name in asked or "gpu" in asked for name in parse_gres(held))


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
        again = "it was queued again and " if job.restarts else "it "
        return f"{again}begins at {clock.told(job.begins)}"
    if waits == "resources" and "gpu" in job.asked:
        asked = job.asked.replace("gres/", "").replace("gres:", "")
        return f"{shown(asked)} is not free: other jobs hold GPUs, CPUs or memory"
    if limit := _LIMIT.match(job.reason):
        table = "assoc" if limit[1] == "Assoc" else "qos"
        return f"a limit of accounting holds it ({shown(job.reason)}): dshpc sacctmgr show {table}"
    known = _WORDS.get(waits) if waits else None
    return known or f"Slurm's reason is {shown(job.reason)}"


def _plain(job: str) -> str:
    return job.partition("_[")[0]

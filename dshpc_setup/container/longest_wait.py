"""Keeps what jobs that have waited for `longest_wait` need from others: the service longest-wait.

All that it knows is in Slurm: its reservations have a name of their own and end by themselves soon after it
has. So it may be killed at any moment, and so may slurmctld.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from dshpc_setup.files.storage import replace_text
from dshpc_setup.machine import Machine
from dshpc_setup.slurm import turns
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.slurm.holders import Holder
from dshpc_setup.slurm.longest_wait import FILE, OURS, Look
from dshpc_setup.slurm.paths import Paths
from dshpc_setup.slurm.turns import Decision

_ASK_S = 30.0
_BUSY_S = 0.5  # between two looks while something is reserved
_SILENT_S = 2.0
_NEAR_S = 5.0  # while a job has waited long enough, and Slurm's own order does
_RARELY_S = 300.0  # at the least: somebody may have changed what a job waits for
_PART = 2  # times as long as a look took: a long queue is not looked at all the time
_FOR_S = 120  # what is reserved, unless it is reserved for longer
_LONGER = timedelta(seconds=60)


def tend(machine: Machine, paths: Paths, longest_s: float) -> float:
    """Returns when no job comes first: after so many seconds it has to look again."""
    while True:
        began = time.monotonic()
        rest_s = look(machine, paths, longest_s)
        if rest_s > _NEAR_S:
            return min(rest_s, _RARELY_S)
        time.sleep(max(rest_s, _PART * (time.monotonic() - began)))


def look(machine: Machine, paths: Paths, longest_s: float) -> float:
    """One look, and what it takes; the seconds until the next."""
    slurm = Slurm(machine)
    now = datetime.now()  # noqa: DTZ005 -- as Slurm's times
    found = slurm.longest_wait(now, deadline_s=_ASK_S).value
    if found is None:
        return _SILENT_S
    rest_s = turns.next_look_s(found.queue, longest_s)
    if rest_s > 0 and not found.reservations:
        return rest_s
    holders = slurm.holders(deadline_s=_ASK_S).value
    if holders is None:
        return _SILENT_S
    decision = turns.decide(found, holders, longest_s)
    _carry_out(slurm, found, holders, decision, now)
    _note(paths.at(FILE), turns.kept(found, decision.turns))
    if decision.turns or found.reservations:
        return _BUSY_S
    return min(_NEAR_S, max(1.0, longest_s / 5))


def _note(path: str, kept: Mapping[str, Mapping[str, str]]) -> None:
    """For `dshpc method check` and who else asks what is free (jobs/availability.py)."""
    if kept:
        replace_text(path, json.dumps({"until": time.time() + _FOR_S, "nodes": kept}), sync=False)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _carry_out(
    slurm: Slurm, found: Look, holders: Sequence[Holder], decision: Decision, now: datetime
) -> None:
    """What is not so yet. A reservation goes only when no running job is in it."""
    begun = [job.job_id for job in holders if job.reservation.startswith(OURS)]
    if begun:
        slurm.update_jobs(begun, "reservationname=", deadline_s=_ASK_S)
    wanted = decision.reservations
    for name, nodes in wanted.items():
        known = found.reservations.get(name)
        if known is None:
            slurm.reserve(name, nodes, _FOR_S, deadline_s=_ASK_S)
        elif known.ends is None or known.ends - now < _LONGER or set(known.nodes) != set(nodes):
            slurm.reserve_longer(name, nodes, _FOR_S, deadline_s=_ASK_S)
    changed: dict[str, list[str]] = {}
    for job, name in _changes(found, decision.members).items():
        changed.setdefault(name, []).append(job)
    for name, jobs in changed.items():
        slurm.update_jobs(jobs, f"reservationname={name}", deadline_s=_ASK_S)
    for name in found.reservations.keys() - wanted.keys():
        slurm.delete_reservation(name, deadline_s=_ASK_S)


def _changes(found: Look, members: Mapping[str, str]) -> dict[str, str]:
    """Job -> the reservation that it is to be in; "" for none any more."""
    changes: dict[str, str] = {}
    for job in found.queue:
        if job.reservation.startswith(OURS) and not set(job.tasks) & members.keys():
            changes[job.asked.job] = ""
        for task in job.tasks:
            if task in members and members[task] != job.reservation:
                changes[task] = members[task]
    return changes

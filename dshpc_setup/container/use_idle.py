"""Jobs whose GPUs nobody uses are warned, and ended, where the setting release_idle says so."""

from __future__ import annotations

from dataclasses import replace

from dshpc_setup.container.use_jobs import ASK_S, WatchedJobs, say
from dshpc_setup.settings import texts
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.usage import live

_WARN_BEFORE_S = 600.0


def end_idle(watched: WatchedJobs, now: float) -> None:
    after_s = texts.age_s(watched.settings.release_idle)
    for key, job in list(watched.jobs.items()) if after_s else ():
        idle_s = job.all_idle_s(now)
        if idle_s is None or job.id is None:
            if job.warned is not None and idle_s is None:
                watched.jobs[key] = replace(job, warned=None)
            continue
        warn_s = max(after_s / 2, after_s - _WARN_BEFORE_S)
        if idle_s < warn_s:
            watched.jobs[key] = replace(job, warned=None)
        elif job.warned is None:
            text = (
                f"dshpc: the job's GPUs have not been used for {live.told_time(idle_s)}. If they stay "
                f"idle, the job is ended in {live.told_time(after_s - warn_s)} (setting release_idle: "
                f"{watched.settings.release_idle})."
            )
            if Slurm(watched.machine).notify(str(job.own), text, deadline_s=ASK_S).ok:
                watched.jobs[key] = replace(job, warned=now)
        elif idle_s >= after_s and now - job.warned >= after_s - warn_s:
            text = f"dshpc: the job is ended: its GPUs have not been used for {live.told_time(idle_s)}."
            Slurm(watched.machine).notify(str(job.own), text, deadline_s=ASK_S)
            Slurm(watched.machine).cancel(str(job.own), deadline_s=ASK_S)
            say(f"job {job.id} is ended: its GPUs have been idle for {live.told_time(idle_s)}")

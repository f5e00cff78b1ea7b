"""The launcher's line that its job has ended, before Slurm hears of it: see dshpc_setup/container/ends.py."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping

STOPPING = "/run/dshpc/stopping"  # a folder: the container is (container/rootfs, `stop`)
JOBS_TOLD = f"{STOPPING}/jobs"  # and its jobs are told so, from here on (container/end_jobs.py)
ENDED = "/var/lib/dshpc/state/ended"  # UID/(number of the job modulo SLOTS), as container/task_exit.c has it
NOT_KNOWN = 75  # what a job ends with of which nobody knows how it has ended
SLOTS = 1000


def write(environ: Mapping[str, str], code: int, folder: str = ENDED) -> None:
    """Of the program's exit code, negative for a signal, and never at the price of the job.

    Nothing where the container is killed, or is being stopped and its jobs were told: they have not ended,
    they begin anew.
    """
    if code == -signal.SIGKILL or os.path.exists(JOBS_TOLD):
        return
    with contextlib.suppress(OSError, ValueError, LookupError):
        job, restarts = int(environ["SLURM_JOB_ID"]), int(environ.get("SLURM_RESTART_COUNT") or 0)
        path = f"{folder}/{os.getuid()}/{job % SLOTS}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(path, flags, 0o600)
        try:
            os.write(handle, f"{job} {restarts} {code if code >= 0 else 128 - code}\n".encode())
        finally:
            os.close(handle)

"""Ctrl-C while the cluster is at a submission: what is submitted all the same.

A submission that is told to stop takes back what it has queued (jobs/submit.py, workflows/run.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dshpc_setup.errors import DshpcError

PATIENCE_S = 30.0  # sbatch is ended at once; what it has queued is looked for, and cancelled


def too_late(answer: Mapping[str, Any] | None, number: int) -> DshpcError | None:
    """Where the answer was under way already: what is submitted all the same."""
    jobs = (answer or {}).get("jobs") or [answer or {}]
    ids = [
        str(job["job_id"]) for job in jobs if job.get("job_id") and job.get("action") != "reused"
    ]
    if not ids:
        return None
    return DshpcError(
        f"The interruption came too late: job {', '.join(ids)} is submitted.", "",
        (f"End it: dshpc job cancel {' '.join(ids)}",), 128 + number,
    )  # fmt: skip

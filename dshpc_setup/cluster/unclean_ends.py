"""Ends of slurmctld that nobody ordered, and the jobs that they met: from the start report, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from dshpc_setup.jobs import clock
from dshpc_setup.observed.cluster_status import UncleanEnd
from dshpc_setup.terminal.sanitize import listed, often

_WORDS = {
    "continued": "Ran on, uninterrupted",
    "requeued": "Requeued, start from the beginning",
    "concluded": "Had run to their end, do not run again",
    "ended": "Ended, not requeued (--no-requeue, srun or salloc)",
}
_NOT_KNOWN = (
    "Which jobs ran is not known. Where the container was killed they start again, else they run on"
)


def read(report: Mapping[str, Any]) -> tuple[UncleanEnd, ...]:
    """Of a start report; what is no such entry is left out."""
    found = report.get("unclean_ends")
    return tuple(
        UncleanEnd(datetime.fromtimestamp(at).astimezone().isoformat(), read_jobs(each.get("jobs")))
        for each in (found if isinstance(found, list) else ())
        if isinstance(each, dict)
        and isinstance(at := each.get("at"), int)
        and 0 <= at < 1 << 36  # what a calendar has
    )


def read_jobs(value: object) -> dict[str, tuple[str, ...]] | None:
    """Ids by what became of them; None where that is not known."""
    if not isinstance(value, dict):
        return None
    return {
        word: tuple(str(job) for job in value[word])
        for word in _WORDS
        if isinstance(value.get(word), list)
    }


def lines(ends: Sequence[UncleanEnd]) -> list[str]:
    """The last one, with its jobs."""
    if not ends:
        return []
    at = clock.of_text(ends[-1].at)
    several = f" ({often(len(ends))} in the last day)" if len(ends) > 1 else ""
    said = [
        f"Killed     slurmctld or its container did not end in order; found at {at}{several}. "
        "Queued jobs are kept"
    ]
    jobs = ends[-1].jobs
    if jobs is None:
        return [*said, f"           {_NOT_KNOWN}"]
    told = [
        f"           {text}: {listed(jobs[word])}"
        for word, text in _WORDS.items()
        if jobs.get(word)
    ]
    return [*said, *(told or ["           No job was running"])]

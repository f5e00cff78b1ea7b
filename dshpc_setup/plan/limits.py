"""How many jobs Slurm may know at once, and how many tasks an array may have."""

from __future__ import annotations

from dshpc_setup.settings import Settings

_MOST_JOBS = 100_000  # each task of an array counts, also for five minutes after its end


def max_array_size(settings: Settings) -> int:
    """Slurm ends at once where an array may be larger than all jobs together."""
    return min(settings.array_limit, settings.job_limit or settings.array_limit)


def max_job_count(settings: Settings) -> int:
    return settings.job_limit or max(_MOST_JOBS, 5 * settings.array_limit)

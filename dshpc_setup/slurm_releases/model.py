"""What one release of Slurm says, assumes and takes, where the product reads or repeats it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

HeldBy = Literal[
    "person", "administrator", "launch", "launches", "requeue", "special_exit", "lost_reservation"
]
"""What made Slurm hold a job: it is not looked at until it is released."""


Waits = Literal[
    "turn", "first_look", "resources", "unfit", "dependency", "never", "time", "time_limit", "array",
    "licenses", "reservation", "prolog", "cleaning", "node",
]  # fmt: skip
"""What a queued job waits for."""


class NodeReasons(NamedTuple):
    """Patterns of the reasons that Slurm itself gives for a node out of use; each begins the text."""

    fewer_gres: str
    too_little: str  # memory, CPUs or disk
    restarted: str  # and others that a start puts right
    former_run: str  # it was given a job that still ran there; one of `restarted`
    kill_failed: str
    program_failed: str  # group 1: Prolog or Epilog
    launch_failed: str
    of_slurmstepd: tuple[str, ...]  # whole texts, given as the user root


class JobReasons(NamedTuple):
    """Why a job waits, by Slurm's own words (slurm.schedmd.com/job_reason_codes.html)."""

    waits: Mapping[str, Waits]
    held: Mapping[str, HeldBy]  # reasons of jobs with priority 0, and the texts in their place
    passes: str  # pattern: ends by itself, or by what other jobs do
    no_rival: frozenset[str]  # beside those in `held`: it takes nothing that is free now


class Phrases(NamedTuple):
    """Patterns of what Slurm's programs print and log."""

    answer_lost: str  # sbatch: the request may have arrived, its answer has not
    full: str  # sbatch: MaxJobCount is reached
    no_such_job: str  # squeue
    must_wait: str  # srun --immediate
    not_here_now: str  # scontrol release: the job cannot run on what is here, and is released
    complaint: str  # a line of a log, group 1: what is complained of
    controller_up: str  # scontrol ping
    controller_down: str
    controller_serves: str  # slurmctld's log
    gpu_without_file: str  # slurmd, group 1: the whole warning
    task_prolog_failed: str  # slurmstepd, group 1: the exit code
    program_ended: str  # slurmd, groups: prolog or epilog, exit code, signal
    unknown_key: str  # group 1: the key
    not_parsed: str  # groups: file, line
    not_included: str  # group 1: the file's name
    harmless: str  # said of sound configurations too
    job_with_invalid_gres: str  # slurmctld's log
    about_gres: str  # of the GPUs of a job, or of the configuration


class Defaults(NamedTuple):
    """What holds where slurm.conf says nothing (slurm.conf(5)), and what is compiled in."""

    array_size: int  # MaxArraySize
    job_count: int  # MaxJobCount
    controller_port: int  # SlurmctldPort
    node_port: int  # SlurmdPort
    token_s: int  # how long a token of auth/slurm is good for, without ttl= of AuthInfo
    requeue_delay_s: int  # of a batch job that is queued again
    unlimited_minutes: int  # what sched/backfill gives a job without a time limit that it starts


class Options(NamedTuple):
    """Options that take no argument, or one after '=' only."""

    sbatch: frozenset[str]
    sbatch_short: str
    srun: frozenset[str]  # of srun and salloc, beside those of sbatch
    srun_short: str


class Package(NamedTuple):
    """Of Debian's stable release: from which revision on the holes are closed."""

    version: str  # "24.11.5"
    fixed: tuple[int, int]  # Debian's revision and its update's: -4+deb13u1
    fixed_text: str
    holes: str

    def has_fixes(self, version: str) -> bool:
        """Whether they are in that version ("24.11.5-4+deb13u1"), or it is not one of this package."""
        revision = rf"(?:\d+:)?{re.escape(self.version)}-(\d+)(?:\+deb\d+u(\d+))?\S*"
        found = re.fullmatch(revision, version)
        return found is None or (int(found[1]), int(found[2] or 0)) >= self.fixed


class Release(NamedTuple):
    """One release: `version` is that of its compatibility, (24, 11)."""

    version: tuple[int, int]
    node: NodeReasons
    jobs: JobReasons
    says: Phrases
    defaults: Defaults
    options: Options
    oldest_node: tuple[int, int]  # whose slurmd its slurmctld takes
    package: Package | None = None

    @property
    def name(self) -> str:
        return f"{self.version[0]}.{self.version[1]:02d}"

"""The jobs that ran when the container stopped, as slurmctld has restored them, and what becomes of each."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from dshpc_setup.container import ends
from dshpc_setup.container.jobs import PROOF
from dshpc_setup.machine import Machine
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.slurm.job_states import SlurmJob
from dshpc_setup.slurm.paths import Paths
from dshpc_setup.terminal.sanitize import listed

_ASK_S = 20.0  # slurmctld may still read its state
# No name: people choose it, a line break in it included
_COLUMNS = "JobID State BatchFlag RestartCnt UserID Requeue JobArrayID"
_RAN = ("RUNNING", "SUSPENDED", "STOPPED")


@dataclass(frozen=True)
class Interrupted:
    """Jobs as people know them: queued again, those that do not run again as their script had ended, and
    ended, as they are not to be requeued or not by sbatch."""

    requeued: tuple[str, ...] = ()
    concluded: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()

    def to_json(self) -> dict[str, list[str]]:
        return {
            "requeued": list(self.requeued),
            "concluded": list(self.concluded),
            "ended": list(self.ended),
        }

    def without(self, over: Collection[str]) -> Interrupted:
        """Without those of which the start has said otherwise what became of them."""
        kept = (
            tuple(job for job in jobs if job not in over)
            for jobs in (self.requeued, self.concluded, self.ended)
        )
        return Interrupted(*kept)

    def note(self) -> str:
        """Sentences for people; "" where nothing ran."""
        said = []
        if self.requeued or self.ended:
            parts = (("Queued again", self.requeued), ("Ended", self.ended))
            said.append(
                f"Jobs that ran when the container stopped: {len(self.requeued)} queued again, "
                f"{len(self.ended)} ended (not to be requeued, or not by sbatch)."
                + "".join(f" {what}: {listed(jobs)}." for what, jobs in parts if jobs)
            )
        if self.concluded:
            said.append(
                "Jobs that had run to their end when the container was killed, and do not run again: "
                f"{listed(self.concluded)}."
            )
        return " ".join(said)


def look(machine: Machine, paths: Paths, node: str | None = None) -> Interrupted | None:
    """What ran, and those whose script had ended concluded: they do not run it again. None where slurmctld
    does not say. On `node` alone, where there are others.

    Before slurmd registers: then slurmctld queues again or ends by itself what began 20 s ago or earlier,
    and nobody can tell such a job from one that a person has queued again.
    """
    slurm = Slurm(machine)
    columns = _COLUMNS if node is None else f"{_COLUMNS} NodeList"
    jobs = slurm.rows(columns, deadline_s=_ASK_S).value
    if jobs is None:
        return None
    ends.forget(paths, {job.own for job in jobs})  # they may wait by now
    ran = [job for job in jobs if job.state in _RAN and (node is None or node in job.nodes)]
    concluded = {job.own for job in ran if job.batch and _conclude(paths, job)}
    left = [job for job in ran if job.own not in concluded]
    ended = [job for job in left if not (job.batch and job.requeue)]
    proofs = _proofs(slurm) if ended else frozenset[int]()
    return Interrupted(
        _names(job for job in left if job.batch and job.requeue),
        _names(job for job in ran if job.own in concluded),
        _names(job for job in ended if job.own not in proofs),
    )


def _conclude(paths: Paths, job: SlurmJob) -> bool:
    """Whether its script had ended; its next run is none then."""
    if job.state != "RUNNING" or job.uid is None:
        return False
    # Of one that was concluded before, that run may have been cut off as well
    code = ends.concluded_code(paths, job.own, job.restarts)
    if code is None:
        code = ends.code_of(paths, job.uid, job.own, job.restarts)
    if code is None:
        return False
    ends.conclude(paths, job.own, job.restarts + 1, code)
    return True


def _names(jobs: Iterable[SlurmJob]) -> tuple[str, ...]:
    return tuple(job.id for job in sorted(jobs, key=lambda job: job.own))


def _proofs(slurm: Slurm) -> frozenset[int]:
    """The first job of a start that was killed meanwhile is nobody's."""
    jobs = slurm.rows("JobID UserID Name", ",".join(_RAN), deadline_s=_ASK_S).value
    return frozenset(job.own for job in jobs or () if (job.uid, job.name) == (0, PROOF))

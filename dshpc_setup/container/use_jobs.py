"""The jobs that the service `use` watches, and which GPUs each of them holds."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field

from dshpc_setup.container.jobs import PROOF
from dshpc_setup.facts import Gpus
from dshpc_setup.jobs import allocated_gpus, records
from dshpc_setup.machine import Machine
from dshpc_setup.settings import Settings, texts
from dshpc_setup.slurm import job_states
from dshpc_setup.slurm.completion_log import Ended
from dshpc_setup.slurm.job_states import SlurmJob
from dshpc_setup.usage import ledger, live, runs
from dshpc_setup.usage.live import LiveJob
from dshpc_setup.usage.records import HeldGpu
from dshpc_setup.usage.runs import Run

ASK_S = 10.0
MOST_IDS = 200
COLUMNS = (
    "JobID JobArrayID ArrayJobID ArrayTaskID RestartCnt UserID UserName BatchFlag NodeList STDOUT "
    "WorkDir Name"
)


@dataclass
class WatchedJobs:
    """`folder` is the ledger's, `node` is this one; `jobs` are those whose end is not in the ledger yet."""

    machine: Machine
    settings: Settings
    node: str
    gpus: Gpus
    places: allocated_gpus.Places
    folder: str = ledger.FOLDER
    log: str | None = None  # of ended jobs; None where the user has it kept otherwise
    jobs: dict[tuple[int, int], LiveJob] = field(default_factory=dict)
    has_live: bool = True

    def save(self, now: float) -> None:
        live.save(self.jobs.values(), now, texts.age_s(self.settings.idle_gpu), self.folder)
        self.has_live = bool(self.jobs)

    def new_job(self, run: Run) -> LiveJob:
        """Of several nodes the note of a run does not say on which it is: its GPUs are told with that."""
        held = () if allocated_gpus.has_several_nodes(self.places.nodes) else self.held(run)
        return LiveJob(run.own, run.run, run.uid or 0, run.began or time.time(), held)

    def held(self, run: Run, node: str | None = None) -> tuple[HeldGpu, ...]:
        """Of a run on one node, by default this one."""
        places = self.places.on(node)
        seen = {"UUIDS": ",".join(run.uuids), "SLURM_JOB_GPUS": ",".join(map(str, run.places))}
        return tuple(
            HeldGpu(gpu.index, gpu.uuid, gpu.type, places.node or self.node)
            for gpu in places.of_variables(seen)
        )

    def held_here(self, job: SlurmJob) -> tuple[HeldGpu, ...]:
        """By the notes of its steps, of one on this node alone."""
        run = runs.read(job.own, job.restarts, self.folder)
        return () if run is None or self.is_elsewhere(job) else self.held(run)

    def held_by(self, job: SlurmJob) -> tuple[HeldGpu, ...]:
        """On whichever nodes it runs."""
        return tuple(
            HeldGpu(gpu.index, gpu.uuid, gpu.type, gpu.node or self.node)
            for gpu in self.places.of_job(job.held, job.nodes)
        )

    def is_elsewhere(self, job: SlurmJob) -> bool:
        """Whether it has another node of the cluster, too: the notes of steps do not say whose places."""
        return bool(set(job.nodes) - {self.node})

    def uuids_of(self, places: tuple[int, ...]) -> tuple[str, ...]:
        held = self.places.of_gres(f"gpu:(IDX:{','.join(map(str, places))})")
        uuids = tuple(gpu.uuid for gpu in held if gpu.uuid)
        return uuids if len(uuids) == len(places) else ()


def is_proof(job: Ended | SlurmJob) -> bool:
    return (job.user, job.name) == ("root", PROOF)


def of_workspace(job: Ended | SlurmJob) -> tuple[str | None, str | None]:
    """The method, and the log, of a submission of ours; what users write there is data."""
    work, found, _ = job.folder.partition(f"/jobs/{job.uid}/")
    if not found:
        return None, None
    record = records.of_folder(work, job.folder, whole=True)
    if record is None or record.place.uid != job.uid:
        return None, None
    name = record.request.get("name") if record.request.get("kind") == "method" else None
    return (job_states.shown(name, 100) if isinstance(name, str) else None), record.log(job.task)


def say(text: str) -> None:
    """Into the container's log."""
    print(f"dshpc: {text}", file=sys.stderr, flush=True)

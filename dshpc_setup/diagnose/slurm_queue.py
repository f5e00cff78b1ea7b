"""The queue: jobs that cannot run, GPUs that are not there, memory that runs out."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from dshpc_setup import slurm_releases
from dshpc_setup.diagnose.common import cluster
from dshpc_setup.diagnose.model import (
    Check,
    CheckInput,
    Verdict,
    fault,
    fine,
    note,
    unknown,
    warning,
)
from dshpc_setup.diagnose.slurm_known import (
    CONTROLLER,
    DOWN,
    DRAINED,
    INVALID,
    LOST_SINCE,
    NODE_DAEMON_UP,
    NOT_IN_CONTAINER,
    PROLOG,
    RUNS,
    nodes,
    of_inside,
    own_file,
    reconfigure,
    release,
    resume,
)
from dshpc_setup.errors import Fix
from dshpc_setup.observed import idle
from dshpc_setup.observed.model import Inside
from dshpc_setup.slurm import blocked_jobs
from dshpc_setup.slurm.blocked_jobs import Stuck
from dshpc_setup.terminal.sanitize import plain

_REFUSED = slurm_releases.says("job_with_invalid_gres")
_OF_FILES = slurm_releases.says("about_gres")
_NEEDS = (RUNS, CONTROLLER)


def _unknown_gres(known: CheckInput) -> Verdict:
    """Jobs, or the configuration itself, that name a GPU which the cluster has not."""
    found, inside = cluster(known), known.observed.inside
    jobs = tuple(job for job in found.pending or () if job.lacks_gpus)
    errors = inside.errors if inside else ()
    refused = tuple(line for line in errors if _REFUSED.search(line))[-3:]
    said = tuple(line for line in errors if _OF_FILES.search(line) and line not in refused)[-3:]
    have = tuple(f"{node.name} has {node.gres or 'no GPU'}" for node in found.nodes)
    look = Fix(
        "See what the cluster has, by the names to ask for",
        "dshpc sinfo -N -o '%N %G'",
        step="look",
    )
    if said:
        cause = "slurm.conf and gres.conf do not name the same GPUs, or not those that are there."
        return fault(cause, *said, *have, fix=(look, *_as_they_are(known)))
    if jobs:
        cause = "Queued jobs ask for GPUs that this cluster does not have: they can never start."
        ids = " ".join(_id(job.job) for job in jobs[: blocked_jobs.MOST])
        give_up = Fix("Ask for what there is, and cancel the others", f"dshpc scancel {ids}")
        return warning(cause, *blocked_jobs.lines(jobs), *have, fix=(look, give_up))
    if refused:
        cause = "A job was refused: it asked for a GPU by a name or a number that this cluster does not have."
        return warning(cause, *refused, *have, fix=(look,))
    return unknown("The queue was not asked.") if found.pending is None else fine(*have)


def _as_they_are(known: CheckInput) -> tuple[Fix, ...]:
    """Files that name the GPUs which are there."""
    taken = (
        Fix(f"{name} is your own: take the new text", f"dshpc config accept {name}")
        for name in ("slurm.conf", "gres.conf")
        if own_file(known, name)
    )
    anew = reconfigure(
        "Write slurm.conf and gres.conf for the GPUs that are there; running jobs are not affected"
    )
    return (*taken, anew)


def _pending(known: CheckInput) -> Verdict:
    pending = cluster(known).pending
    if pending is None:
        return unknown("The queue was not asked.")
    jobs = tuple(job for job in blocked_jobs.not_held(pending) if not job.lacks_gpus)
    if not jobs:
        return fine()
    look = Fix(
        "See a job's request and Slurm's reason",
        f"dshpc scontrol show job {_id(jobs[0].job)}",
        step="look",
    )
    return warning(
        "Queued jobs cannot run as things are, however long they wait.",
        *blocked_jobs.lines(jobs),
        fix=(look, *_let_run(known, jobs)),
    )


def _let_run(known: CheckInput, jobs: tuple[Stuck, ...]) -> Iterator[Fix]:
    """What lets them run; only those that never can are given up."""
    causes = {job.until for job in jobs}
    if "node" in causes:
        yield Fix("See why nodes are out of use", "dshpc sinfo -R", step="look")
        for node in nodes(known):
            if node.drained and not node.has_former_key:  # that one has to join again
                yield from resume(node)
    if "partition" in causes:
        held = "See which partitions are up; --when-idle closes them while it waits"
        yield Fix(held, "dshpc sinfo -s", step="look")
    if never := [job for job in jobs if job.until is None]:
        yield Fix("Cancel one that can never run", f"dshpc scancel {_id(never[0].job)}")


def _held(known: CheckInput) -> Verdict:
    """A hold that a person has set is no fault; one that Slurm has set hides another."""
    pending = cluster(known).pending
    if pending is None:
        return unknown("The queue was not asked.")
    jobs = blocked_jobs.held(pending)
    others = tuple(job for job in jobs if job.hold != "person")
    if not jobs:
        return fine()
    if not others:
        return note(
            "Jobs are held by a person. They wait until they are released.",
            *blocked_jobs.lines(jobs),
            fix=release(jobs),
        )
    if any(job.hold == "launch" for job in others):
        return warning(
            "Slurm could not launch jobs, and holds them until they are released. Most often a Prolog "
            "ended with an error.",
            *blocked_jobs.lines(jobs),
            fix=(
                Fix("See what the daemons said as they tried", "dshpc logs --tail 50", step="look"),
                *release(others, "When the cause is repaired, let them run"),
            ),
        )
    return warning(
        "Jobs are held, not by their users, and wait until they are released.",
        *blocked_jobs.lines(jobs),
        fix=release(others),
    )


def _id(job: str) -> str:
    """ "7_[1-4]" as commands take it."""
    return quote(job.partition("_[")[0])


def _real_memory(known: CheckInput, inside: Inside) -> Verdict:
    promised = inside.node_real_memory_mib
    container = known.observed.container
    limits = (inside.memory_limit_mib, container.memory_limit_mib if container else None)
    limit = min((value for value in limits if value), default=None)
    if promised is None:
        return unknown("RealMemory of slurm.conf is not known.")
    allowed = f"{limit} MiB" if limit else "none"
    evidence = f"RealMemory={promised} MiB, limit of the container: {allowed}"
    if limit is None or promised <= limit:
        return fine(evidence)
    return warning(
        "Slurm gives jobs more memory than the container may use: the kernel kills processes when they "
        "use what they were given.",
        evidence,
        fix=(reconfigure("Let Slurm give out what there is; running jobs are not affected"),),
    )


def _jobs_out_of_memory(_: CheckInput, inside: Inside) -> Verdict:
    if not inside.out_of_memory:
        return fine()
    return warning(
        "Jobs were killed lately because they used more memory than they had asked for, or than there "
        "was.",
        *inside.out_of_memory,
        fix=(
            Fix("Ask for more memory", "sbatch --mem=16G script.sh"),
            Fix("\"CUDA out of memory\" is another thing, the memory of the GPU: take smaller batches, a "
                "GPU with more of it, or see who else uses it", "dshpc gpus"),
        ),
    )  # fmt: skip


def _without_process(_: CheckInput, inside: Inside) -> Verdict:
    batch = inside.without_process
    steps = [step for step in inside.steps_without_process if step.partition(".")[0] not in batch]
    if not batch and not steps:
        return fine()
    ids = " ".join(dict.fromkeys((*batch, *(step.partition(".")[0] for step in steps))))
    kinds = (("", batch), (" steps of srun", steps))
    again = Fix("Run them again", f"dshpc exec --root -- scontrol requeue {','.join(batch)}")
    give_up = Fix("Or give them up", f"dshpc scancel {ids}", step="alternative")
    cancel = Fix("Cancel them: srun waits forever", f"dshpc scancel {ids}")
    return fault(
        "Slurm takes jobs for running whose slurmstepd is gone: they hold their CPUs and GPUs for "
        "nothing.",
        *(
            f"RUNNING for a minute or longer, without a slurmstepd:{kind} {', '.join(these)}"
            for kind, these in kinds
            if these
        ),
        fix=(
            # A slurmstepd that was killed alone leaves its program behind, which Slurm no longer ends
            Fix(
                "See whether a program of theirs still runs, and end it first",
                "dshpc exec --root -- ps -o pid,user,etime,args --ppid 1",
                step="look",
            ),
            *((again, give_up) if batch else (cancel,)),
        ),
    )


def _idle_gpus(_: CheckInput, inside: Inside) -> Verdict:
    """GPUs that jobs hold and have not used for longer than the setting idle_gpu."""
    if not inside.idle_gpus:
        return fine()
    jobs = list(dict.fromkeys(each.job for each in inside.idle_gpus))
    return warning(
        "Jobs hold GPUs that they do not use, and no other job gets these.",
        *(plain(idle.line(each)) for each in inside.idle_gpus[: blocked_jobs.MOST]),
        fix=(
            Fix("See what the job does", f"dshpc job show {jobs[0]}", step="look"),
            Fix("Ask whose it is, or end it", f"dshpc scancel {' '.join(jobs)}"),
        ),
    )


QUEUE_CHECKS: tuple[Check, ...] = (
    Check("DSH-SL-020", "slurm", "Jobs ask for GPUs that are there",
          "A GPU is asked for that the cluster has not (invalid GRES specification)", _unknown_gres,
          needs=(RUNS,), because=("DSH-SL-021", NOT_IN_CONTAINER, "DSH-SL-036", LOST_SINCE)),
    Check("DSH-SL-023", "slurm", "Queued jobs can run", "Queued jobs cannot run as things are", _pending,
          needs=_NEEDS, because=(DRAINED, DOWN, INVALID, NODE_DAEMON_UP)),
    Check("DSH-SL-051", "slurm", "No queued job is held", "Queued jobs are held", _held,
          needs=_NEEDS, because=(PROLOG,)),
    Check("DSH-SL-024", "slurm", "Slurm gives out no more memory than there is",
          "Slurm gives out more memory than the container has", of_inside(_real_memory),
          needs=(RUNS,), because=("DSH-SL-014",)),
    Check("DSH-SL-025", "slurm", "No job ran out of memory lately", "Jobs ran out of memory",
          of_inside(_jobs_out_of_memory), needs=(RUNS,), because=("DSH-SL-024",)),
    Check("DSH-SL-058", "slurm", "GPUs that jobs hold are used",
          "A job holds a GPU that it does not use", of_inside(_idle_gpus), needs=_NEEDS),
    Check("DSH-SL-039", "slurm", "Jobs that run have processes", "Jobs run without a process",
          of_inside(_without_process), needs=_NEEDS, because=(NODE_DAEMON_UP,)),
)  # fmt: skip

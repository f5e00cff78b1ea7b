"""The one call of sbatch, and what it means where it names no job."""

from __future__ import annotations

from collections.abc import MutableMapping

from dshpc_setup.errors import DshpcError
from dshpc_setup.jobs import call, clock
from dshpc_setup.machine import CommandResult, Machine

# sbatch itself waits for a controller that is busy, and tries for two minutes where MaxJobCount is reached
_SBATCH_S = 140.0


def forget_variables(environ: MutableMapping[str, str]) -> None:
    """sbatch would take each of its options from there as well."""
    for name in [name for name in environ if name.startswith(("SBATCH_", "SLURM_"))]:
        del environ[name]


class AnswerLostError(DshpcError):
    """The job may be queued all the same."""


def run(machine: Machine, argv: tuple[str, ...]) -> str:
    """The job's id; raises DshpcError: AnswerLostError where the job may be queued all the same.

    The job's clock is the caller's, as with `dshpc srun`.
    """
    env = clock.variables()
    done = machine.run(argv, deadline_s=_SBATCH_S, stdin=call.SCRIPT, env=env, cwd="/")
    job_id = done.stdout.strip().partition(";")[0]
    if done.ok and job_id.isascii() and job_id.isdecimal():
        return job_id
    from dshpc_setup.slurm_releases import says  # imports are counted

    told = done.text or f"sbatch ended with {done.code} ({done.state})."
    if says("full").search(done.text) and done.code and done.code > 0:
        raise _full(told)
    if done.state == "timeout":
        raise AnswerLostError(f"sbatch did not answer within {_SBATCH_S:.0f} s.", told)
    if _cut_off(done) or says("answer_lost").search(done.text):
        raise AnswerLostError("sbatch got no answer from Slurm.", told)
    raise DshpcError(
        "Slurm did not take the job.",
        told,
        ("See what is wrong: dshpc doctor",),
    )


def _full(told: str) -> DshpcError:
    return DshpcError(
        "Slurm did not take the job: it knows as many jobs as it may.",
        f"{told}\nQueued and running jobs count, each task of an array, and for five minutes those that "
        "have ended.",
        (
            "Wait until others have ended: dshpc job list",
            "Or, as the cluster's owner, raise the limit: dshpc config set job_limit NUMBER",
            "Then put it into effect: configure-environment",
        ),
    )


def _cut_off(done: CommandResult) -> bool:
    """Whether an sbatch that named no job was, after it may have asked."""
    return done.state == "error" or (done.code is not None and done.code <= 0)

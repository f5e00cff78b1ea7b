"""The one call of sbatch, and what it means where it names no job."""

from __future__ import annotations

import re
from collections.abc import MutableMapping

from dshpc_setup.errors import DshpcError
from dshpc_setup.jobs import call, clock
from dshpc_setup.machine import CommandResult, Machine

# sbatch itself waits for a controller that is busy, and tries for two minutes where MaxJobCount is reached
_SBATCH_S = 140.0
# slurm_errno.c: the request may have arrived, its answer has not. Not "(connect failure)", where nothing
# was sent
_LOST = re.compile(
    r"Socket timed out on send/recv operation|Zero Bytes were transmitted or received"
    r"|Message (?:send|receive) failure|Communication shutdown failure"
    r"|controller \((?:send|receive|shutdown) failure\)"
    r"|Header lengths are longer than data received|Received zero length message"
    r"|Failed to send entire message"
)


# What it says at each try then: slurm_errno.c has no error of its own for it
_FULL = re.compile(r"temporarily unable to accept job")


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
    told = done.text or f"sbatch ended with {done.code} ({done.state})."
    if _FULL.search(done.text) and done.code and done.code > 0:
        raise _full(told)
    if done.state == "timeout":
        raise AnswerLostError(f"sbatch did not answer within {_SBATCH_S:.0f} s.", told)
    if _may_be_queued(done):
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


def _may_be_queued(done: CommandResult) -> bool:
    """Whether an sbatch that named no job was cut off, or its connection was, after it had asked."""
    cut_off = done.state == "error" or (done.code is not None and done.code <= 0)
    return cut_off or _LOST.search(done.text) is not None

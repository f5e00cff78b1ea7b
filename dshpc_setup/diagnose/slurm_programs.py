"""The programs that slurm.conf has Slurm run around jobs."""

from __future__ import annotations

from dshpc_setup.container.programs import then, told
from dshpc_setup.diagnose.model import Check, CheckInput, Verdict, fault, fine, warning
from dshpc_setup.diagnose.slurm_known import PROGRAMS, RUNS, correct_lines, of_inside
from dshpc_setup.errors import Fix
from dshpc_setup.observed.model import Inside
from dshpc_setup.slurm import slurm_conf


def _programs(known: CheckInput, inside: Inside) -> Verdict:
    if not inside.programs:
        return fine()
    consequences = dict.fromkeys(then(item.key) for item in inside.programs)
    return fault(
        f"slurm.conf names a program that cannot be run. {' '.join(consequences)}",
        *map(told, inside.programs),
        fix=(
            Fix("Put the program back, and let it be run (chmod +x): the next job finds it"),
            *correct_lines(known, "the line"),
        ),
    )


def _task_prolog(known: CheckInput, inside: Inside) -> Verdict:
    """Slurm tells of it in each job's own output, and nowhere else."""
    if not inside.task_prolog:
        return fine()
    path = slurm_conf.last(inside.slurm_conf or "", "TaskProlog")
    return warning(
        f"The TaskProlog {f'{path} ' if path else ''}ended with an error lately: such a job ends with its "
        "exit code, and its program is not started.",
        *(f"job {job}: TaskProlog failed" for job in inside.task_prolog),
        fix=(
            Fix(
                "Correct the program: it must end with exit code 0 for each user. The next job finds it"
            ),
            *correct_lines(known, "its line"),
        ),
    )


PROGRAM_CHECKS: tuple[Check, ...] = (
    Check(PROGRAMS, "slurm", "Programs that slurm.conf names can be run",
          "A program that slurm.conf names cannot be run", of_inside(_programs), needs=(RUNS,)),
    Check("DSH-SL-052", "slurm", "The TaskProlog succeeds",
          "Jobs failed because their TaskProlog ended with an error", of_inside(_task_prolog),
          needs=(RUNS,), because=(PROGRAMS,)),
)  # fmt: skip

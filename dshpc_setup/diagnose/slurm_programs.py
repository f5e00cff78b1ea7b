"""The programs that slurm.conf has Slurm run around jobs."""

from __future__ import annotations

from dshpc_setup.container.programs import then, told
from dshpc_setup.diagnose.model import Check, Known, Verdict, fault, fine
from dshpc_setup.diagnose.slurm_known import PROGRAMS, RUNS, correct_lines, of_inside
from dshpc_setup.fixes import Fix
from dshpc_setup.observed import Inside


def _programs(known: Known, inside: Inside) -> Verdict:
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


PROGRAM_CHECKS: tuple[Check, ...] = (
    Check(PROGRAMS, "slurm", "Programs that slurm.conf names can be run",
          "A program that slurm.conf names cannot be run", of_inside(_programs), needs=(RUNS,)),
)  # fmt: skip

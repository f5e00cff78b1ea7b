"""The programs that slurm.conf has Slurm run around jobs."""

from __future__ import annotations

from dshpc_setup.container.programs import told
from dshpc_setup.diagnose.model import Check, Known, Verdict, fault, fine
from dshpc_setup.diagnose.slurm_known import PROGRAMS, RUNS, of_inside, reconfigure
from dshpc_setup.errors import Fix
from dshpc_setup.observed.model import Inside

_TASKS = ("taskprolog", "taskepilog")


def _programs(_: Known, inside: Inside) -> Verdict:
    if not inside.programs:
        return fine()
    of_tasks = any(item.key.lower() in _TASKS for item in inside.programs)
    then = "Each job fails." if of_tasks else "Jobs fail, or the node is drained at the first one."
    return fault(
        f"slurm.conf names a program that cannot be run. {then}",
        *map(told, inside.programs),
        fix=(
            Fix("Put the program back, and let it be run (chmod +x): the next job finds it"),
            Fix("Or correct the line: see whether it is of your own config/slurm.conf or of the setting "
                "slurm_conf_extra", "dshpc config show", step="alternative"),
            reconfigure("Then put it into effect; running jobs are not affected", "after"),
        ),
    )  # fmt: skip


PROGRAM_CHECKS: tuple[Check, ...] = (
    Check(PROGRAMS, "slurm", "Programs that slurm.conf names can be run",
          "A program that slurm.conf names cannot be run", of_inside(_programs), needs=(RUNS,)),
)  # fmt: skip

"""Can slurmctld read a file of saved jobs? Asked of slurmctld itself, with a copy, beside whatever runs.

The beginning of a file tells little: of one that was cut off later slurmctld says "Incomplete job state
save file" and ends (load_all_job_state in job_mgr.c, 24.11).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping

from dshpc_setup.container import trial
from dshpc_setup.files.storage import read_text
from dshpc_setup.machine import Machine
from dshpc_setup.slurm.paths import ASK, Paths

Refuses = Callable[[str], bool]
# What would act on the copy's jobs: programs of people's, mails, the log of ended jobs
_ACTS = (
    *("PrologSlurmctld", "EpilogSlurmctld", "MailProg", "HealthCheckProgram", "RebootProgram"),
    *("ResumeProgram", "SuspendProgram", "SlurmctldPrimaryOnProg", "JobCompType", "JobCompLoc"),
    "AccountingStorageType",
)
_IDLE = (
    "MailProg=/bin/true\nJobCompType=jobcomp/none\nAccountingStorageType=accounting_storage/none"
)


def refuses(machine: Machine, paths: Paths, texts: Mapping[str, str]) -> Refuses:
    """Tells of a path whether slurmctld ends over that file, and over no other cause; one that does not
    come to an end in time has not."""
    known: dict[str, bool] = {}

    def ask(path: str) -> bool:
        if path not in known:
            known[path] = _ends(machine, paths, texts, path) and not _ends(
                machine, paths, texts, None
            )
        return known[path]

    return ask


def in_force(machine: Machine, paths: Paths) -> Refuses:
    """As `refuses`, with the configuration that lies in /etc/slurm."""
    texts = {}
    for name in sorted(os.listdir(paths.etc_slurm)):
        path = f"{paths.etc_slurm}/{name}"
        if name != ASK and os.path.isfile(path) and not os.path.islink(path):
            texts[name] = read_text(path) or ""
    return refuses(machine, paths, texts)


def _ends(machine: Machine, paths: Paths, texts: Mapping[str, str], state: str | None) -> bool:
    # Of its own: the start asks while the service that it takes down may be asking, too
    folder = tempfile.mkdtemp(prefix="state-trial.", dir=paths.run)
    quiet = {**texts, "slurm.conf": f"{trial.without(texts['slurm.conf'], _ACTS)}\n{_IDLE}\n"}

    def lay(into: str, owner: tuple[int, int]) -> None:
        if state is not None:
            copy = f"{into}/job_state"
            shutil.copyfile(state, copy)
            os.chown(copy, *owner)

    try:
        return trial.came_up(machine, quiet, paths, folder, lay) is False
    finally:
        shutil.rmtree(folder, ignore_errors=True)

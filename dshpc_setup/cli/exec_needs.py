"""Slurm's commands that need what a cluster of ours has not: said in one line when such a command failed.

So is a limit of the cluster that sbatch ran into and has no words for.
"""

from __future__ import annotations

import re

from dshpc_setup.cli import exec as execution
from dshpc_setup.machine import Machine

_ASK_S = 5.0
_ACCOUNTING = ("AccountingStorageType", "accounting_storage/slurmdbd")
# command -> (key of slurm.conf, what its value must hold)
_NEEDS = {
    "sacct": _ACCOUNTING,
    "sacctmgr": _ACCOUNTING,
    "sreport": _ACCOUNTING,
    "scrontab": ("ScronParameters", "enable"),
}
_HINTS = {
    "sacct": "sacct needs accounting (slurmdbd and a database), which this cluster does not have. "
    "Ended jobs: dshpc job list",
    "sacctmgr": "sacctmgr needs accounting (slurmdbd and a database), which this cluster does not have.",
    "sreport": "sreport needs accounting (slurmdbd and a database), which this cluster does not have. "
    "Ended jobs: dshpc job list",
    "scrontab": "scrontab is switched off in this cluster. To enable it, set in dshpc.yaml: "
    "slurm_conf_extra: ScronParameters=enable",
}


def hint(machine: Machine, call: execution.Call) -> str | None:
    """What the command that failed needs, where slurm.conf in force does not have it."""
    needed = _NEEDS.get(call.command)
    if needed is None and call.command != "sbatch":
        return None
    argv = [call.docker, "exec", call.container]
    asked = machine.run([*argv, "scontrol", "show", "config"], deadline_s=_ASK_S)
    if not asked.ok:
        return None
    if needed is None:
        return _full(machine, argv, asked.stdout)
    return None if has(asked.stdout, *needed) else _HINTS[call.command]


def _full(machine: Machine, argv: list[str], config: str) -> str | None:
    """That Slurm knows nearly as many jobs as it may, where it does: an array may not fit any more."""
    most = re.search(r"(?m)^MaxJobCount\s*=\s*([0-9]+)\s*$", config)
    if most is None:
        return None
    asked = machine.run(
        [*argv, "squeue", "-h", "-a", "-r", "-t", "all", "-o", "%i"], deadline_s=_ASK_S
    )
    count = len(asked.stdout.split()) if asked.ok else 0
    if 2 * count < int(most[1]):
        return None
    return (
        f"Slurm knows {count} jobs and may know {most[1]}: queued, running, and for five minutes ended "
        "ones, each task of an array. The cluster's owner can raise that: dshpc config set job_limit NUMBER, "
        "then configure-environment"
    )


def has(config: str, key: str, value: str) -> bool:
    """Whether `scontrol show config` gives `key` a value that holds `value`."""
    for line in config.splitlines():
        name, mark, said = line.partition("=")
        if mark and name.strip() == key:
            return value in said.strip().split(",")
    return False

"""Slurm's commands that need what a cluster of ours has not: said in one line when such a command failed."""

from __future__ import annotations

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
    if needed is None:
        return None
    argv = [call.docker, "exec", call.container, "scontrol", "show", "config"]
    asked = machine.run(argv, deadline_s=_ASK_S)
    if not asked.ok or has(asked.stdout, *needed):
        return None
    return _HINTS[call.command]


def has(config: str, key: str, value: str) -> bool:
    """Whether `scontrol show config` gives `key` a value that holds `value`."""
    for line in config.splitlines():
        name, mark, said = line.partition("=")
        if mark and name.strip() == key:
            return value in said.strip().split(",")
    return False

"""Slurm's commands that need what a cluster of ours has not: said in one line when such a command failed.

So is a limit of the cluster that sbatch ran into and has no words for.
"""

from __future__ import annotations

from collections.abc import Mapping

from dshpc_setup.cli import exec as execution
from dshpc_setup.machine import Machine
from dshpc_setup.slurm import associations
from dshpc_setup.slurm.client import Slurm

_ASK_S = 5.0
_ACCOUNTING = ("AccountingStorageType", "accounting_storage/slurmdbd")
# command -> (key of slurm.conf, what its value must hold)
_NEEDS = {
    "sacct": _ACCOUNTING,
    "sacctmgr": _ACCOUNTING,
    "sreport": _ACCOUNTING,
    "sshare": _ACCOUNTING,
    "scrontab": ("ScronParameters", "enable"),
}
_OFF = (
    "needs accounting, which is off in this cluster. To turn it on: dshpc config set accounting on, then "
    "configure-environment"
)
_AWAY = (
    "Slurm's accounting does not answer. Jobs of users that it knows keep running; what helps: "
    "dshpc doctor"
)
_HINTS = {
    "sacct": f"sacct {_OFF}. Without it: dshpc job list, dshpc usage",
    "sacctmgr": f"sacctmgr {_OFF}",
    "sreport": f"sreport {_OFF}. Without it: dshpc usage",
    "sshare": f"sshare {_OFF}",
    "scrontab": "scrontab is switched off in this cluster. To enable it, set in dshpc.yaml: "
    "slurm_conf_extra: ScronParameters=enable",
}


def hint(machine: Machine, call: execution.Call) -> str | None:
    """What the command that failed needs, where slurm.conf in force does not have it."""
    needed = _NEEDS.get(call.command)
    if needed is None and call.command != "sbatch":
        return None
    slurm = Slurm(machine, call.container, engine=call.engine)
    config = slurm.config(deadline_s=_ASK_S).value
    if config is None:
        return None
    if needed is not None and not has(config, *needed):
        return _HINTS[call.command]
    if needed in (None, _ACCOUNTING) and _is_away(slurm, config):
        return _AWAY
    return _full(slurm, config) if needed is None else None


def _is_away(slurm: Slurm, config: Mapping[str, str]) -> bool:
    """Whether accounting is on, and does not answer."""
    return (
        has(config, *_ACCOUNTING) and associations.database(slurm, deadline_s=_ASK_S).value is False
    )


def _full(slurm: Slurm, config: Mapping[str, str]) -> str | None:
    """That Slurm knows nearly as many jobs as it may, where it does: an array may not fit any more."""
    most = config.get("MaxJobCount", "")
    if not (most.isascii() and most.isdecimal()):
        return None
    jobs = slurm.rows("JobID", "all", each_task=True, deadline_s=_ASK_S).value
    count = len(jobs or ())
    if 2 * count < int(most):
        return None
    return (
        f"Slurm knows {count} jobs and may know {most}: queued, running, and for five minutes ended "
        "ones, each task of an array. The cluster's owner can raise that: dshpc config set job_limit NUMBER, "
        "then configure-environment"
    )


def has(config: Mapping[str, str], key: str, value: str) -> bool:
    """Whether the configuration in force gives `key` a value that holds `value`."""
    return value in config.get(key, "").split(",")

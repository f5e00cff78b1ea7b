"""The words that may stand behind `dshpc`."""

from __future__ import annotations

EXEC_COMMANDS = frozenset(
    (
        "srun sbatch salloc squeue sinfo scancel scontrol sacct sacctmgr sstat sprio sshare sdiag "
        "sattach sbcast strigger sreport scrontab exec shell"
    ).split()
)
COMMANDS = frozenset(
    (
        "configure config dashboard detect gpus passthrough compose record up restart reconfigure status "
        "backup restore down logs destroy doctor explain image key env method node job rest run workflow "
        "usage metrics install-commands use completion man demo ssh-config ssh-proxy lab code"
    ).split()
)  # what typer has beside them

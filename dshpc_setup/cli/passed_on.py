"""The commands that are handed to the cluster, as the help shows them."""

from __future__ import annotations

from collections.abc import Callable

import typer

PANEL = "Slurm, in the cluster as yourself"
PASSED_ON = {
    "srun": "Run a job and wait for it: dshpc srun --gres=gpu:1 python train.py",
    "sbatch": "Queue a job script (--mail-type needs a mail program: MailProg in slurm_conf_extra).",
    "salloc": "Get an allocation, and a shell in it.",
    "squeue": "Show queued and running jobs.",
    "sinfo": "Show nodes and partitions.",
    "scancel": "Cancel a job.",
    "scontrol": "Show and change jobs and nodes.",
    "sattach": "Join a running job's step.",
    "sbcast": "Copy a file to a job's nodes.",
    "scrontab": "Run jobs at regular times (needs ScronParameters=enable).",
    "strigger": "Run a program when a job or node changes state.",
    "sstat": "Show what a running job uses.",
    "sprio": "Show why jobs wait in this order.",
    "sshare": "Show shares and usage of accounts.",
    "sdiag": "Show the scheduler's statistics.",
    "sacct": "Show past jobs (setting accounting: on; without it: dshpc job list).",
    "sacctmgr": "Manage users, accounts and limits (setting accounting: on).",
    "sreport": "Report usage (setting accounting: on; without it: dshpc usage).",
    "exec": "Run any command in the container: dshpc exec -- nvidia-smi",
    "shell": "Open a shell in the container.",
}


def show_in_help(app: typer.Typer, finish: Callable[[int], None]) -> None:
    """Register them: they are run before typer is imported, and come here behind options of ours."""
    for name, text in PASSED_ON.items():
        _register(app, finish, name, text)


def _register(app: typer.Typer, finish: Callable[[int], None], name: str, text: str) -> None:
    def command(context: typer.Context) -> None:
        from dshpc_setup.cli.exec import main as exec_main

        finish(exec_main([name, *context.args]))

    command.__doc__ = text
    app.command(
        name,
        rich_help_panel=PANEL,
        add_help_option=False,
        context_settings={
            "allow_extra_args": True,
            "ignore_unknown_options": True,
            "allow_interspersed_args": False,
        },
    )(command)

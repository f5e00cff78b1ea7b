"""`dshpc-node check`: whether a start here would come up, as far as that can be tried beside what runs.

It is asked before anything stops: in the container that runs (`dshpc restart`), or in a container that is
thrown away, of the image and with the options that are to come (cluster/trial.py). That one has the state
volume of the cluster that runs: nothing is written there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import nullcontext

from dshpc_setup import settings as settings_module
from dshpc_setup.container import (
    accounting,
    config,
    hardware_fit,
    in_force,
    keys,
    start,
    state_volume,
    users,
)
from dshpc_setup.container.complaints import while_up
from dshpc_setup.container.exclusive import alone
from dshpc_setup.container.look import look
from dshpc_setup.container.run import Run, slurm_user
from dshpc_setup.container.status import Status, as_failure
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.machine import Machine
from dshpc_setup.settings import Settings
from dshpc_setup.slurm.paths import Paths


def would_start(machine: Machine, paths: Paths, env: Mapping[str, str]) -> int:
    """Prints {"refused": null}, or with exit code 2 what is wrong, with 3 why it cannot be asked now."""
    settings = Settings()
    runs = os.path.exists(paths.status)
    refused, code = None, Exit.OK
    try:
        settings = settings_module.of_container(env)
        with alone(paths, "dshpc reconfigure") if runs else nullcontext():
            _check(
                Run(machine, paths, Status(paths, _nobody, live=False), settings, slurm_user()),
                thrown_away=not runs,
            )
    except DshpcError as error:
        refused = as_failure(while_up(error))
        code = Exit.INCOMPLETE if error.exit_code == Exit.INCOMPLETE else Exit.ERROR
    print(json.dumps({"refused": refused}))
    return code


def _nobody(_text: str) -> None:
    """Who is told of the steps."""


def _check(run: Run, *, thrown_away: bool) -> None:
    """Raises DshpcError for what would keep the start from ending with these files in force."""
    keys.refuse_unusable(run.paths)
    users.refuse_unreadable(run.paths)
    seen = look(run)
    if thrown_away:
        for folder in ("/run/slurm", "/run/slurmctld", "/var/spool/slurmd"):
            os.makedirs(run.paths.at(folder), exist_ok=True)
        start.isolate(run, seen)
    chosen = in_force.choose(run, seen)
    if isinstance(chosen, DshpcError):
        raise chosen
    same = dict(chosen.texts) == config.load_last_good(run.paths)
    depth: in_force.Depth = "look" if same and not thrown_away else "trial"
    if run.is_worker:
        depth = "parse"
    error = (
        hardware_fit.own_misfit(chosen, seen, run.settings.node, run.machine.is_device)
        or state_volume.foreign_error(run.paths, chosen)
        or in_force.check_text(run, chosen, depth)
    )
    if error is not None:
        raise error
    if not thrown_away:  # there the ports are those of what runs
        accounting.refuse_hopeless(run, chosen.texts["slurm.conf"])

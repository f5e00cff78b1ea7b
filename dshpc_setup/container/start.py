"""The start of the container, from nothing to a first job that ran."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

from dshpc_setup import settings as settings_module
from dshpc_setup.container import (
    accounting,
    check,
    config,
    drift,
    jobs,
    joining,
    outcome,
    rest,
    saved_state,
    state_trial,
    state_volume,
    up,
)
from dshpc_setup.container.in_force import in_force, remember
from dshpc_setup.container.interrupted import Interrupted
from dshpc_setup.container.look import Seen, look
from dshpc_setup.container.prepare import prepare
from dshpc_setup.container.proof import prove
from dshpc_setup.container.run import Run, slurm_user
from dshpc_setup.container.status import Status
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.machine import Machine
from dshpc_setup.settings import Settings
from dshpc_setup.slurm.paths import Paths


def start(machine: Machine, paths: Paths, env: Mapping[str, str]) -> int:
    """Start Slurm; 0 when a first job ran, 2 when it could not and the status says why."""
    status = Status(paths)
    settings = Settings()
    os.makedirs(paths.run, exist_ok=True)
    try:
        settings = settings_module.of_container(env)
        _start(Run(machine, paths, status, settings, slurm_user()))
    except DshpcError as error:
        outcome.failed(status, error)
        return Exit.ERROR
    except Exception as error:  # the boundary: a defect of ours must stand in the status, too
        outcome.failed(status, outcome.defect(error))
        raise
    return Exit.OK


def _start(run: Run) -> None:
    paths, status = run.paths, run.status
    prepare(run)
    seen = look(run)
    isolate(run, seen)
    before = config.load_last_good(paths)
    candidate = in_force(run, seen)
    node = check.node_name(candidate, run.settings.node)
    status.values.update(node=node, gres=check.gres_of(candidate, node))
    up.name_node(run, node)
    if run.is_worker:  # whatever ran here is over, and slurmctld may not know
        run.restored, run.interrupted = True, Interrupted()
    else:
        refuses = state_trial.refuses(run.machine, paths, candidate.texts)
        saved_state.check(paths, candidate.texts["slurm.conf"], refuses)
        run.restored = state_volume.holds_state(paths, candidate)
    own_gres = "gres.conf" in candidate.customized or bool(status.values["kept_last_good"])
    up.tell_jobs(run, candidate, seen, paths.ask, own_gres=own_gres)
    is_joined = run.settings.place.is_joined
    with joining.explained() if is_joined else contextlib.nullcontext():
        up.bring_up(run, candidate, node)
        if is_joined:
            joining.refuse_former_key(run.machine, paths, node)
        try:
            proof = prove(run, candidate, node, fresh=True)
        except DshpcError as error:
            raise up.why_ended(run, candidate, node) or error from None
    changes = drift.with_done(
        seen.changes,
        (before, candidate.texts),
        node,
        own=candidate.customized,
        resumed=proof.reconciled.resumed,
    )
    outcome.drift(status, changes)
    if not status.values["kept_last_good"]:  # else the next start compares with what was good
        drift.save(paths, drift.remembered(seen.facts, seen.image))
        remember(run, candidate)
    accounting.registered(run)
    if not run.is_worker:
        rest.start(run)
    if is_joined:
        from dshpc_setup.container import far

        joining.settle(paths)
        far.tell_controller(run)
    status.ready()
    outcome.ready(run, seen.plan, candidate, proof.summary)
    jobs.let_begin(run.machine, proof.reconciled.again, proof.reconciled.queued)


def isolate(run: Run, seen: Seen) -> None:
    """The enforced tier's ground; DshpcError where it cannot be had: never half of it."""
    if run.settings.isolation == "default":
        return
    from dshpc_setup.container import isolation

    with run.status.step("isolation"):
        for note in isolation.prepare(
            run.machine, run.paths, run.settings.isolation, run.settings.node
        ):
            run.status.note(note)
        error = isolation.shared_node_error(run.machine, seen.plan)
        if error is not None:
            raise error

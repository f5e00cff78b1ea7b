"""The daemons come up with what is in force; where one does not, why."""

from __future__ import annotations

import os
import time

from dshpc_setup.container import (
    accounting,
    check,
    daemons,
    interrupted,
    jobs,
    network,
    restored,
    saved_state,
    state_trial,
    trial,
    worker,
)
from dshpc_setup.container.config import Candidate
from dshpc_setup.container.look import Seen
from dshpc_setup.container.run import Run
from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.files.storage import replace_text
from dshpc_setup.jobs.offer import NODES
from dshpc_setup.slurm import slurm_conf
from dshpc_setup.terminal.sanitize import listed


def name_node(run: Run, node: str) -> None:
    """For the service of slurmd and for the health check; and the cluster, for what lies in homes that
    several share."""
    replace_text(f"{run.paths.run}/node", f"{node}\n", sync=False)
    replace_text(f"{run.paths.run}/cluster", f"{run.settings.prefix}\n", sync=False)


def tell_jobs(run: Run, candidate: Candidate, seen: Seen, ask: str, *, own_gres: bool) -> None:
    """What each job looks up as it begins, and the services that jobs share GPUs by.

    Before the daemons run with the configuration that `ask` belongs to: a job may begin as soon as they
    do. `own_gres`: its gres.conf is not the one that is rendered for what is seen.
    """
    from dshpc_setup.container import gpu_places, offer, toolkits

    toolkits.write(run.paths, os.environ)
    node = check.node_name(candidate, run.settings.node)
    with run.status.step("gpu places"):
        gpus = seen.facts.gpus.devices
        try:
            listed = gpu_places.write(
                run.machine, ask, run.paths, node, gpus, seen.plan, own_gres=own_gres
            )
        except DshpcError as error:  # slurmd is the first that reads the texts of a first start
            raise (
                trial.parse_error(run.machine, candidate, os.path.dirname(ask), node) or error
            ) from None
        offered = offer.offer(candidate, seen, node, listed)
        offer.write(run.paths, offered)
    alone = run.settings.place.role == "alone"
    if not alone or os.path.isdir(run.paths.at(NODES)):
        from dshpc_setup.container import nodes

        nodes.forget_all(run.paths) if alone else nodes.write(run.paths, offered)
    if not run.is_worker and (without := _without_lua(candidate.texts["slurm.conf"])):
        run.status.note(
            f"slurm.conf has no {' and no '.join(f'{key}=lua' for key in without)}: names of jobs are taken "
            "as users write them. One with a control character can be missing in dshpc usage, and keep "
            "release_idle from other jobs."
        )
    if run.is_worker:
        worker.say_what_it_has(run, candidate.texts["slurm.conf"], node)
    if seen.plan.sharing is not None and seen.plan.sharing.kind == "mps":
        from dshpc_setup.container import mps

        with run.status.step("mps"):
            for note in mps.prepare(run.machine, run.paths, seen.plan):
                run.status.note(note)


def _without_lua(text: str) -> tuple[str, ...]:
    """Which of the plugins that make texts of jobs plain are not loaded (job-texts.lua)."""
    keys = ("JobSubmitPlugins", "CliFilterPlugins")
    return tuple(key for key in keys if "lua" not in (slurm_conf.last(text, key) or "").split(","))


def bring_up(run: Run, candidate: Candidate, node: str) -> None:
    """Steps "slurmctld" and "slurmd"; DshpcError, and both down again, where one does not come up."""
    if not run.is_worker:
        _controller_up(run, candidate, node)
    _node_up(run, candidate, node)


def _controller_up(run: Run, candidate: Candidate, node: str) -> None:
    machine, paths = run.machine, run.paths
    accounting.bring_up(run, candidate.texts["slurm.conf"])
    with run.status.step("slurmctld"):
        port = check.port(candidate.texts, *check.PORTS["slurmctld"])
        if network.listens(port):
            raise _port_taken(port)
        if not run.restored:
            replace_text(f"{paths.run}/first-start", "", sync=False)
        if not daemons.bring_up(machine, paths, "slurmctld", port):
            raise _down(run, candidate, node, "slurmctld")
        if run.restored:
            has_others = run.settings.place.role != "alone"
            found = interrupted.look(machine, paths, node if has_others else None)
            over = _conclude_restored(run)
            run.interrupted = found and found.without(over)
            # Before slurmd registers: others would begin at once on what the interrupted ones have lost
            run.contested = jobs.interrupted_wait_beside_others(machine, node)
            run.held = run.contested and daemons.hold(machine, node)


def _node_up(run: Run, candidate: Candidate, node: str) -> None:
    machine, paths = run.machine, run.paths
    with run.status.step("slurmd"):
        port = check.port(candidate.texts, *check.PORTS["slurmd"])
        run.up_since = time.time()
        up = daemons.bring_up(machine, paths, "slurmd", port)
        if daemons.has_ended(paths, "slurmctld"):  # it listens before it has read everything
            raise _down(run, candidate, node, "slurmctld")
        if not up:
            raise _down(run, candidate, node, "slurmd")
        if run.is_worker:
            worker.register(run, candidate, node, fresh=True)


def _conclude_restored(run: Run) -> tuple[str, ...]:
    over = restored.conclude(run.machine, run.paths)
    if over:
        run.status.note(
            f"Jobs that had ended since the copy of the queue was made, and do not run again: "
            f"{listed(over)}."
        )
    return over


def _down(run: Run, candidate: Candidate, node: str, program: str) -> DshpcError:
    """Take both daemons down, and find out why one of them did not come up."""
    _take_down(run)
    return why_down(run, candidate, node, program)


def _take_down(run: Run) -> None:
    for service in ("slurmd",) if run.is_worker else ("slurmd", "slurmctld"):
        daemons.take_down(run.machine, run.paths, service)


def why_ended(run: Run, candidate: Candidate, node: str) -> DshpcError | None:
    """Both daemons are down, and why, where slurmctld refused something after it had begun to listen.

    None where it has not ended, or what it was given is not the cause.
    """
    if not daemons.has_ended(run.paths, "slurmctld"):
        return None
    error = _refusal(run, candidate, node)
    if error is not None:
        _take_down(run)
    return error


def why_down(run: Run, candidate: Candidate, node: str, program: str) -> DshpcError:
    """Why a daemon is not up, as far as its configuration tells it."""
    return _refusal(run, candidate, node) or _did_not_come_up(program)


def _refusal(run: Run, candidate: Candidate, node: str) -> DshpcError | None:
    """Asked of Slurm's programs, with the configuration that is in force."""
    folder = os.path.realpath(run.paths.etc_slurm)
    if run.is_worker:
        return trial.parse_error(run.machine, candidate, folder, node)
    return (
        trial.trial_error(run.machine, candidate, run.paths)
        or _queue_error(run, candidate)
        or trial.parse_error(run.machine, candidate, folder, node)
    )


def _queue_error(run: Run, candidate: Candidate) -> DshpcError | None:
    """Whether slurmctld has ended over its saved jobs: of a damaged file the beginning may be right."""
    refuses = state_trial.refuses(run.machine, run.paths, candidate.texts)
    try:
        saved_state.check_whole(run.paths, candidate.texts["slurm.conf"], refuses)
    except DshpcError as error:
        return error
    return None


def _port_taken(port: int) -> DshpcError:
    return DshpcError(
        f"Another program listens on port {port} already.",
        "The container shares its network with the host or with another cluster.",
        (
            "Give the container a network of its own, or end that program, then start it again.",
            "With the built-in engine, have other ports chosen: configure-environment",
        ),
    )


def _did_not_come_up(program: str) -> DshpcError:
    return DshpcError(
        f"{program} does not come up.",
        f"Its configuration was accepted; what {program} says is in the container's log.",
        (Fix("See", "dshpc logs", step="look"),),
    )

"""The configuration that is put in force: chosen, checked, or the last good one in its place."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from dshpc_setup.container import (
    check,
    config,
    hardware_fit,
    own_node,
    own_types,
    partitions,
    programs,
    state_volume,
    worker,
)
from dshpc_setup.container import trial as trials
from dshpc_setup.container.complaints import while_up
from dshpc_setup.container.config import Candidate
from dshpc_setup.container.look import Seen
from dshpc_setup.container.prepare import let_resolve
from dshpc_setup.container.run import Run
from dshpc_setup.container.status import as_failure
from dshpc_setup.errors import DshpcError
from dshpc_setup.files.storage import replace_text

Depth = Literal["look", "parse", "trial"]


def in_force(run: Run, seen: Seen) -> Candidate:
    """Steps "render", "check" and "swap" of a start: what passed, or the last good one, in /etc/slurm.

    Raises DshpcError where neither can be, and where a file of the user's own does not fit the
    hardware: with the last good one his jobs would find other GPUs than he wrote down.
    """
    last = config.load_last_good(run.paths)
    chosen = choose(run, seen)
    with run.status.step("check"):
        if isinstance(chosen, DshpcError):
            candidate = _fall_back(run, chosen, last)
        else:
            misfit = hardware_fit.own_misfit(chosen, seen, run.settings.node, run.machine.is_device)
            if misfit is not None:
                raise misfit
            error = check_text(run, chosen, _how_far(run, chosen, last))
            candidate = chosen if error is None else _fall_back(run, error, last)
        foreign = state_volume.foreign_error(run.paths, candidate)
        if foreign is not None:
            raise foreign
    with run.status.step("swap"):
        folder = write(run, candidate)
        config.activate(run.paths, folder)
    return candidate


def choose(run: Run, seen: Seen) -> Candidate | DshpcError:
    """Rendered, with the user's files; the error where one of them cannot be read."""
    with run.status.step("render"):
        from dshpc_setup.render.configuration import render_slurm

        try:
            found = config.choose(run.paths, render_slurm(seen.plan))
        except DshpcError as error:
            return error
        found = replace(found, extra=tuple(item.text for item in seen.plan.extra))
        found, said = own_node.with_own_name(found, run.settings.node)
        if said is not None:
            run.status.note(said)
        if run.is_worker:
            found = worker.fitted(found)
        found = hardware_fit.following(found, run.settings.node)
        found = own_types.with_own_names(found, seen.plan, run.settings.node)
        found = partitions.with_former(found, config.load_last_good(run.paths))
        # Of what is tried, whether it passes or not: the host compares these with its files
        run.status.values.update(
            customized=dict(found.customized),
            config_sha256={**found.sha256, **run.settings.live_digests()},
        )
        return found


def _how_far(run: Run, candidate: Candidate, last: Mapping[str, str] | None) -> Depth:
    """With nothing to fall back on, the daemons themselves are the trial of our own files. A worker has
    no slurmctld."""
    if run.is_worker:
        return "parse"
    if last is None:
        return "parse" if candidate.customized else "look"
    return "look" if dict(candidate.texts) == dict(last) else "trial"


def check_text(run: Run, candidate: Candidate, depth: Depth) -> DshpcError | None:
    """What is wrong with it: looked at, or parsed by slurmd as well, or tried by slurmctld, too."""
    error = _seen_error(run, candidate)
    if error is not None:
        return error
    node = check.node_name(candidate, run.settings.node)
    try:
        _named(run, node)
    except DshpcError as unnamed:
        return unnamed
    if depth == "look":
        return None
    folder = f"{run.paths.run}/new"
    trials.write_set(folder, candidate.texts, run.paths.key)
    error = trials.parse_error(run.machine, candidate, folder, node)
    if error is None and depth == "trial":
        error = trials.trial_error(run.machine, candidate, run.paths)
    return error


def write(run: Run, candidate: Candidate) -> str:
    """Its folder, with all of its files."""
    folder = f"{run.paths.run}/conf.{os.getpid()}.{time.monotonic_ns()}"  # never the one in force
    texts = worker.as_written(candidate.texts) if run.is_worker else candidate.texts
    trials.write_set(folder, texts, run.paths.key, asked=candidate.texts["slurm.conf"])
    return folder


def remember(run: Run, candidate: Candidate) -> None:
    """The daemons run with it: former partitions without jobs go, and the texts count as good."""
    texts = partitions.settle(run, candidate)
    if texts != candidate.texts:  # slurmctld has them no more either
        written = worker.as_written(texts) if run.is_worker else texts
        replace_text(f"{run.paths.etc_slurm}/slurm.conf", written["slurm.conf"], sync=False)
    config.save_last_good(run.paths, texts)


def _seen_error(run: Run, candidate: Candidate) -> DshpcError | None:
    """What is wrong with it that no Slurm program has to be asked for."""
    try:
        check.node_name(candidate, run.settings.node)
    except DshpcError as error:
        return error
    return (
        check.device_error(candidate, run.machine.is_device, run.settings.node)
        or (None if run.is_worker else check.host_error(candidate, socket.gethostname()))
        or programs.program_error(candidate, programs.fault)
        or _tier_error(run, candidate)
    )


def _tier_error(run: Run, candidate: Candidate) -> DshpcError | None:
    """Where it keeps jobs less apart than the setting isolation asks for."""
    if run.settings.isolation == "default":
        return None
    from dshpc_setup.container import isolation

    return isolation.tier_error(candidate.texts, run.settings.isolation)


def _named(run: Run, node: str) -> None:
    """A slurm.conf of the user may give the node a name of its own."""
    let_resolve(run, node)
    if run.settings.isolation != "default":
        from dshpc_setup.container import isolation

        isolation.make_scope(run.paths, node)


def _fall_back(run: Run, error: DshpcError, last: Mapping[str, str] | None) -> Candidate:
    """The last good configuration, where there is one and its devices are here; else the error."""
    if last is None:
        raise error
    kept = Candidate(last, {}, {})
    if _seen_error(run, kept) is not None:
        raise error
    _named(run, check.node_name(kept, run.settings.node))
    error = while_up(error)
    run.status.values["kept_last_good"] = as_failure(error)
    brief = f"{error.brief} The last good configuration stays in force."
    run.status.note(brief, "kept_last_good")
    for line in (*error.details.splitlines(), *error.resolution):
        run.status.say(f"  {line}")
    return kept

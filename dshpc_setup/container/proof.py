"""The last steps: the node takes jobs again where it can, and one real job shows it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from dshpc_setup.container import daemons, jobs, programs, unclean
from dshpc_setup.container.config import Candidate
from dshpc_setup.container.run import Run
from dshpc_setup.slurm import slurm_conf
from dshpc_setup.slurm.nodes import Node


@dataclass(frozen=True)
class Proof:
    """`summary` says in words how the first job went."""

    summary: str
    reconciled: Reconciled


@dataclass(frozen=True)
class Reconciled:
    """The node as it was found, and whether it was taken back; the ids of the jobs that were queued
    again, and when (of the monotonic clock)."""

    found: Node | None = None
    resumed: bool = False
    again: tuple[str, ...] = ()
    queued: float = 0.0


def reconcile(run: Run, node: str, *, fresh: bool) -> Reconciled:
    """Step "reconcile": the node takes jobs where it can, and the queue is right.

    `fresh`: nothing of before runs any more, so that jobs which Slurm takes for running are lost.
    """
    with run.status.step("reconcile"):
        if fresh and not run.restored:
            return Reconciled()
        found = daemons.wait_registered(run.machine, node, run.up_since)
        # What our own first job has done is over where another configuration is in force now
        over = fresh or run.drained_by_proof
        told = None if run.held else daemons.take_back(run.machine, node, found, fresh=over)
        if told:
            run.status.note(told.note, None if told.resumed else f"node {node}")
        tidied = jobs.tidy_queue(run.machine, node, fresh=fresh)
        queued = time.monotonic()
        for note in tidied.notes:
            run.status.note(note)
        if fresh:
            _tell_interrupted(run)
        if run.contested:
            jobs.put_in_front(run.machine, tidied.again)
        if run.held:
            jobs.let_begin(run.machine, tidied.again, queued)
            return Reconciled(_let_go(run, node, found, tidied.again))
        return Reconciled(found, bool(told and told.resumed), tidied.again, queued)


def _tell_interrupted(run: Run) -> None:
    """In the status, and beside the time of an end that nobody ordered."""
    found = run.interrupted
    if found is None:
        run.status.note("Which jobs ran when the container stopped is not known: squeue failed.")
        return
    run.status.values["interrupted"] = found.to_json()
    unclean.note_jobs(run.paths, found.to_json())
    if note := found.note():
        run.status.note(note, "interrupted")


def _let_go(run: Run, node: str, found: Node, again: tuple[str, ...]) -> Node | None:
    """The node that was held takes jobs again, and the interrupted ones are looked at."""
    told = daemons.take_back(run.machine, node, found, fresh=True)
    if told and not told.resumed:  # by a person, meanwhile
        run.status.note(told.note, f"node {node}")
    now = daemons.wait_responding(run.machine, node)
    jobs.start_now(run.machine, again)  # of itself slurmctld looks up to 30 s later
    return now or found


def prove(run: Run, candidate: Candidate, node: str, *, fresh: bool) -> Proof:
    """Reconciled, and proven by a job; DshpcError where that did not run and nobody holds the node."""
    machine, status = run.machine, run.status
    reconciled = reconcile(run, node, fresh=fresh)
    found = reconciled.found
    if found is not None and found.unwell and not (found.own_doing or reconciled.resumed):
        return Proof("no job was tried: the node is taken out", reconciled)
    if found is not None and found.reserved:
        status.note(f"No job was tried: node {node} is reserved. See: scontrol show reservation")
        return Proof("no job was tried: the node is reserved", reconciled)
    others = found is not None and jobs.others_hold_the_node(machine)
    entry = slurm_conf.node(candidate.texts["slurm.conf"], node)
    with_gpu = entry is not None and "gpu" in entry.values.get("gres", "").lower()
    with status.step("first job"):
        deadline_s = daemons.SHORT_PROOF_S if others else daemons.PROOF_S
        owned = run.settings.place.owner is not None
        result = daemons.prove(machine, node, with_gpu, deadline_s, owned=owned)
        if result.ok:
            gres = "--gres=gpu:1 " if with_gpu else ""
            return Proof(f"srun {gres}true passed in {result.ms:.0f} ms", reconciled)
        jobs.cancel_proofs(machine, node)
        ended = result.state == "present"
        now = daemons.after_job(machine, node, failed=ended and programs.names_prolog(candidate))
        if others and result.state == "timeout" and now is not None and now.usable:
            status.note("No job was tried: jobs from before hold the node.")
            return Proof("none: jobs from before hold the node", reconciled)
        run.drained_by_proof = now is not None and now.prolog_failed
        around = programs.failed_around(candidate, result.text, drained=run.drained_by_proof)
        raise around or daemons.proof_error(result, node, now)

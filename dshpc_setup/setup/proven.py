"""The step "passthrough" of a run: the proof of an earlier run where it still holds, else a new one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dshpc_setup import passthrough
from dshpc_setup.engine.privilege import caller
from dshpc_setup.facts import HostFacts
from dshpc_setup.image.base import BaseImage
from dshpc_setup.machine import Machine
from dshpc_setup.machine.overlay import simulated_device_files
from dshpc_setup.passthrough import Bench, Passthrough
from dshpc_setup.passthrough.words import describe_cause, describe_proof
from dshpc_setup.plan import ClusterPlan
from dshpc_setup.project.folder import PROOF, Project
from dshpc_setup.settings import Settings
from dshpc_setup.setup import without_gpu
from dshpc_setup.setup.steps import Steps


@dataclass(frozen=True)
class Proving:
    """What is to be proven, and with what; `base`: None where no container may be started."""

    machine: Machine
    project: Project
    facts: HostFacts
    settings: Settings
    plan: ClusterPlan
    base: BaseImage | None

    @property
    def user(self) -> tuple[int, int]:
        """Whose jobs these will be."""
        who = caller(self.machine)
        return who.uid, who.gid


def prove(wanted: Proving, steps: Steps) -> Passthrough:
    """How the container gets the GPUs; raises DshpcError where the user insists on one and has none."""
    with steps.step("passthrough") as say:
        facts, plan, settings = wanted.facts, wanted.plan, wanted.settings
        untested = passthrough.without_test(plan, simulated_device_files(settings.simulate))
        if untested is not None:
            say(untested.reason, True)
            _need_gpu(wanted, untested, steps)
            return untested
        whole = not settings.devices
        kept = Passthrough.from_json(wanted.project.read_note(PROOF))
        key = passthrough.proof_key(facts, plan, whole)
        files = passthrough.of_driver(wanted.machine, facts)
        same = kept is not None and (kept.key, kept.user) == (key, wanted.user)
        if kept and kept.works and same and passthrough.still_holds(kept, facts, plan, files):
            say(f"{kept.reason} Kept from an earlier run.")
            return kept
        if wanted.base is None:
            reason = "Not tested: this run starts no container of the base image."
            say(reason, True)
            untested = _foreseen(wanted, whole, reason)
            _need_gpu(wanted, untested, steps)
            return untested
        bench = Bench(wanted.base.ref, wanted.user, environment=wanted.base.environment)
        proof = passthrough.prove(wanted.machine, facts, plan, bench, whole=whole)
        say(describe_proof(proof))
        for warning in proof.warnings:
            steps.note(describe_cause(warning))
        wanted.project.write_json(PROOF, proof.to_json())  # doctor shows a failed one as well
        _need_gpu(wanted, proof, steps)
        return proof


def _foreseen(wanted: Proving, whole: bool, reason: str) -> Passthrough:
    """What a test-run would come to as far as the facts tell, unproven; `reason`: why none is made."""
    facts, plan = wanted.facts, wanted.plan
    from dshpc_setup.diagnose import CheckInput
    from dshpc_setup.diagnose.ways import foreseen

    files = passthrough.of_driver(wanted.machine, facts)
    found = foreseen(CheckInput(facts, plan, whole=whole, driver_files=files))
    if found is None:
        return passthrough.untested(facts, plan, whole, reason, files)
    return replace(found, reason=reason if found.works else passthrough.why_none(found))


def _need_gpu(wanted: Proving, proof: Passthrough, steps: Steps) -> None:
    root = without_gpu.cause(wanted.facts, wanted.plan, wanted.settings)
    refused = without_gpu.refusal(wanted.settings, proof, root)
    if refused is not None:
        raise refused
    for text in without_gpu.notes(proof, root):
        steps.note(text)

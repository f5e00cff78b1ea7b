"""Asks the machine, the project folder and the cluster all that the rules of diagnose want to know."""

from __future__ import annotations

from dshpc_setup import passthrough, probes, verify
from dshpc_setup.diagnose import ClusterFacts, Finding, Known, diagnose
from dshpc_setup.engine import containers
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import HostFacts
from dshpc_setup.machine import Machine
from dshpc_setup.project import PROOF, Project


def examine(machine: Machine, project: Project | None) -> tuple[Finding, ...]:
    """Ask the machine, the project folder and the cluster all that the rules want to know."""
    looked_at = machine
    simulate = project.settings(machine.env).simulate if project else ""
    if simulate:
        from dshpc_setup.machine.simulated import SimulatedMachine

        looked_at = SimulatedMachine(machine, simulate, devices_exist=True)
    facts = probes.gather(looked_at)
    proof = passthrough.Passthrough.from_json(project.read_json(PROOF)) if project else None
    return diagnose(Known(facts, proof, _cluster(machine, facts, project)))


def _cluster(machine: Machine, facts: HostFacts, project: Project | None) -> ClusterFacts | None:
    name = project.runtime().get("container") if project else None
    if not isinstance(name, str):
        return None
    if facts.engine.state != "present":
        return ClusterFacts(name, exists=False)
    found = containers.inspect(machine, name)
    if found is None or not found.running:
        return ClusterFacts(name, exists=found is not None)
    try:
        cluster = verify.ask_cluster(machine, name)
    except DshpcError as error:
        return ClusterFacts(name, True, True, found.health, error=f"{error.brief} {error.details}")
    nodes = tuple((node.name, node.gres, node.state) for node in cluster.nodes)
    return ClusterFacts(name, True, True, found.health, nodes)

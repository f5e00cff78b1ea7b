"""Asks the machine, the project folder and the cluster all that the rules of diagnose want to know."""

from __future__ import annotations

from collections.abc import Mapping

from dshpc_setup import passthrough, probes
from dshpc_setup.cluster import operations
from dshpc_setup.cluster.status import ClusterStatus
from dshpc_setup.diagnose import Finding, Known, diagnose
from dshpc_setup.engine.refusals import endpoint_elsewhere
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import HostFacts
from dshpc_setup.machine import Machine
from dshpc_setup.machine.overlay import with_simulated_gpus
from dshpc_setup.plan import ClusterPlan, plan_cluster
from dshpc_setup.project import PROOF, Project
from dshpc_setup.settings import Settings


def examine(machine: Machine, project: Project | None) -> tuple[Finding, ...]:
    """Every rule's finding; raises DshpcError where the settings of the project cannot be read."""
    settings = project.settings(machine.env) if project else Settings()
    facts = probes.gather(with_simulated_gpus(machine, settings.simulate))
    proof = passthrough.Passthrough.from_json(project.read_note(PROOF)) if project else None
    known = Known(
        facts,
        plan=_plan(facts, settings),
        whole=not settings.devices,
        proof=proof,
        endpoint=endpoint_elsewhere(machine, facts.engine),
        cluster=_cluster(machine, facts, project),
    )
    return diagnose(known)


def examine_recorded(
    machine: Machine, project: Project | None, env: Mapping[str, str]
) -> tuple[Finding, ...]:
    """The same for a recorded machine, with the settings of the project, which are read with `env`.

    The project's cluster and its proof are of the machine that we run on: nothing is told of them.
    """
    settings = project.settings(env) if project else Settings()
    facts = probes.gather(with_simulated_gpus(machine, settings.simulate))
    known = Known(
        facts,
        plan=_plan(facts, settings),
        whole=not settings.devices,
        endpoint=endpoint_elsewhere(machine, facts.engine),
    )
    return diagnose(known)


def _plan(facts: HostFacts, settings: Settings) -> ClusterPlan | None:
    try:
        return plan_cluster(facts, settings)
    except DshpcError:  # a GPU that is named in the settings is not there
        return None


def _cluster(machine: Machine, facts: HostFacts, project: Project | None) -> ClusterStatus | None:
    name = project.runtime().get("container") if project else None
    if project is None or not isinstance(name, str):
        return None
    folder = str(project.folder)
    if facts.engine.state != "present":
        return ClusterStatus(folder, name, "unknown")
    try:
        return operations.status(machine, project)
    except DshpcError as error:
        problem = f"{error.brief} {error.details}".strip()
        return ClusterStatus(folder, name, "unknown", problem=problem)

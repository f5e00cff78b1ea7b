"""Rules: facts in, findings out. Pure; one stable id each; a rule that crashes takes no other along."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from dshpc_setup.cluster.status import ClusterStatus
from dshpc_setup.errors import Exit
from dshpc_setup.facts import HostFacts
from dshpc_setup.fixes import Fix
from dshpc_setup.passthrough import Passthrough
from dshpc_setup.plan import ClusterPlan

SCHEMA = "dshpc.doctor/1"
Section = Literal["host", "gpu", "driver", "engine", "passthrough", "slurm", "files"]
FindingState = Literal["ok", "info", "warn", "error", "skipped", "crashed"]


@dataclass(frozen=True)
class Finding:
    id: str
    section: Section
    state: FindingState
    title: str
    evidence: tuple[str, ...] = ()
    cause: str = ""
    fix: tuple[Fix, ...] = ()
    blocked_by: str | None = None


@dataclass(frozen=True)
class Known:
    """All that rules may look at; None: not asked, or there is none."""

    facts: HostFacts
    plan: ClusterPlan | None = None  # None as well where the settings name a GPU that is not there
    whole: bool = True  # all GPUs are handed over, none was selected
    proof: Passthrough | None = None
    endpoint: str | None = None  # an engine chosen by DOCKER_HOST or a docker context
    cluster: ClusterStatus | None = None  # what was set up in this folder; "unknown" if not asked


Rule = Callable[[Known], Finding]


def diagnose(known: Known) -> tuple[Finding, ...]:
    """Every rule's finding, in the order of the sections."""
    from dshpc_setup.diagnose.rules import RULES

    findings = []
    for identity, section, title, rule in RULES:
        try:
            findings.append(rule(known))
        except Exception as error:  # noqa: BLE001 -- one broken rule must not hide the others
            evidence = (f"{type(error).__name__}: {error}",)
            findings.append(Finding(identity, section, "crashed", title, evidence))
    return tuple(findings)


def exit_code(findings: tuple[Finding, ...]) -> Exit:
    """0 fine, 1 warnings, 2 errors, 3 where a rule could not be answered."""
    states = {finding.state for finding in findings}
    if "error" in states:
        return Exit.ERROR
    if "crashed" in states:
        return Exit.INCOMPLETE
    return Exit.WARNING if "warn" in states else Exit.OK


def to_json(findings: tuple[Finding, ...]) -> dict[str, Any]:
    """The `dshpc.doctor/1` object."""
    states: tuple[FindingState, ...] = ("ok", "info", "warn", "error", "skipped", "crashed")
    return {
        "schema": SCHEMA,
        "exit_code": int(exit_code(findings)),
        "summary": {state: sum(finding.state == state for finding in findings) for state in states},
        "findings": [asdict(finding) for finding in findings],
    }

"""From findings to repairs, in the order of their dependence. Pure."""

from __future__ import annotations

from dataclasses import replace

from dshpc_setup.diagnose import CheckInput, Finding
from dshpc_setup.diagnose.slurm_known import NOT_IN_CONTAINER
from dshpc_setup.errors import Want
from dshpc_setup.repair.choice import asked, instead, roots
from dshpc_setup.repair.model import ORDER, Host, Plan, Refusal, Repair
from dshpc_setup.repair.repairs import make

# Whose "configure-environment" needs no build
_RENDERED = ("files", "passthrough")


def plan(findings: tuple[Finding, ...], known: CheckInput, here: Host) -> Plan:
    """The repairs for the faults that no other fault explains, each once."""
    vendors = {gpu.vendor for gpu in known.facts.gpus.devices}
    vendor = vendors.pop() if len(vendors) == 1 else None
    chosen: dict[str, Repair] = {}
    not_safe: dict[str, str] = {}
    for finding in roots(findings):
        steps = tuple(want for want in asked(finding) if _fits(want, finding))
        made, why = _made(steps, known, here)
        if not made:
            made, why_not = _made(instead(finding, vendor), known, here)
            why = why_not if made else why or why_not
        if why or not made:
            not_safe[finding.id] = why
        for repair in made:
            before = chosen.get(repair.key, repair)
            chosen[repair.key] = replace(before, fixes=(*before.fixes, finding.id))
    ordered = sorted(chosen.values(), key=lambda item: (ORDER.index(item.kind), item.about))
    return Plan(_depending(ordered), not_safe)


def _fits(want: Want, finding: Finding) -> bool:
    rendered = finding.section in _RENDERED or finding.id == NOT_IN_CONTAINER
    return want[0] != "render" or rendered


def _made(wants: tuple[Want, ...], known: CheckInput, here: Host) -> tuple[tuple[Repair, ...], str]:
    """The repairs of the first steps, up to one that cannot be done here, and why that cannot."""
    made: list[Repair] = []
    for want in wants:
        found = make(want, known, here)
        if isinstance(found, Refusal):
            return tuple(made), found.why
        made += found
    return tuple(made), ""


def _depending(ordered: list[Repair]) -> tuple[Repair, ...]:
    """Each after those before it that fix the same finding: these are steps of one fix."""
    found: list[Repair] = []
    for item in ordered:
        after = tuple(
            other.key
            for other in found
            if other.kind != item.kind and set(other.fixes) & set(item.fixes)
        )
        found.append(replace(item, after=after))
    return tuple(found)

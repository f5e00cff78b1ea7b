"""Which repairs a finding asks for. Pure.

A finding asks by the repairs that the steps of its fix name. A step chooses a kind of repair, no more:
nothing of its text and its command becomes part of one.
"""

from __future__ import annotations

from dshpc_setup import gpu_vendors
from dshpc_setup.diagnose import Finding
from dshpc_setup.diagnose.model import FAULTS
from dshpc_setup.errors import Want
from dshpc_setup.passthrough import findings as ids

_ITS = "vendor"  # stands for that of the GPUs

# Where the fixes name no repair that is possible here
_BY_ID: dict[str, tuple[Want, ...]] = {
    "DSH-DK-001": (("start-engine", ""),),
    "DSH-SL-001": (("start-cluster", ""),),
    ids.NOT_RESTARTED: (("restart-engine", ""),),
    ids.RUNTIME_NOT_REGISTERED: (("register-runtime", _ITS), ("restart-engine", "")),
    ids.NO_CDI_SPEC: (("write-cdi", _ITS),),
    ids.STALE_CDI_SPEC: (("write-cdi", _ITS),),
    ids.NO_UVM: (("load-uvm", ""),),
}


def roots(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The faults that no other fault explains."""
    return tuple(item for item in findings if item.state in FAULTS and item.caused_by is None)


def asked(finding: Finding) -> tuple[Want, ...]:
    """The first steps of its fix, as far as there are repairs for them; another way ends them."""
    found: list[Want] = []
    for fix in finding.fix:
        if fix.step == "look":
            continue
        if fix.step == "alternative" or fix.repair is None:
            break
        found.append(fix.repair)
    return tuple(dict.fromkeys(found))


def instead(finding: Finding, vendor: str | None) -> tuple[Want, ...]:
    """By the finding's id alone; `vendor` is that of the GPUs, None where that is not one."""
    wants = _BY_ID.get(finding.id, ())
    if vendor is None or vendor not in {each.name for each in gpu_vendors.with_toolkit()}:
        return tuple(want for want in wants if not want[1])
    return tuple((kind, about and vendor) for kind, about in wants)

"""Which repairs a finding asks for. Pure.

A finding asks by the commands of its fixes, which are compared as a whole with those of remedies for
this machine. None of its words becomes part of a command: a match chooses a kind of repair, no more.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from dshpc_setup import gpu_vendors, remedies
from dshpc_setup.diagnose import Finding, Known
from dshpc_setup.diagnose.model import FAULTS
from dshpc_setup.errors import Fix
from dshpc_setup.facts import HostFacts
from dshpc_setup.passthrough import findings as ids
from dshpc_setup.repair.model import NEED_THE_ENGINE, PLACES, Want

_ITS = "vendor"  # stands for that of the GPUs
_OURS: dict[str, Want] = {
    "dshpc up": ("start-cluster", ""),
    "dshpc restart": ("restart-cluster", ""),
    "dshpc reconfigure": ("reconfigure", ""),
    "configure-environment": ("render", ""),
}

_CLUSTERS = NEED_THE_ENGINE
# What is run in the cluster's container
_INSIDE: dict[tuple[str, ...], Want] = {
    ("chown", "slurm:slurm", PLACES.key): ("restrict-key", ""),
    ("chmod", "600", PLACES.key): ("restrict-key", ""),
    **{
        ("s6-svc", "-u", f"{PLACES.services}/{name}"): ("start-daemon", name)
        for name in ("slurmctld", "slurmd")
    },
}

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


def words(known: Known) -> dict[str, Want]:
    """The command of a fix -> the repair that it stands for, on this machine."""
    facts = known.facts
    found: dict[str, Want] = {}
    vendors = [each.name for each in gpu_vendors.with_toolkit()]
    for vendor in vendors:
        found |= _all(remedies.generate_cdi(facts, vendor), ("write-cdi", vendor))
    for vendor in vendors:
        found |= _all(remedies.register_runtime(facts, vendor), ("register-runtime", vendor))
    found |= _all(_only_cdi(facts), ("enable-cdi", ""))
    found |= _all(remedies.look_at_engine(facts), ("start-engine", ""))
    found |= _all(remedies.restart_docker(facts), ("restart-engine", ""))
    found |= _all(remedies.load_uvm(facts), ("load-uvm", ""))
    return found | _OURS


def _all(fixes: tuple[Fix, ...], want: Want) -> dict[str, Want]:
    return {fix.command: want for fix in fixes if fix.command and not _only_looks(fix)}


def _only_cdi(facts: HostFacts) -> tuple[Fix, ...]:
    """The switching on, and no `nixos-rebuild`."""
    return tuple(
        fix for fix in remedies.enable_cdi(facts) if "runtime configure" in (fix.command or "")
    )


def asked(finding: Finding, known_words: Mapping[str, Want]) -> tuple[Want, ...]:
    """The first steps of its fix, as far as they are known; another way ends them."""
    found: list[Want] = []
    for fix in finding.fix:
        if _only_looks(fix):
            continue
        want = None if fix.step == "alternative" else _want(fix, known_words)
        if want is None or not _meant(fix, want):
            break
        found.append(want)
    return tuple(dict.fromkeys(found))


def _meant(fix: Fix, want: Want) -> bool:
    """Whether a command of our own is to be run by itself: one may need something by hand before."""
    if want[0] not in _CLUSTERS:
        return True
    return fix.automatic or (want[0] == "render" and fix.step == "after")


def instead(finding: Finding, vendor: str | None) -> tuple[Want, ...]:
    """By the finding's id alone; `vendor` is that of the GPUs, None where that is not one."""
    wants = _BY_ID.get(finding.id, ())
    if vendor is None or vendor not in {each.name for each in gpu_vendors.with_toolkit()}:
        return tuple(want for want in wants if not want[1])
    return tuple((kind, about and vendor) for kind, about in wants)


def _only_looks(fix: Fix) -> bool:
    return fix.step == "look"


def _want(fix: Fix, known_words: Mapping[str, Want]) -> Want | None:
    if fix.command is None:
        return None
    return known_words.get(fix.command) or _in_parts(fix.command)


def _in_parts(command: str) -> Want | None:
    """Commands that name a container, a node or a path: the repair takes these from elsewhere."""
    try:
        parts = shlex.split(command)
    except ValueError:
        return None
    if any(re.search(r"[;&|<>$`\n]", part) for part in parts):
        return None
    if parts[:1] == ["sudo"]:
        parts = parts[1:]
    if len(parts) == 3 and parts[0] == "chmod" and parts[1] in ("600", "0600"):
        return ("restrict-env", "") if parts[2].rsplit("/", 1)[-1] == ".env" else None
    if "scontrol" in parts and "update" in parts and "state=resume" in map(str.lower, parts):
        return ("resume-node", "")
    return _INSIDE.get(tuple(parts[3:])) if parts[:2] == ["docker", "exec"] else None

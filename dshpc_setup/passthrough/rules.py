"""A rule of the classifier: a pattern of an error text, what must be so on the machine, and the cause."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dshpc_setup.errors import Fix
from dshpc_setup.facts import CdiSpec, HostFacts
from dshpc_setup.passthrough.handover import Mechanism
from dshpc_setup.passthrough.model import Cause
from dshpc_setup.remedies import toolkit

Q = r"[\\\"'`]*"
"""Quotes, as old runc nests them: \\\\\\"."""


@dataclass(frozen=True)
class Refusal:
    """What a rule may look at beside the text."""

    facts: HostFacts
    mechanism: Mechanism
    said: Mapping[str, str] = field(default_factory=dict)  # the named groups of the pattern


Remedy = Callable[[HostFacts], tuple[Fix, ...]]
When = Callable[[Refusal], bool]


def always(_: Refusal) -> bool:
    return True


def nothing(_: HostFacts) -> tuple[Fix, ...]:
    return ()


@dataclass(frozen=True)
class Rule:
    """`says` may name the groups of `pattern`; every remedy adds its steps, in order."""

    finding: str
    pattern: str  # without regard to case; "." is any character of one line
    says: str
    remedies: tuple[Remedy, ...] = ()
    when: When = always

    def cause(self, text: str, facts: HostFacts, mechanism: Mechanism) -> Cause | None:
        for found in re.finditer(self.pattern, text, re.IGNORECASE):
            said = {name: _shown(value) for name, value in found.groupdict().items()}
            if self.when(Refusal(facts, mechanism, said)):
                steps = [step for remedy in self.remedies for step in remedy(facts)]
                return Cause(self.finding, self.says.format(**said), tuple(dict.fromkeys(steps)))
        return None


def _shown(value: str | None) -> str:
    words = " ".join((value or "").split()).strip("\\\"'`.,:;")
    return words if len(words) <= 160 else f"{words[:157]}..."


# -- what may have to be so -------------------------------------------------------------------------


def both(*conditions: When) -> When:
    return lambda refusal: all(condition(refusal) for condition in conditions)


def no(condition: When) -> When:
    return lambda refusal: not condition(refusal)


def engine_is(*kinds: str) -> When:
    return lambda refusal: refusal.facts.engine.kind in kinds


def on(*platforms: str) -> When:
    return lambda refusal: refusal.facts.platform.kind in platforms


def by(*mechanisms: Mechanism) -> When:
    return lambda refusal: refusal.mechanism in mechanisms


def rootless(refusal: Refusal) -> bool:
    return bool(refusal.facts.engine.rootless)


def in_container(refusal: Refusal) -> bool:
    return refusal.facts.platform.in_container


def selinux_enforces(refusal: Refusal) -> bool:
    return refusal.facts.platform.selinux == "enforcing"


def systemd_cgroups(refusal: Refusal) -> bool:
    return refusal.facts.engine.cgroup_driver == "systemd"


def no_toolkit(vendor: str) -> When:
    """Nothing of it is installed, nor any trace of it; not so where it could not be looked at."""

    def missing(refusal: Refusal) -> bool:
        told = [item for item in refusal.facts.engine.toolkits if item.vendor == vendor]
        return not told or all(item.state == "absent" for item in told)

    return missing


def no_hook(refusal: Refusal) -> bool:
    """NVIDIA's toolkit is there without the hook that --gpus needs: its base package alone."""
    installed = toolkit(refusal.facts, "nvidia")
    return installed is not None and installed.hook is None


def no_cgroups(refusal: Refusal) -> bool:
    installed = toolkit(refusal.facts, "nvidia")
    return installed is not None and installed.no_cgroups is True


def registered(vendor: str) -> When:
    """daemon.json names the runtime, and the engine does not know it."""
    return lambda refusal: (
        vendor in refusal.facts.engine.registered and vendor not in refusal.facts.engine.runtimes
    )


def specs(refusal: Refusal, vendor: str) -> tuple[CdiSpec, ...]:
    """This vendor's CDI specifications, and those that do not say whose they are."""
    return tuple(
        spec
        for spec in refusal.facts.engine.cdi_specs
        if spec.kind is None or spec.kind.startswith(f"{vendor}.com/")
    )


def spec_is(vendor: str, *states: str) -> When:
    return lambda refusal: any(spec.state in states for spec in specs(refusal, vendor))


def any_spec(refusal: Refusal) -> bool:
    return any(spec.state == "present" for spec in refusal.facts.engine.cdi_specs)


def spec_misses_files(refusal: Refusal) -> bool:
    return any(spec.missing for spec in refusal.facts.engine.cdi_specs)


def named_by_spec(refusal: Refusal) -> bool:
    """All names that the engine does not resolve stand in specifications all the same."""
    listed = {device.name for spec in refusal.facts.engine.cdi_specs for device in spec.devices}
    names = re.findall(r"[\w.-]+/[\w.-]+=[^\s,:]+(?::\d+)?", refusal.said.get("names", ""))
    return bool(names) and listed.issuperset(names)


def missing_of_spec(refusal: Refusal) -> bool:
    """The file is one that a CDI specification wants and this machine does not have."""
    wanted = {path for spec in refusal.facts.engine.cdi_specs for path in spec.missing}
    return refusal.said.get("file", "") in wanted

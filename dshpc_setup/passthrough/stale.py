"""Is a CDI specification out of date? Told by the file itself, against this machine. Pure.

Asked only where a container did not get what it was promised: much that a file names may be missing
without harm, and the name of a library says its version only mostly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dshpc_setup.facts import CdiSpec, HostFacts
from dshpc_setup.passthrough.expected import Expected
from dshpc_setup.passthrough.handover import Handover
from dshpc_setup.passthrough.look import Seen

_MOST_NAMED = 3


@dataclass(frozen=True)
class Stale:
    path: str
    vendor: str  # as its kind says: "nvidia"
    why: str  # "it is of driver 535.54.03, and this machine's is 550.163.01"


def stale(facts: HostFacts, handover: Handover, expected: Expected, seen: Seen) -> Stale | None:
    """The first specification of the handed-over devices that shows its age; None where none does.

    `seen` is empty where no container was started.
    """
    kinds = dict.fromkeys(name.split("=")[0] for name in handover.ids)
    for kind in kinds:
        specs = [spec for spec in facts.engine.cdi_specs if spec.kind == kind]
        found = next(_reasons(specs, expected, seen), None)
        if found is not None:
            spec, why = found
            return Stale(spec.path, kind.split(".")[0], why)
    return None


def _reasons(
    specs: Sequence[CdiSpec], expected: Expected, seen: Seen
) -> Iterator[tuple[CdiSpec, str]]:
    brought = {node for spec in specs for node in spec.nodes}
    brought |= {node for spec in specs for device in spec.devices for node in device.nodes}
    absent = [path for path, node in seen.nodes.items() if node.state == "absent"]
    lacking = [path for path in absent if path not in brought]
    for spec in specs:
        if spec.state != "present":
            continue
        driver = expected.driver_version if (spec.kind or "").startswith("nvidia.") else None
        if driver and spec.driver_version and spec.driver_version != driver:
            yield spec, f"it is of driver {spec.driver_version}, and this machine's is {driver}"
        if spec.missing:
            yield spec, f"it names {listed(spec.missing)}, which this machine does not have"
        if lacking:
            yield spec, f"it does not name {listed(lacking)}"


def listed(names: Sequence[str], most: int = _MOST_NAMED) -> str:
    """ "a, b, c and 5 more"."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown

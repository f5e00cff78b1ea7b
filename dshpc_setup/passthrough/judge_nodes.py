"""The device nodes in a test container: are they there, are they the same, do they open? Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dshpc_setup import gpu_vendors, remedies
from dshpc_setup.facts import HostFacts
from dshpc_setup.facts.nvidia_driver import UVM
from dshpc_setup.passthrough import findings
from dshpc_setup.passthrough.causes import of_refusal
from dshpc_setup.passthrough.expected import Expected, ExpectedNode
from dshpc_setup.passthrough.handover import USUAL_DRIVER, Handover
from dshpc_setup.passthrough.look import Seen, SeenNode
from dshpc_setup.passthrough.model import Cause
from dshpc_setup.passthrough.stale import listed

_ABSENT = SeenNode("absent")


def nodes(seen: Seen, expected: Expected, handover: Handover, facts: HostFacts) -> Cause | None:
    """None where every expected node opens, is this machine's, and no other GPU's is there."""
    met = {node.path: seen.nodes.get(node.path, _ABSENT) for node in expected.nodes}
    absent = [path for path, node in met.items() if node.state == "absent"]
    foreign = [path for path in seen.visible if path in expected.foreign]
    if absent:
        return _absent(absent, foreign, expected, handover, facts)
    moved = [node.path for node in expected.nodes if _is_another(node, met[node.path])]
    if moved:
        return Cause(
            findings.OTHER_GPUS,
            f"{listed(moved)} is another device in the container than on this machine",
        )
    denied = [path for path, node in met.items() if node.state == "denied"]
    if denied:
        return _denied(denied, met, handover, facts)
    broken = [path for path, node in met.items() if node.state == "error"]
    if broken:
        says = f"{listed(broken)} does not open in the container: {_words(broken, met)}"
        return Cause(findings.NODE_DOES_NOT_OPEN, says)
    if foreign:
        says = f"the container sees GPUs that were not asked for: {listed(foreign)}"
        return Cause(findings.MORE_GPUS, says)
    return None


def _is_another(wanted: ExpectedNode, met: SeenNode) -> bool:
    number = wanted.number and met.number and wanted.number != met.number
    address = wanted.pci and met.pci and wanted.pci != met.pci
    return bool(number or address)


def _words(paths: Sequence[str], met: Mapping[str, SeenNode]) -> str:
    return "; ".join(dict.fromkeys(met[path].words for path in paths))


# -- nodes that are not there -----------------------------------------------------------------------


def _absent(
    absent: Sequence[str],
    foreign: Sequence[str],
    expected: Expected,
    handover: Handover,
    facts: HostFacts,
) -> Cause:
    if foreign:
        says = f"the container sees {listed(foreign)} in place of {listed(absent)}"
        return Cause(findings.OTHER_GPUS, says)
    lacking = [gpu for gpu in expected.gpus if not set(gpu).isdisjoint(absent)]
    if not lacking:
        return _absent_common(absent, expected, handover, facts)
    if len(lacking) == expected.count:
        sees = "no GPU" if expected.count == 1 else f"none of the {expected.count} GPUs"
    else:
        sees = f"{expected.count - len(lacking)} of {expected.count} GPUs"
    says = f"the container sees {sees}: there is no {listed(absent)}"
    return Cause(findings.FEWER_GPUS, says, _anew(handover, facts))


def _anew(handover: Handover, facts: HostFacts) -> remedies.Fixes:
    by_nodes = handover.mechanism == "devices" or handover.driver != USUAL_DRIVER
    ids = handover.ids if handover.mechanism == "cdi" else ()
    return () if by_nodes else remedies.handed_over_anew(facts, ids)


def _absent_common(
    absent: Sequence[str], expected: Expected, handover: Handover, facts: HostFacts
) -> Cause:
    """Nodes that all GPUs of a vendor need: each GPU's own is there."""
    here = {node.path for node in expected.nodes if node.number is not None}
    if list(absent) == [UVM] and UVM not in here:
        again = remedies.generate_cdi(facts) if handover.mechanism == "cdi" else ()
        says = f"there is no {UVM}, without which CUDA does not start"
        return Cause(findings.NO_UVM, says, (*remedies.load_uvm(facts), *again))
    says = f"the container has no {listed(absent)}, without which its GPUs do not compute"
    return Cause(findings.FEWER_GPUS, says, _anew(handover, facts))


# -- nodes that do not open -------------------------------------------------------------------------


def _denied(
    denied: Sequence[str], met: Mapping[str, SeenNode], handover: Handover, facts: HostFacts
) -> Cause:
    words = _words(denied, met)
    where = f"the user that jobs run as may not open {listed(denied)} in the container"
    if "not permitted" in words.lower():  # the device cgroup says so, not the mode of the file
        return of_refusal(words, handover.mechanism, facts) or Cause(
            findings.NODE_DENIED, f"{where}: the engine does not allow that device ({words})"
        )
    if _confined(facts):
        says = f"{where}: {words}, and SELinux enforces"
        return Cause(findings.SELINUX, says, remedies.selinux(facts))
    if not facts.engine.rootless and _are_of_groups(denied, facts):
        return Cause(findings.AMD_GROUP, f"{where}: {words}", remedies.amd_groups(facts))
    return Cause(findings.NODE_DENIED, f"{where}: {words}", remedies.node_groups(facts, denied))


def _confined(facts: HostFacts) -> bool:
    """Whether SELinux keeps this engine's containers apart: Docker does that only if it is told to."""
    told = any("selinux" in option for option in facts.engine.security_options)
    return facts.platform.selinux == "enforcing" and (told or facts.engine.kind == "podman")


def _are_of_groups(denied: Sequence[str], facts: HostFacts) -> bool:
    """Whether one of them is of a vendor whose nodes only members of a group may open: AMD's."""
    by_group = {each.name: each for each in gpu_vendors.all_of_them() if each.nodes.by_group}
    shared = {node for each in by_group.values() for node in each.nodes.shared}
    gpus = (gpu for gpu in facts.gpus.devices if gpu.vendor in by_group)
    own = {node for gpu in gpus for node in gpu.device_files}
    return not set(denied).isdisjoint(shared | own)

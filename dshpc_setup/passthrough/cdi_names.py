"""The names by which a CDI engine knows the planned GPUs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dshpc_setup import gpu_vendors, remedies
from dshpc_setup.facts import CdiDevice, CdiSpec, Engine, HostFacts, Vendor
from dshpc_setup.passthrough import findings
from dshpc_setup.passthrough.expected import takes_all
from dshpc_setup.passthrough.model import Cause
from dshpc_setup.plan import ClusterPlan, GresLine
from dshpc_setup.versions import at_least

_LISTS_DEVICES_SINCE = "28.2"  # Docker: DiscoveredDevices


@dataclass(frozen=True)
class CdiNames:
    """What may be asked for: qualified names of one vendor's kind, and what specifications say of them."""

    kind: str  # "nvidia.com/gpu"
    names: frozenset[str]
    devices: tuple[CdiDevice, ...] = ()


def cdi_names(
    facts: HostFacts, plan: ClusterPlan, whole: bool, vendor: Vendor
) -> tuple[str, ...] | Cause:
    """The qualified names of a vendor's planned GPUs, or why there are none."""
    known = _known(facts, vendor)
    every = f"{known.kind}=all"
    nameable = every in known.names or (not known.names and _unseen(facts.engine))
    if nameable and takes_all(facts, plan, whole, vendor):
        return (every,)
    if not known.names:
        return _none(facts, vendor, known.kind)
    if facts.platform.kind == "wsl2":
        return Cause(None, "on WSL a CDI specification names all GPUs together, not one of them")
    names: list[str] = []
    for line in (line for line in plan.gres if line.vendor == vendor):
        name = _name_of(line, known, facts)
        if name is None:
            label = line.uuid or ", ".join(line.files)
            return Cause(
                findings.STALE_CDI_SPEC,
                f"the CDI specification{_where(facts, known.kind)} does not name the GPU {label}",
                remedies.generate_cdi(facts, vendor),
            )
        names.append(name)
    return tuple(dict.fromkeys(names))


def _known(facts: HostFacts, vendor: Vendor) -> CdiNames:
    """An engine that lists its devices knows no others, whatever lies on the disk."""
    kind = gpu_vendors.of(vendor).cdi_kind
    engine = facts.engine
    devices = [
        device
        for spec in engine.cdi_specs
        if spec.state == "present" and spec.kind == kind
        for device in spec.devices
    ]
    tells = engine.cdi_devices or (
        engine.kind in ("engine", "snap") and at_least(engine.server_version, _LISTS_DEVICES_SINCE)
    )
    listed = engine.cdi_devices if tells else [device.name for device in devices]
    names = frozenset(name for name in listed if name.startswith(f"{kind}="))
    return CdiNames(kind, names, tuple(device for device in devices if device.name in names))


def _unseen(engine: Engine) -> bool:
    """A specification that this user may not read, and the engine may."""
    silent = not at_least(engine.server_version, _LISTS_DEVICES_SINCE) and not engine.cdi_devices
    return silent and any(spec.state == "denied" for spec in engine.cdi_specs)


def _none(facts: HostFacts, vendor: Vendor, kind: str) -> Cause:
    specs = [spec for spec in facts.engine.cdi_specs if _may_be(spec, kind)]
    if specs:
        return _not_taken(facts, vendor, specs[0], kind)
    says = f"no CDI specification names these GPUs ({kind})"
    return Cause(findings.NO_CDI_SPEC, says, remedies.first_cdi(facts, vendor))


def _not_taken(facts: HostFacts, vendor: Vendor, spec: CdiSpec, kind: str) -> Cause:
    """The file is there, and the engine lists none of its devices."""
    again = remedies.generate_cdi(facts, vendor)
    says = f"the engine knows no device {kind}, though there is {spec.path}"
    if spec.state == "error":
        return Cause(findings.CDI_SPEC_UNREADABLE, f"{says}: {spec.detail}", again)
    if facts.engine.rootless and facts.engine.kind != "podman":
        says += ": a rootless engine sees only what was there when it started"
        return Cause(findings.CDI_SPEC_UNREADABLE, says, remedies.restart_docker(facts))
    says += ": it clashes with another one, or is of a later format than the engine's"
    return Cause(findings.CDI_SPEC_UNREADABLE, says, (*remedies.clashing_specs(facts), *again))


def _may_be(spec: CdiSpec, kind: str) -> bool:
    """Of that kind; of one that cannot be read its name has to tell."""
    vendor = kind.split(".")[0]
    return spec.kind == kind or (spec.kind is None and vendor in spec.path.rsplit("/", 1)[-1])


def _where(facts: HostFacts, kind: str) -> str:
    paths = [spec.path for spec in facts.engine.cdi_specs if spec.kind == kind]
    return f" {paths[0]}" if len(paths) == 1 else ""


def _name_of(line: GresLine, known: CdiNames, facts: HostFacts) -> str | None:
    """By UUID, which stays the same; else by the nodes that it brings; else by index.

    By index only where no specification could be read, and no MIG instance: an instance's index
    changes with its neighbours.
    """
    by_uuid = f"{known.kind}={line.uuid}"
    if line.uuid and by_uuid in known.names:
        return by_uuid
    own = _own(line.files, line.vendor)
    for device in known.devices:
        if own and not device.name.endswith("=all") and _own(device.nodes, line.vendor) == own:
            return device.name
    by_index = f"{known.kind}={_rank(line, facts)}"
    alone = not known.devices and len(line.files) == 1
    return by_index if alone and by_index in known.names else None


def _own(nodes: Iterable[str], vendor: Vendor) -> frozenset[str]:
    """What a whole card or a part of it is made of; beside it a specification may name display nodes."""
    pattern = re.compile(gpu_vendors.of(vendor).nodes.own)
    return frozenset(node for node in nodes if pattern.fullmatch(node))


def _rank(line: GresLine, facts: HostFacts) -> int:
    """The GPU's place among those of its vendor, which is how the vendor's tools number them."""
    same: Sequence[int] = [gpu.index for gpu in facts.gpus.devices if gpu.vendor == line.vendor]
    return same.index(line.index) if line.index in same else line.index

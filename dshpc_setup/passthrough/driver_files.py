"""What an engine without a vendor's toolkit binds into a container: device nodes, and the driver's files.

`driver_search` finds the files. What a driver consists of, its vendor's descriptor says
(`gpu_vendors.DriverFiles`). A library is bound into the folder where Debian's loader looks without an index,
by the name under which programs load it and by its own.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dshpc_setup import gpu_vendors, remedies
from dshpc_setup.facts import HostFacts, State
from dshpc_setup.facts.nvidia_driver import WSL_FOLDER
from dshpc_setup.gpu_vendors import Descriptor
from dshpc_setup.machine import Machine, Say
from dshpc_setup.passthrough import findings
from dshpc_setup.passthrough.driver_search import File, Lack, Search
from dshpc_setup.passthrough.expected import DXG
from dshpc_setup.passthrough.handover import Handover
from dshpc_setup.passthrough.model import Cause
from dshpc_setup.passthrough.wanted import WantedGpus

WSL_DRIVER = posixpath.dirname(WSL_FOLDER)
"""Windows' driver, as WSL shows it."""

_NODES_S = 10.0


@dataclass(frozen=True)
class Node:
    """A device node, and how this user opens it; `group` is the number of the file's group.

    One that opens for reading alone is not opened: where it is there, it is `present`.
    """

    path: str
    state: State  # present | absent | denied | error | timeout
    group: int | None = None


@dataclass(frozen=True)
class DriverFiles:
    """All that was found for the GPUs of a machine."""

    nodes: tuple[Node, ...] = ()
    files: tuple[File, ...] = ()
    missing: tuple[Lack, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def denied(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.state == "denied")

    @property
    def evidence(self) -> Mapping[str, str]:
        """Where in the container -> what told of the file."""
        return {file.target: file.by for file in self.files}


def driver_files(machine: Machine, facts: HostFacts) -> DriverFiles:
    """For all GPUs of the facts. Nodes are opened, within a deadline, and nothing is written."""
    present = {gpu.vendor for gpu in facts.gpus.devices}
    vendors = [each for each in gpu_vendors.all_of_them() if each.name in present]
    if facts.platform.kind == "wsl2":
        return _of_windows(machine, vendors)
    nodes = tuple(path for vendor in vendors for path in _nodes(machine, facts, vendor))
    files: dict[str, File] = {}
    missing: list[Lack] = []
    for vendor in vendors:
        search = Search(machine, facts, vendor)
        missing += search.lacks()
        files |= {file.target: file for file in search.files()}
    return DriverFiles(_opened(machine, nodes), tuple(files.values()), tuple(missing))


def handover(found: DriverFiles, asked: WantedGpus) -> Handover | Cause:
    """The mechanism `devices` for the GPUs of the plan, or what is in its way."""
    wanted = wanted_nodes(asked)
    missing = [lack for lack in found.missing if lack.vendor in asked.vendors]
    if missing:
        return _cause(missing[0], asked.facts)
    denied = [node for node in found.denied if node.path in wanted]
    if denied:
        return _denied(denied, asked.facts)
    more = [path for vendor in sorted(asked.vendors) for path in _more(gpu_vendors.of(vendor))]
    here = [node.path for node in found.nodes if node.path in more and node.state == "present"]
    files = [file for file in found.files if file.vendor in (None, *asked.vendors)]
    return Handover(
        "devices",
        devices=tuple(f"{path}:{path}" for path in dict.fromkeys((*wanted, *here))),
        volumes=tuple(f"{file.source}:{file.target}:ro" for file in files),
        environment=found.environment,
    )


def as_proven(found: DriverFiles | None, asked: WantedGpus, kept: Handover) -> bool:
    """Whether what was proven once would be bound today: a driver's files come, go and move."""
    return found is None or kept.mechanism != "devices" or handover(found, asked) == kept


def wanted_nodes(asked: WantedGpus) -> tuple[str, ...]:
    """The nodes that the GPUs of the plan, or parts of them, are opened by."""
    if asked.wsl:
        return (DXG,)
    nodes: list[str] = []
    for gpu in asked.plan.gpus:
        nodes += (*gpu_vendors.of(gpu.vendor).nodes.shared, *gpu.device_files)
    parts = (path for line in asked.plan.gres for path in line.files)
    return tuple(dict.fromkeys((*nodes, *parts)))


def _cause(lack: Lack, facts: HostFacts) -> Cause:
    if lack.kind == "absent":
        says = f"the driver's {lack.name} was not found on this machine"
        return Cause(findings.LIBRARY_DOES_NOT_LOAD, says, remedies.driver_libraries(facts))
    if lack.kind == "version-mismatch":
        return Cause(
            findings.LIBRARY_OF_ANOTHER_VERSION,
            f"{lack.place} is of driver {lack.version}, and this machine runs {lack.running}",
            remedies.reload_driver(facts),
        )
    if lack.kind == "unreadable":
        says = f"this user may not read {lack.place}"
        return Cause(findings.LIBRARY_DOES_NOT_LOAD, says)
    return Cause(None, f"which files the driver {lack.name} needs in a container is not known")


def _denied(denied: list[Node], facts: HostFacts) -> Cause:
    """An engine that runs as this user opens what he may open, and cannot add groups."""
    words = [
        node.path if node.group is None else f"{node.path} (group {node.group})" for node in denied
    ]
    paths = {node.path for node in denied}
    by_group = any(
        each.nodes.by_group and paths.intersection((*each.nodes.shared, *gpu.device_files))
        for gpu in facts.gpus.devices
        for each in (gpu_vendors.of(gpu.vendor),)
    )
    return Cause(
        findings.AMD_GROUP if by_group else findings.NODE_DENIED,
        f"this user may not open {', '.join(words)}",
        remedies.own_groups(facts, [node.path for node in denied], [node.group for node in denied]),
    )


# -- device nodes -----------------------------------------------------------------------------------


def _more(vendor: Descriptor) -> tuple[str, ...]:
    return () if vendor.driver_files is None else vendor.driver_files.nodes


def _nodes(machine: Machine, facts: HostFacts, vendor: Descriptor) -> tuple[str, ...]:
    nodes: list[str] = [*vendor.nodes.shared, *filter(machine.exists, _more(vendor))]
    for gpu in facts.gpus.devices:
        if gpu.vendor == vendor.name:
            nodes += gpu.device_files
            nodes += (path for part in gpu.mig for path in part.device_files)
    return tuple(dict.fromkeys(nodes))


def _opened(machine: Machine, paths: Iterable[str]) -> tuple[Node, ...]:
    """Each node with how it opens, asked apart: a driver that hangs hangs who opens its nodes."""
    asked = tuple(dict.fromkeys(paths))

    def ask(say: Say) -> None:
        for path in asked:
            say((path, _access(machine, path), machine.group_of(path)))

    told: dict[str, Node] = {}
    if asked:
        items = machine.apart({"nodes": ask}, deadline_s=_NODES_S)["nodes"].items
        told = {path: Node(path, state, group) for path, state, group in items}
    return tuple(told.get(path, Node(path, "timeout")) for path in asked)


def _access(machine: Machine, path: str) -> State:
    patterns = [each.nodes.read_only for each in gpu_vendors.all_of_them()]
    if any(pattern and re.fullmatch(pattern, path) for pattern in patterns):
        return "present" if machine.is_device(path) else "absent"
    return machine.access(path)


# -- WSL 2 ------------------------------------------------------------------------------------------


def _of_windows(machine: Machine, vendors: Iterable[Descriptor]) -> DriverFiles:
    """One node for all GPUs, and the driver of Windows in a folder."""
    environment = {"LD_LIBRARY_PATH": WSL_FOLDER}
    missing: list[Lack] = []
    for vendor in vendors:
        environment |= vendor.wsl_environment
        needed = () if vendor.driver_files is None else vendor.driver_files.needed
        missing += (
            Lack("absent", vendor.name, name)
            for name in needed
            if not machine.exists(f"{WSL_FOLDER}/{name}")
        )
    files = (File(WSL_DRIVER, WSL_DRIVER, WSL_DRIVER),)
    return DriverFiles(_opened(machine, [DXG]), files, tuple(missing), environment)

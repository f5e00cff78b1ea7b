"""One look for AMD GPUs: what was seen so far, and what fills the gaps, one layer after the other."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dshpc_setup import gpu_vendors
from dshpc_setup.facts import GpuDevice
from dshpc_setup.machine import Machine, library
from dshpc_setup.probes import drm, pci
from dshpc_setup.probes.amd import attributes as amd_attributes
from dshpc_setup.probes.amd import broken, kfd
from dshpc_setup.probes.amd import devices as amd_devices
from dshpc_setup.probes.amd import names as amd_names
from dshpc_setup.probes.amd import partitions as amd_partitions
from dshpc_setup.probes.amd import signs as amd_signs
from dshpc_setup.probes.amd import tools as amd_tools
from dshpc_setup.probes.amd.attributes import Layers
from dshpc_setup.probes.platform import in_container
from dshpc_setup.probes.trace import Trace

_PCI_ID = gpu_vendors.of("amd").pci


@dataclass
class Search:
    """What was seen so far, and the second at which it must end."""

    look: Trace
    until: float
    topology: kfd.Topology
    layers: Layers
    container: bool
    tool: str | None = None  # that alone lists the devices
    asked: amd_tools.ToolReport | None = None  # what the tools said, where one was asked
    not_asked: list[tuple[str, str]] = field(default_factory=list)
    listed: dict[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # who was asked -> the cards it has

    @property
    def left_s(self) -> float:
        return max(0.1, self.until - self.look.machine.clock())


def begin(machine: Machine, deadline_s: float) -> Search:
    """The kernel's trees, read."""
    look, until = Trace(machine), machine.clock() + deadline_s
    topology = kfd.fetch(look)
    layers, container = _layers(look, topology), in_container(machine)
    if not container and any(each.counts_errors for each in layers.attributes.values()):
        layers = replace(layers, broken=broken.cards(look))
    return Search(look, until, topology, layers, container)


def _layers(look: Trace, topology: kfd.Topology) -> Layers:
    """The cards on the PCI bus, or where that cannot be seen, in DRM's class."""
    found = [card for card in pci.graphics(look) if card.vendor == _PCI_ID]
    folders = {card.address: f"{pci.ROOT}/{card.address}" for card in found}
    if not found:
        graphics = drm.fetch(look)
        found = list(drm.of_vendor(look, graphics, _PCI_ID))
        folders = {card.key: card.folder for card in graphics.cards.values()}
    cards = {card.address: card for card in found}
    wanted = {node.address for node in topology.nodes if node.address} | set(cards)
    told = {key: amd_attributes.fetch(look, folders[key]) for key in wanted if key in folders}
    return Layers(cards, told)


def named(search: Search, devices: tuple[GpuDevice, ...]) -> tuple[GpuDevice, ...]:
    """With the names that sysfs and libdrm's table have."""
    ids = _ids(search)
    found = []
    for device in devices:
        told = search.layers.of(device.pci_bus_id)
        name = told.product
        if device.name is None and not name:
            table = ids.get(device.pci_bus_id or "")
            name = amd_names.by_table(search.look, table, told.revision)
        found.append(amd_devices.filled(device, name))
    return tuple(found)


def _ids(search: Search) -> dict[str, int]:
    """PCI device ids by the cards' addresses."""
    groups = amd_partitions.by_card(search.topology.nodes, search.layers)
    return {address: group[0].device_id for address, group in groups.items()}


def completed(search: Search, devices: tuple[GpuDevice, ...]) -> tuple[GpuDevice, ...]:
    """With what is still missing, asked of one layer after the other."""
    found = list(devices)
    if all(device.name for device in found):
        search.not_asked.append(("pyrsmi", "not asked: every name is known without it"))
    else:
        names = _names_by_library(search)
        found = [amd_devices.filled(item, names.get(item.pci_bus_id or "")) for item in found]
    if all(device.name and (device.memory_mib or device.partition_of) for device in found):
        search.not_asked.append(("amd-smi, rocm-smi", "not asked: nothing is missing"))
        return tuple(found)
    programs = amd_signs.programs(search.look.machine)
    report = ask_tools(search, programs)
    told_by = {card.address: card for card in report.cards if card.address}
    search.listed[report.tool or "a tool"] = tuple(told_by)
    for number, device in enumerate(found):
        card = told_by.get(device.pci_bus_id or "")
        if card is not None:
            name = amd_devices.name_of(search.look, card)
            filled = amd_devices.filled(device, name, card.memory_bytes)
            version = device.driver_version or card.driver_version
            found[number] = replace(filled, driver_version=version)
    ids = _ids(search)
    series = [amd_names.by_series(ids.get(device.pci_bus_id or "")) for device in found]
    return tuple(map(amd_devices.filled, found, series))


def _names_by_library(search: Search) -> dict[str, str]:
    reply = search.look.machine.amdsmi(search.left_s)
    search.look.saw("amdsmi", reply.state, reply.source, reply.detail)
    found = {}
    for item in library.devices(reply.value):
        if isinstance(item.get("name"), str):
            address = pci.parse_address(item.get("pci_bus_id"))
            if address and item["name"].strip():
                found[address] = item["name"].strip()
    search.listed[reply.source] = tuple(found)
    return found


def ask_tools(search: Search, programs: dict[str, str]) -> amd_tools.ToolReport:
    if not programs:
        search.not_asked.append(("amd-smi, rocm-smi", "neither is installed"))
        return amd_tools.ToolReport("absent", detail="neither is installed")
    search.asked = amd_tools.ask(search.look, programs, search.left_s)
    return search.asked

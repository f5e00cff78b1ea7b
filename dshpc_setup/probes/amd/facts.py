"""A machine with something of AMD's: all layers, and what follows from them."""

from __future__ import annotations

from dataclasses import replace

from dshpc_setup.facts import Because, Disagreement, GpuDevice, Gpus, State, UnusedGpu
from dshpc_setup.machine import Machine
from dshpc_setup.probes import drm, nodes, pci, unseen
from dshpc_setup.probes.amd import devices as amd_devices
from dshpc_setup.probes.amd import kfd
from dshpc_setup.probes.amd import partitions as amd_partitions
from dshpc_setup.probes.amd import signs as amd_signs
from dshpc_setup.probes.amd import tools as amd_tools
from dshpc_setup.probes.amd import unused as amd_unused
from dshpc_setup.probes.amd import words as amd_words
from dshpc_setup.probes.amd.search import Search, ask_tools, begin, completed, named
from dshpc_setup.probes.trace import Found, counted
from dshpc_setup.problems import NO_KFD

_KFD = "/dev/kfd"


def probe(machine: Machine, deadline_s: float) -> Found[Gpus]:
    """See `amd.probe`."""
    search = begin(machine, deadline_s)
    fact = _with_kfd(search) if search.topology.nodes else _without_kfd(search)
    sure = unseen.sure(search.look, fact, container=search.container)
    if sure is not fact:
        search.look.saw("kfd", sure.state, kfd.NODES, sure.detail)
        fact = sure
    amd_words.conclude(search, fact)
    return search.look.found(fact)


def _with_kfd(search: Search) -> Gpus:
    look, layers, listed = search.look, search.layers, search.topology.nodes
    look.saw("kfd", "present", kfd.NODES, counted(len(listed), "GPU node"))
    if search.topology.unreadable:
        look.saw("kfd", "error", kfd.NODES, search.topology.unreadable)
    _saw_drm(search)
    devices = named(search, amd_devices.build(listed, layers))
    kept, unused, left_out = _usable(search, devices)
    kept = completed(search, kept) if kept else ()
    left = amd_unused.Left()
    if not search.container:
        known = set(amd_partitions.by_card(listed, layers))
        rest = [card for card in layers.cards.values() if card.address not in known]
        left = amd_unused.judge(look, rest, kfd=True)
    if left.detail:
        left_out.append(left.detail)
    driver = look.text("/sys/module/amdgpu/version") or None
    shared = () if search.container else (_KFD,)
    kept = tuple(
        replace(
            nodes.marked(look.machine, device, shared),
            driver_version=device.driver_version or driver,
            group_ids=amd_devices.group_ids(look, device),
        )
        for device in kept
    )
    state: State = "present" if kept else "error" if left.wrong else "absent"
    if not kept and search.topology.denied and not search.container:
        state = "denied"
    return Gpus(
        state,
        kept,
        driver_version=driver or next((item.driver_version for item in kept), None),
        detail="; ".join(left_out) or None,
        unused=(*unused, *amd_unused.as_unused(left, layers)),
        disagreements=(
            *(() if search.topology.denied else amd_partitions.short(listed, layers)),
            *amd_unused.disagreements(left),
            *_device_node(search),
            *_held_by_others(search, kept),
            *_strangers(search),
            *nodes.missing(look.machine, kept, "KFD"),
        ),
    )


def _held_by_others(search: Search, devices: tuple[GpuDevice, ...]) -> list[Disagreement]:
    """GPUs of KFD's that the PCI bus does not have, or has with another driver.

    A container may be shown no bus, and no driver of a card; what it is shown counts.
    """
    cards = search.layers.cards
    if search.container and not cards:
        return []
    found = []
    for address in dict.fromkeys(gpu.pci_bus_id for gpu in devices if gpu.pci_bus_id):
        card = cards.get(address)
        if card is not None and card.driver in ("amdgpu", None):
            continue
        says = f"held by {card.driver}" if card is not None else "has no AMD card at that address"
        layers = (Because("KFD", "lists it"), Because(pci.ROOT, says))
        meaning = "the card is changing hands, or one of the two is not this machine's own"
        found.append(Disagreement(address, layers, meaning))
    return found


def _strangers(search: Search) -> list[Disagreement]:
    """Cards that a tool or a library names beside KFD's, at addresses where KFD has none."""
    if search.container:
        return []  # a tool asks the machine's driver, and may list what was not handed over
    known = {address[:-1] for address in search.layers.cards}
    known |= {node.address[:-1] for node in search.topology.nodes if node.address}
    meaning = "names and sizes that it tells are those of other cards, and are not used"
    return [
        Disagreement(
            address,
            (Because(teller, "lists an AMD card there"), Because("KFD", "has no GPU there")),
            meaning,
        )
        for teller, addresses in search.listed.items()
        for address in addresses
        if address[:-1] not in known
    ]


def _usable(
    search: Search, devices: tuple[GpuDevice, ...]
) -> tuple[tuple[GpuDevice, ...], tuple[UnusedGpu, ...], list[str]]:
    """Those that jobs can have, numbered anew, the display adapters, and a sentence for each."""
    machine = search.look.machine
    hidden = search.topology.denied
    kept: list[GpuDevice] = []
    unused: list[UnusedGpu] = []
    left_out: list[str] = []
    for device, node in zip(devices, search.topology.nodes, strict=True):
        handed = machine.is_device(_KFD) and all(
            machine.is_device(path) for path in device.device_files
        )
        size = amd_devices.carve_out_mib(device, node, search.layers)
        if search.container and not handed:
            hidden += 1  # sysfs shows every GPU of the machine, in each of its containers
        elif size is not None and size < amd_unused.INTEGRATED_MIB:
            unused.append(_display(device, size))
        else:
            kept.append(replace(device, index=len(kept)))
    if not kept:
        left_out += [f"the AMD GPU at {item.pci_bus_id} is {item.reason}" for item in unused]
    if hidden and search.container:
        left_out.append(_not_handed(hidden))
    elif hidden:
        left_out.append(f"this process may not use {counted(hidden, 'AMD GPU')} of the machine")
    return tuple(kept), tuple(unused), left_out


def _saw_drm(search: Search) -> None:
    """Partitions but the first have render nodes that belong to no PCI device."""
    found = drm.fetch(search.look)
    told = sum(item.vram_bytes is not None for item in search.layers.attributes.values())
    state: State = "present" if found.cards or found.partitions or told else "absent"
    words = f"memory of {counted(told, 'AMD card')}"
    if found.partitions:
        words += f"; {counted(len(found.partitions), 'render node')} of partitions"
    search.look.saw("drm", state, amd_signs.DRM, words if state == "present" else None)


def _device_node(search: Search) -> tuple[Disagreement, ...]:
    """How /dev/kfd is for this user. Denied counts for nothing: the engine opens it as root."""
    machine = search.look.machine
    access = machine.access(_KFD)
    if access == "denied":
        search.look.saw("kfd-device", "denied", _KFD, "this user is not in the group of /dev/kfd")
    if access != "absent" or search.container:
        return ()
    search.look.saw("kfd-device", "absent", _KFD, "the kernel lists GPUs, but has no device node")
    layers = (Because("KFD", "lists GPUs"), Because("/dev", "there is no kfd"))
    return (Disagreement(_KFD, layers, "udev has not made the device node; jobs need it", NO_KFD),)


def _without_kfd(search: Search) -> Gpus:
    look, layers, topology = search.look, search.layers, search.topology
    cards = tuple(layers.cards.values())
    if topology.unreadable:
        look.saw("kfd", "error", kfd.NODES, topology.unreadable)
    if topology.denied:
        return _denied(search)
    if look.unseen and cards and not search.container:
        found = unseen.denied(look)
        look.saw("kfd", found.state, kfd.NODES, found.detail)
        return found
    programs = amd_signs.programs(look.machine)
    report = ask_tools(search, programs) if programs else amd_tools.ToolReport("absent")
    known = set(layers.cards)
    listed = [card for card in report.cards if card.address not in known]
    left = amd_unused.Left()
    if not search.container:
        left = amd_unused.judge(look, cards, kfd=topology.there)
    if listed:
        return _by_tool(search, amd_devices.of_tools(listed, look), left, report)
    if not programs:
        search.not_asked.append(("amd-smi, rocm-smi", "neither is installed"))
    state, detail = _nothing(search, cards, left, report)
    seen: State = "error" if left.wrong else "absent"
    look.saw("kfd", seen, kfd.NODES, (detail if cards else None) or "no AMD GPU node")
    return Gpus(
        state,
        detail=detail,
        unused=amd_unused.as_unused(left, layers),
        disagreements=amd_unused.disagreements(left),
    )


def _not_handed(count: int) -> str:
    were = "was" if count == 1 else "were"
    return f"{counted(count, 'AMD GPU')} of the machine {were} not handed to this container"


def _denied(search: Search) -> Gpus:
    """Every GPU node is kept from us: in a container that is how GPUs of others look."""
    count, container = search.topology.denied, search.container
    detail = (
        _not_handed(count)
        if container
        else f"this process may not use {counted(count, 'AMD GPU')} of the machine (device cgroup)"
    )
    search.look.saw("kfd", "denied", kfd.NODES, detail)
    return (
        Gpus("absent", detail=detail)
        if container
        else Gpus("denied", detail=detail, causes=("control-group",))
    )


def _by_tool(
    search: Search,
    devices: tuple[GpuDevice, ...],
    left: amd_unused.Left,
    report: amd_tools.ToolReport,
) -> Gpus:
    """What only a tool lists: the kernel's own trees cannot be seen here."""
    look = search.look
    search.tool = report.tool
    look.saw("kfd", "absent", kfd.NODES, f"no AMD GPU node; {report.tool} lists {len(devices)}")
    kept: list[GpuDevice] = []
    unused: list[UnusedGpu] = []
    for device in devices:
        if device.memory_mib is not None and device.memory_mib < amd_unused.INTEGRATED_MIB:
            unused.append(_display(device, device.memory_mib))
            continue
        groups = amd_devices.group_ids(look, device)
        usable = nodes.marked(look.machine, device, (_KFD,))
        kept.append(replace(usable, index=len(kept), group_ids=groups))
    versions = [device.driver_version for device in devices if device.driver_version]
    words = [left.detail]
    if not kept:
        words += [f"the AMD GPU at {item.pci_bus_id} is {item.reason}" for item in unused]
    return Gpus(
        "present" if kept else "absent",
        tuple(kept),
        driver_version=versions[0] if versions else None,
        detail="; ".join(word for word in words if word) or None,
        unused=(*unused, *amd_unused.as_unused(left, search.layers)),
        disagreements=(*_tool_alone(search, len(devices)), *amd_unused.disagreements(left)),
    )


def _tool_alone(search: Search, count: int) -> tuple[Disagreement, ...]:
    """A tool's cards that the kernel does not have."""
    tool = search.tool or "the tool"
    layers = (
        Because(tool, f"lists {counted(count, 'GPU')}"),
        Because("KFD", "has no GPU node"),
        Because(pci.ROOT, "has none of them"),
    )
    meaning = (
        f"{tool} does not speak of this machine's own driver (a stand-in, or another root folder is "
        "read)"
    )
    return (Disagreement("AMD driver", layers, meaning),)


def _display(device: GpuDevice, size_mib: int) -> UnusedGpu:
    reason = f"a display adapter with {size_mib} MiB: not used for jobs"
    return UnusedGpu("amd", reason, device.pci_bus_id, device.name, device.driver, "display")


def _nothing(
    search: Search,
    cards: tuple[pci.PciDevice, ...],
    left: amd_unused.Left,
    report: amd_tools.ToolReport,
) -> tuple[State, str | None]:
    if search.container and cards and search.look.machine.is_device(_KFD):
        return "error", f"this container was handed {_KFD}, and KFD lists no GPU behind it"
    if search.container and cards:
        return "absent", "the machine has an AMD card; none was handed to this container"
    if left.wrong:
        return "error", left.detail
    if cards and all(card.driver in amd_unused.HELD for card in cards):
        return "absent", "every AMD card is handed to virtual machines (vfio-pci)"
    if left.reasons:
        card, reason = left.reasons[0]
        return "absent", f"the AMD card at {card.address} is not used: {reason.text}"
    if search.topology.unreadable:
        return "error", "KFD's tree of GPUs cannot be read"
    if report.state != "absent":
        return report.state, f"{report.tool}: {amd_tools.last_words(report)}"
    return "absent", None

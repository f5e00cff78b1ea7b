"""What lies below NVML: PCI cards, kernel module, device nodes, the library's file, /proc."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from dshpc_setup import gpu_vendors
from dshpc_setup.facts import ModuleKind
from dshpc_setup.facts.nvidia_driver import WSL_FOLDER
from dshpc_setup.machine import Machine
from dshpc_setup.machine.nvml import LIBRARY
from dshpc_setup.probes import loader, pci
from dshpc_setup.probes.nvidia import jetson, wsl
from dshpc_setup.probes.platform import in_container
from dshpc_setup.probes.trace import Trace, whole_number

TOOL = "nvidia-smi"
PROC = "/proc/driver/nvidia"
SYS_VERSION = "/sys/module/nvidia/version"

# The kernel drivers under which a card is NVIDIA's driver's to list.
_VENDOR = gpu_vendors.of("nvidia")
OURS = _VENDOR.modules

_ALIEN_MODULES = ("nouveau", "nova_core", "nvgpu")
_UUID = r"GPU-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"

Flavour = Literal["open", "proprietary"]
_KINDS: Mapping[Flavour | None, ModuleKind] = {
    "open": "nvidia-open",
    "proprietary": "nvidia-proprietary",
}


@dataclass(frozen=True)
class Module:
    """The kernel driver of the NVIDIA cards."""

    name: str | None = None  # nvidia, nouveau, nova_core, nvgpu: the one that is loaded
    sys_version: str | None = None  # as /sys/module has it
    proc_version: str | None = None  # as /proc/driver/nvidia has it
    flavour: Flavour | None = None

    @property
    def version(self) -> str | None:
        return self.sys_version or self.proc_version

    @property
    def kind(self) -> ModuleKind | None:
        """None for none of NVIDIA's own."""
        if self.name != "nvidia":
            return None
        return _KINDS.get(self.flavour, "nvidia")

    @property
    def words(self) -> str:
        if self.name is None:
            return "no driver for NVIDIA cards is loaded"
        if self.name == "nvgpu":
            return "nvgpu, the driver of Tegra boards"
        if self.name != "nvidia":
            return f"{self.name} is loaded, and not NVIDIA's own driver"
        kind = f", {self.flavour} kernel module" if self.flavour else ""
        return f"nvidia {self.version or 'of unknown version'}{kind}"


@dataclass(frozen=True)
class ProcGpu:
    """A card as the kernel driver itself lists it."""

    address: str
    model: str | None = None
    uuid: str | None = None
    minor: int | None = None
    excluded: bool = False

    @property
    def source(self) -> str:
        return f"{PROC}/gpus/{self.address}/information"


@dataclass(frozen=True)
class Layers:
    cards: tuple[pci.PciDevice, ...] = ()
    module: Module = field(default_factory=Module)
    nodes: tuple[str, ...] = ()  # /dev/nvidia0, ... that are device nodes
    control: bool = False  # /dev/nvidiactl
    switches: bool = False  # /dev/nvidia-nvswitch*: GPUs behind NVSwitches
    library: str | None = None  # where the loader will find it
    library_version: str | None = None  # of its file's name
    tool: str | None = None  # nvidia-smi, looked for only where nothing else is there
    container: bool = False
    wsl: wsl.Wsl | None = None
    board: jetson.Board | None = None
    listed: Mapping[str, ProcGpu] = field(default_factory=dict)  # /proc, by address; read late

    @property
    def dxg(self) -> bool:
        return self.wsl is not None and self.wsl.dxg

    @property
    def kernel(self) -> bool:
        """Whether this kernel has an NVIDIA card or driver: a container's kernel is the host's."""
        return bool(self.cards or self.module.version or self.dxg or self.board)

    @property
    def handed_over(self) -> bool:
        """Whether GPUs are here only as far as their device nodes are: in a container of a host
        that has them.
        """
        return self.container and self.kernel and not self.dxg

    @property
    def any(self) -> bool:
        """Whether anything at all says that there may be a GPU.

        /sys and /proc of a container show the whole machine, whatever was handed over.
        """
        if self.nodes or self.control or self.dxg or self.library or self.tool:
            return True
        if self.board is not None and (self.board.nodes or not self.container):
            return True
        return self.kernel and not self.container

    def on_bus(self, address: str | None) -> pci.PciDevice | None:
        return next((card for card in self.cards if card.address == address), None)


def fetch(look: Trace) -> Layers:
    """All but /proc's list of cards, cheapest first: each start of a container does this."""
    machine = look.machine
    names = machine.listdir("/dev")
    numbers = (name.removeprefix("nvidia") for name in names if name.startswith("nvidia"))
    nodes = (f"/dev/nvidia{each}" for each in numbers if re.fullmatch(r"[0-9]{1,4}", each))
    real = machine.simulated is None  # what surrounds made-up GPUs is not theirs
    container = in_container(machine)
    cache = machine.read(loader.INDEX).text or ""
    cached = library_paths(cache)
    folders = loader.folders(machine.system[2]) if real else ()
    library = _library(machine, cache, cached, folders)
    layers = Layers(
        cards=tuple(card for card in pci.graphics(look) if card.vendor == _VENDOR.pci),
        module=_module(look),
        nodes=tuple(node for node in nodes if machine.is_device(node)),
        control="nvidiactl" in names,
        switches=any(name.startswith("nvidia-nvswitch") for name in names),
        library=library,
        library_version=_version_of(machine.readlink(library)) if library else None,
        container=container,
        wsl=wsl.look_at(look, cached, folders, container=container) if real else None,
        board=jetson.board(look) if real else None,
    )
    if not layers.any and not (layers.container and layers.kernel):
        layers = replace(layers, tool=machine.which(TOOL))
    return layers


def tool(machine: Machine, layers: Layers) -> str | None:
    """nvidia-smi's path; WSL has it outside the PATH of many."""
    found = layers.tool or machine.which(TOOL)
    if found is None and layers.wsl is not None and TOOL in layers.wsl.lent:
        found = f"{WSL_FOLDER}/{TOOL}"
    return found


def library_paths(index: str) -> tuple[str, ...]:
    """NVIDIA's two libraries in the text of the loader's index."""
    return loader.indexed(index, ("libnvidia-ml.so.1", "libcuda.so.1"))


def _library(
    machine: Machine, cache: str, cached: tuple[str, ...], folders: tuple[str, ...]
) -> str | None:
    """Where the loader will find NVML, in its own order."""
    given = [item.rstrip("/") for item in machine.env.get("LD_LIBRARY_PATH", "").split(":") if item]
    for folder in given:
        if machine.exists(f"{folder}/{LIBRARY}"):
            return f"{folder}/{LIBRARY}"
    for path in cached:
        if path.endswith(LIBRARY):
            return path
    if LIBRARY in cache:
        return loader.INDEX
    beside = (f"{folder}/{LIBRARY}" for folder in folders)
    return next((path for path in beside if machine.exists(path)), None)


def _version_of(target: str | None) -> str | None:
    """libnvidia-ml.so.550.54.15 -> 550.54.15."""
    match = re.search(r"\.so\.(\d{3,4}(?:\.\d{1,4}){1,2})$", target or "", re.ASCII)
    return match[1] if match else None


def _module(look: Trace) -> Module:
    sys_version = (look.text(SYS_VERSION) or "")[:64] or None
    proc_version, flavour = parse_banner(look.text(f"{PROC}/version") or "")
    if sys_version or proc_version:
        return Module("nvidia", sys_version, proc_version, flavour)
    machine = look.machine
    loaded = (name for name in _ALIEN_MODULES if machine.exists(f"/sys/module/{name}"))
    return Module(next(loaded, None))


def parse_banner(text: str) -> tuple[str | None, Flavour | None]:
    """Version and flavour of "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65 ..."."""
    line = next((line for line in text.splitlines() if "NVRM version" in line), "")[:400]
    match = re.search(r"\s(\d{3,4}\.\d{1,4}(?:\.\d{1,4})?)(?:\s|$)", line, re.ASCII)
    if match is None:
        return None, None
    return match[1], "open" if "Open Kernel Module" in line else "proprietary"


def read_proc(look: Trace) -> dict[str, ProcGpu]:
    """/proc/driver/nvidia/gpus, with its evidence."""
    found: dict[str, ProcGpu] = {}
    unread = []
    for entry in look.machine.listdir(f"{PROC}/gpus"):
        address = pci.parse_address(entry)
        if address is None:
            continue
        read = look.machine.read(f"{PROC}/gpus/{entry}/information")
        if read.text is None:
            unread.append(f"{entry}: {read.state}")
            continue
        found[address] = parse_information(address, read.text)
    names = [f"{gpu.address}: {gpu.model or 'unknown model'}" for gpu in found.values()]
    state: Literal["present", "denied", "absent"]
    state = "present" if found else "denied" if unread else "absent"
    look.saw("nvidia-proc", state, f"{PROC}/gpus", ", ".join(names + unread) or None)
    return found


def parse_information(address: str, text: str) -> ProcGpu:
    """Lines "Model: \\t\\t Tesla T4"; the UUID of a card that never came up is question marks."""
    values: dict[str, str] = {}
    for line in text[:10_000].splitlines():
        key, colon, value = line.partition(":")
        if colon:
            values.setdefault(key.strip(), value.strip())
    minor = whole_number(values.get("Device Minor"))
    uuid = values.get("GPU UUID", "")
    return ProcGpu(
        address,
        model=values.get("Model") or None,
        uuid=uuid if re.fullmatch(_UUID, uuid) else None,
        minor=minor if minor is not None and 0 <= minor < 1 << 20 else None,
        excluded="Yes" in (values.get("GPU Excluded"), values.get("Blacklisted")),
    )


def same_version(one: str | None, other: str | None) -> bool:
    """Whether two driver versions are the same, or cannot be compared."""
    pair = [
        re.fullmatch(r"\d{3,4}(?:\.\d{1,4}){1,2}", text or "", re.ASCII) for text in (one, other)
    ]
    return None in pair or one == other

"""Jetson and other Tegra boards: the GPU is part of the processor, on no bus, with no card's memory.

Its driver is nvgpu. NVML knows the GPU from JetPack 6 on and refuses most questions; before that
there is no NVML at all, and the board's own files are the only ones that tell of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dshpc_setup.facts import GpuDevice
from dshpc_setup.machine import Machine
from dshpc_setup.probes.trace import Trace

DEVICE_TREES = ("/proc/device-tree", "/sys/firmware/devicetree/base")
RELEASE = "/etc/nv_tegra_release"
_SOC = "/sys/devices/soc0"


@dataclass(frozen=True)
class _Model:
    name: str
    slurm_type: str
    compute: str


# Tegra with a GPU that runs CUDA: by the device tree's name, and by the chip's number in
# /sys/devices/soc0/soc_id, which a container sees as well.
_MODELS = {
    "tegra124": _Model("Tegra K1", "tk1", "3.2"),
    "tegra132": _Model("Tegra K1", "tk1", "3.2"),
    "tegra210": _Model("Tegra X1", "tx1", "5.3"),
    "tegra186": _Model("Tegra X2", "tx2", "6.2"),
    "tegra194": _Model("Xavier", "xavier", "7.2"),
    "tegra234": _Model("Orin", "orin", "8.7"),
    "tegra264": _Model("Thor", "thor", "11.0"),
}
_BY_CHIP = {
    64: "tegra124", 19: "tegra132", 33: "tegra210", 24: "tegra186", 25: "tegra194",
    35: "tegra234", 38: "tegra264",
}  # fmt: skip
_WITHOUT_CUDA = ("tegra20", "tegra30", "tegra114")

# What CUDA opens beside the GPU's own nodes: memory, synchronisation, the display driver's clients.
_BESIDE = ("host1x-fence", "nvhost-ctrl", "nvmap")
# Without one of these CUDA does not start: its memory, and of the GPU's own nodes three.
MEMORY = "/dev/nvmap"
_NEEDED = (("ctrl", "as", "channel"), ("nvhost-ctrl-gpu", "nvhost-as-gpu", "nvhost-gpu"))
_OLD_NODES = r"nvhost-(?:[a-z_]{1,20}-){0,3}gpu"


@dataclass(frozen=True)
class Board:
    """A Tegra board; `nodes` is empty where the GPU's driver has none that work."""

    soc: str | None  # "tegra234"
    source: str  # which file told
    model: str | None = None  # "NVIDIA Jetson AGX Orin Developer Kit"
    release: str | None = None  # of Jetson Linux: "R36.4.3"
    nodes: tuple[str, ...] = ()
    stray: tuple[str, ...] = ()  # nodes of nvgpu that are there though no GPU answers behind them

    @property
    def name(self) -> str:
        known = _MODELS.get(self.soc or "")
        return known.name if known else "Tegra"

    @property
    def slurm_type(self) -> str:
        known = _MODELS.get(self.soc or "")
        if self.soc == "tegra210" and "nano" in (self.model or "").lower():
            return "nano"  # the same chip as the TX1's
        return known.slurm_type if known else "tegra"

    @property
    def compute(self) -> str | None:
        known = _MODELS.get(self.soc or "")
        return known.compute if known else None

    @property
    def words(self) -> str:
        """ "NVIDIA Jetson AGX Orin Developer Kit, tegra234, Jetson Linux R36.4.3" """
        release = f"Jetson Linux {self.release}" if self.release else None
        return ", ".join(part for part in (self.model, self.soc, release) if part) or "a Tegra"

    def owns(self, name: str | None, on_bus: bool) -> bool:
        """Whether a GPU of NVML's list is the board's own, and no card in its slot."""
        return not on_bus or bool(re.search(r"nvgpu|tegra|orin|xavier|thor", name or "", re.I))

    def device(self, index: int, group_ids: tuple[int, ...]) -> GpuDevice:
        """The GPU where nobody but the board tells of it."""
        return GpuDevice(
            index,
            "nvidia",
            name=self.name,
            compute=self.compute,
            slurm_type=self.slurm_type,
            device_files=self.nodes,
            driver="nvgpu",
            group_ids=group_ids,
            unified_memory=True,
        )


def board(look: Trace) -> Board | None:
    """The board, if this is a Tegra that can have a CUDA GPU."""
    soc, source, model = None, "", None
    for tree in DEVICE_TREES:
        soc = soc_of(look.text(f"{tree}/compatible") or "")
        if soc is not None:
            source = f"{tree}/compatible"
            model = (look.text(f"{tree}/model") or "").replace("\0", "").strip() or None
            break
    release = parse_release(look.text(RELEASE) or "")
    if soc is None:
        family = (look.text(f"{_SOC}/family") or "").lower()
        if "tegra" in family:
            soc, source = _BY_CHIP.get(look.number(f"{_SOC}/soc_id") or 0), f"{_SOC}/family"
        elif release:
            source = RELEASE
        else:
            return None
    if soc in _WITHOUT_CUDA:
        return None
    nodes, stray = _nodes(look.machine)
    return Board(soc, source, model, release, nodes, stray)


def soc_of(compatible: str) -> str | None:
    """ "nvidia,p3737-0000+p3701-0000\\0nvidia,tegra234\\0" -> "tegra234"."""
    found = re.search(r"(?:^|[\0\s])nvidia,(tegra\d{2,4})(?=[\0\s]|$)", compatible, re.ASCII)
    return found[1] if found else None


def parse_release(text: str) -> str | None:
    """ "# R36 (release), REVISION: 4.3, GCID: ..." -> "R36.4.3"."""
    found = re.match(
        r"#?\s{0,9}R(\d{1,4})\s{0,9}\(release\),\s{0,9}REVISION:\s{0,9}(\d{1,4}(?:\.\d{1,4}){0,3})",
        text,
        re.ASCII,
    )
    return f"R{found[1]}.{found[2]}" if found else None


def _nodes(machine: Machine) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Every node that CUDA needs, and those of nvgpu where the GPU itself did not come up.

    A GPU whose firmware did not start leaves a folder with `power` alone in it.
    """
    names = machine.listdir("/dev")
    own = [
        f"/dev/nvgpu/{folder}/{name}"
        for folder in (machine.listdir("/dev/nvgpu") if "nvgpu" in names else ())
        if folder.startswith("igpu")
        for name in machine.listdir(f"/dev/nvgpu/{folder}")
    ]
    own += [
        f"/dev/{name}"
        for name in names
        if name.startswith("nvhost-") and re.fullmatch(_OLD_NODES, name)
    ]
    own = [path for path in own if machine.is_device(path)]
    there = {path.rpartition("/")[2] for path in own}
    complete = any(there.issuperset(needed) for needed in _NEEDED)
    if not complete or not machine.is_device(MEMORY):
        return (), tuple(own)
    beside = [f"/dev/{name}" for name in names if name in _BESIDE]
    render = (name for name in machine.listdir("/dev/dri") if name.startswith("renderD"))
    beside += [f"/dev/dri/{name}" for name in render]
    return (*own, *(path for path in beside if machine.is_device(path))), ()

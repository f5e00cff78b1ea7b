"""NVIDIA GPUs: PCI, kernel module, device nodes and NVML, put together by PCI address.

NVML lists the devices. `nvidia-smi` is asked only where NVML's library cannot be: it sits on the
same library, so where NVML refuses it refuses too, and where NVML hangs it hangs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from dshpc_setup.facts import GpuDevice, Gpus, State
from dshpc_setup.machine import Machine, Reply
from dshpc_setup.probes import nvidia_devices, nvidia_smi, pci
from dshpc_setup.probes.look import Found, Look
from dshpc_setup.probes.platform import in_container

_LIBRARY = "libnvidia-ml.so.1"
_WSL_FOLDER = "/usr/lib/wsl/lib"

# NVML's codes (nvmlReturn_t) in the words of somebody who wants to know what is wrong.
_REASONS = {
    4: "NVML may not be used by this user or container (no permission)",
    9: "the NVIDIA driver is not loaded",
    12: f"NVIDIA's library {_LIBRARY} is not there",
    15: "a GPU has fallen off the bus",
    16: "a GPU needs a reset",
    17: "the operating system blocks the GPUs (is the device node readable?)",
    18: "the driver in the kernel and NVIDIA's library are of different versions (reboot?)",
    999: "the NVIDIA driver answers with an unknown error",
}


@dataclass(frozen=True)
class Hints:
    """What, beside NVML, says that there may be a GPU."""

    cards: tuple[pci.PciDevice, ...]
    nodes: tuple[str, ...]  # /dev/nvidia0, ... that are device nodes
    control: bool  # /dev/nvidiactl
    driver: str | None  # version of the loaded module
    dxg: bool  # WSL2's device
    library: bool  # on the loader's path
    container: bool

    @property
    def any(self) -> bool:
        here = bool(self.nodes) or self.control or self.dxg or self.library
        if self.container:
            # /sys and /proc of a container show the whole machine, whatever was handed over.
            return here
        return here or bool(self.cards) or self.driver is not None


def probe(machine: Machine, deadline_s: float) -> Found[Gpus]:
    """NVIDIA's GPUs, and why there is none; only `absent` means that there are zero."""
    look, started = Look(machine), machine.clock()
    hints = fetch_hints(look)
    if not hints.any:
        detail = None
        if hints.container and (hints.cards or hints.driver):
            detail = "the machine has an NVIDIA card; none was handed to this container"
        nothing = "no NVIDIA card on the PCI bus, no driver, no device node"
        look.saw("nvidia", "absent", pci.ROOT, detail or nothing)
        return look.found(Gpus("absent", detail=detail))
    saw_cards: State = "present" if hints.cards else "absent"
    look.saw("nvidia-pci", saw_cards, pci.ROOT, _drivers(hints.cards))
    reply = machine.nvml(deadline_s)
    look.saw("nvml", reply.state, reply.source or _LIBRARY, reply.detail)
    if reply.state not in ("present", "timeout") and reply.code in (None, 12, 13):
        left_s = max(0.1, started + deadline_s - machine.clock())
        reply = _ask_smi(look, hints, left_s) or reply
    if reply.state == "present":
        return look.found(_listed(look, hints, reply))
    state, detail = conclude(hints, reply)
    return look.found(Gpus(state, driver_version=hints.driver, detail=detail))


def fetch_hints(look: Look) -> Hints:
    machine = look.machine
    names = machine.listdir("/dev")
    nodes = (f"/dev/{name}" for name in names if re.fullmatch(r"nvidia\d{1,4}", name, re.ASCII))
    return Hints(
        cards=tuple(card for card in pci.graphics(look) if card.vendor == pci.NVIDIA),
        nodes=tuple(node for node in nodes if machine.is_device(node)),
        control="nvidiactl" in names,
        driver=_module_version(look),
        dxg="dxg" in names,
        library=_library_on_path(look),
        container=in_container(machine),
    )


def conclude(hints: Hints, reply: Reply) -> tuple[State, str]:
    """State and sentence where no layer lists the GPUs. Only what is surely nothing is `absent`."""
    cards = hints.cards
    reason = _REASONS.get(reply.code or 0) or reply.detail or "NVML did not answer"
    there = bool(cards) or bool(hints.nodes)
    if reply.state == "timeout":
        return "timeout", f"NVML gave {reason}: the driver may hang"
    if cards and all(card.driver == "vfio-pci" for card in cards):
        return "absent", "every NVIDIA card is handed to virtual machines (vfio-pci)"
    if cards and not hints.container and any(card.driver == "nouveau" for card in cards):
        return "error", "the nouveau driver holds the NVIDIA card; NVIDIA's own is needed"
    if not there and reply.code in (9, 12) and not (hints.driver and hints.control):
        return "absent", f"no NVIDIA card is visible, and {reason}"
    if reply.state == "denied":
        return "denied", reason
    return "error", reason if not there else f"there is an NVIDIA card, but {reason}"


def _listed(look: Look, hints: Hints, reply: Reply) -> Gpus:
    value = reply.value if isinstance(reply.value, dict) else {}
    devices = nvidia_devices.build(look, hints.cards, value, wsl=hints.dxg and not hints.nodes)
    hidden = 0
    if hints.container and not hints.dxg:
        visible = [seen for device in devices if (seen := _visible(look.machine, device))]
        hidden = len(devices) - len(visible)
        devices = tuple(visible)
    version = nvidia_devices.text(value.get("driver_version")) or hints.driver
    cuda = nvidia_devices.cuda_version(value.get("cuda_version"))
    if devices:
        return Gpus("present", devices, driver_version=version, cuda_version=cuda)
    held = [card for card in hints.cards if card.driver == "vfio-pci"]
    if hints.cards and len(held) < len(hints.cards) and not hints.container:
        detail = "NVML lists no GPU, though there is an NVIDIA card on the PCI bus"
        return Gpus("error", driver_version=version, cuda_version=cuda, detail=detail)
    detail = "NVML lists no GPU"
    if hidden:
        detail = f"NVML lists {hidden} GPU(s); no device node of them is in this container"
    return Gpus("absent", driver_version=version, cuda_version=cuda, detail=detail)


def _visible(machine: Machine, device: GpuDevice) -> GpuDevice | None:
    """The device as this container may use it; None where its node was not handed over."""
    if device.mig_mode != "enabled":
        seen = all(machine.is_device(path) for path in device.device_files)
        return device if seen else None
    if not device.device_files or not machine.is_device(device.device_files[0]):
        return None
    instances = tuple(
        item for item in device.mig if all(machine.is_device(path) for path in item.device_files)
    )
    return replace(device, mig=instances)


def _ask_smi(look: Look, hints: Hints, deadline_s: float) -> Reply | None:
    """nvidia-smi's list, in NVML's shape; None where it has none."""
    machine = look.machine
    program = machine.which("nvidia-smi")
    if program is None and hints.dxg and machine.exists(f"{_WSL_FOLDER}/nvidia-smi"):
        program = f"{_WSL_FOLDER}/nvidia-smi"
    if program is None:
        return None
    result = machine.run([program, *nvidia_smi.ARGUMENTS], deadline_s=deadline_s)
    if result.state == "timeout":
        look.saw("nvidia-smi", "timeout", program, "no answer before its deadline")
        return Reply("timeout", None, program, f"no answer within {deadline_s:g} s")
    value = nvidia_smi.parse(result.stdout) if result.ok else None
    if value is None:
        look.saw("nvidia-smi", "error", program, result.text[:500] or "it printed nothing")
        return None
    look.saw("nvidia-smi", "present", program)
    return Reply("present", value, program)


def _module_version(look: Look) -> str | None:
    version = look.text("/sys/module/nvidia/version")
    if version:
        return version
    banner = look.text("/proc/driver/nvidia/version") or ""
    match = re.search(r"\b(\d{3,4}\.\d{1,4}(?:\.\d{1,4})?)\b", banner, re.ASCII)
    return match[1] if match else None


def _library_on_path(look: Look) -> bool:
    """Cheaper than a process that finds out: the loader's own index, and LD_LIBRARY_PATH."""
    folders = [item for item in look.machine.env.get("LD_LIBRARY_PATH", "").split(":") if item]
    if any(look.machine.exists(f"{folder.rstrip('/')}/{_LIBRARY}") for folder in folders):
        return True
    return _LIBRARY in (look.text("/etc/ld.so.cache") or "")


def _drivers(cards: tuple[pci.PciDevice, ...]) -> str | None:
    return ", ".join(f"{card.address}: {card.driver or 'no driver'}" for card in cards) or None

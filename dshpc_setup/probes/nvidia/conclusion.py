"""What the layers' words come to: whether there are NVIDIA GPUs, and why none where there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from dshpc_setup.facts import GpuDevice, Gpus, GpusCause, State
from dshpc_setup.facts.nvidia_driver import OLDEST_DRIVER, WSL_FOLDER, too_old
from dshpc_setup.machine import Reply
from dshpc_setup.machine.nvml import LIBRARY
from dshpc_setup.probes.nvidia import devices as nvidia_devices
from dshpc_setup.probes.nvidia import reconcile as nvidia_reconcile
from dshpc_setup.probes.nvidia.layers import OURS, Layers
from dshpc_setup.probes.nvidia.reconcile import GpuList
from dshpc_setup.probes.nvidia.values import text
from dshpc_setup.probes.trace import counted

# NVML's codes (nvmlReturn_t) in the words of somebody who wants to know what is wrong.
_REASONS = {
    4: "NVML may not be used by this user or container (no permission)",
    9: "the NVIDIA driver is not loaded",
    12: f"NVIDIA's library {LIBRARY} is not there",
    15: "a GPU has fallen off the bus",
    16: "a GPU needs a reset",
    17: "the operating system blocks the GPUs (is the device node readable?)",
    18: "the driver in the kernel and NVIDIA's library are of different versions (reboot?)",
    999: "the NVIDIA driver answers with an unknown error",
}


class _NoneListed(NamedTuple):
    state: State
    why: str
    causes: tuple[GpusCause, ...] = ()


def concluded(
    layers: Layers,
    devices: tuple[GpuDevice, ...],
    gpu_list: GpuList | None,
    failed: Reply,
    hidden: int,
) -> Gpus:
    value: Mapping[str, Any] = gpu_list.value if gpu_list else {}
    version = text(value.get("driver_version")) or layers.module.version
    cuda = nvidia_devices.cuda_version(value.get("cuda_version"))
    state: State = "present"
    details = []
    causes: tuple[GpusCause, ...] = ()
    if gpu_list is not None and gpu_list.cut is not None:
        details.append(_cut_short(layers, gpu_list, len(devices)))
    if not devices:
        uncounted = _uncounted(value)
        if gpu_list is None or gpu_list.cut is not None:
            state, why, causes = _none_listed(layers, failed)
        elif uncounted is not None:
            state, why, causes = _none_listed(layers, replace(failed, code=uncounted))
        else:
            state, why = _lists_none(layers, hidden, gpu_list.teller)
        details.append(why)
    if too_old(version):
        details.append(
            f"the NVIDIA driver {version} is too old: {OLDEST_DRIVER} or newer is needed for containers"
        )
    if layers.wsl is not None and layers.wsl.intruders:
        details.append(
            "a Linux NVIDIA driver was installed inside WSL, where the one of Windows alone works: "
            + ", ".join(layers.wsl.intruders)
        )
    detail = "; ".join(details) or None
    return Gpus(
        state,
        devices,
        driver_version=version,
        cuda_version=cuda,
        detail=detail,
        complete=gpu_list is None or gpu_list.cut is None,
        causes=causes,
    )


def _cut_short(layers: Layers, gpu_list: GpuList, number: int) -> str:
    expected = nvidia_reconcile.expected_count(layers, gpu_list)
    how = nvidia_reconcile.how_cut(gpu_list)
    if expected is None:
        return f"{gpu_list.teller} {how} after {counted(number, 'GPU')}: there may be more"
    missing = max(0, expected - number)
    more = "1 more is" if missing == 1 else f"{missing} more are"
    return f"{gpu_list.teller} {how} after {number} of {expected} GPUs: {more} not known"


def _uncounted(value: Mapping[str, Any]) -> int | None:
    """NVML's code where it refused to say how many there are: an empty list is no zero then."""
    errors = value.get("errors")
    code = errors.get("count") if isinstance(errors, dict) else None
    return code if isinstance(code, int) else None


def _lists_none(layers: Layers, hidden: int, teller: str) -> tuple[State, str]:
    if layers.wsl is not None and layers.dxg and LIBRARY in layers.wsl.lent:
        return "error", f"Windows lends an NVIDIA GPU, but {teller} lists none"
    if layers.container and layers.nodes:
        named = ", ".join(layers.nodes)
        return "error", f"this container was handed {named}, and {teller} lists no GPU behind it"
    ours = [card for card in layers.cards if card.driver != "vfio-pci"]
    excluded = [gpu.address for gpu in layers.listed.values() if gpu.excluded]
    if hidden:
        return "absent", (
            f"{teller} lists {counted(hidden, 'GPU')}; this container has no device node of "
            f"{'it' if hidden == 1 else 'them'}"
        )
    if ours and not layers.container:
        if {card.address for card in ours} <= set(excluded):
            return "absent", "a setting of the driver excludes every NVIDIA card"
        return "error", f"{teller} lists no GPU, though there is an NVIDIA card on the PCI bus"
    return "absent", f"{teller} lists no GPU"


def _reason(layers: Layers, reply: Reply) -> str:
    """Why NVML or nvidia-smi lists nothing."""
    if reply.code == 12 and layers.library is not None:
        return f"NVIDIA's library {layers.library} cannot be loaded"
    if reply.code == 9 and layers.module.name == "nvidia":
        return "the NVIDIA driver is loaded and cannot be reached (are its device nodes there?)"
    return _REASONS.get(reply.code or 0) or reply.detail or "NVML did not answer"


def _none_listed(layers: Layers, reply: Reply) -> _NoneListed:
    """State, sentence and cause where no layer lists the GPUs. Only what is surely nothing is `absent`."""
    cards = layers.cards
    reason = _reason(layers, reply)
    there = bool(cards) or bool(layers.nodes)
    if reply.state == "timeout":
        return _NoneListed(
            "timeout", f"{nvidia_reconcile.teller_of(reply)} gave {reason}: the driver may hang"
        )
    if layers.wsl is not None and not layers.wsl.dxg and not there:
        return _NoneListed("absent", layers.wsl.missing)
    if layers.wsl is not None and layers.wsl.intruders:
        return _NoneListed("error", f"Windows lends a GPU, but {reason}")
    if layers.wsl is not None and LIBRARY in layers.wsl.lent:
        return _NoneListed(
            "error", f"Windows lends a GPU, but {reason}; `wsl --shutdown` there may help"
        )
    if layers.wsl is not None and layers.wsl.dxg and not there and reply.code in (9, 12):
        return _NoneListed(
            "absent",
            f"Windows lends no NVIDIA GPU: {LIBRARY} is not in {WSL_FOLDER}; GPUs of other makers "
            "are not looked for in WSL",
        )
    if cards and all(card.driver == "vfio-pci" for card in cards):
        return _NoneListed("absent", "every NVIDIA card is handed to virtual machines (vfio-pci)")
    if layers.board is not None and not there:
        return _without_nvgpu(layers)
    drivers = {card.driver for card in cards}
    if not layers.container and "nouveau" in drivers and not drivers & set(OURS):
        return _NoneListed(
            "error", "the nouveau driver holds the NVIDIA card; NVIDIA's own is needed"
        )
    if not there and reply.code in (9, 12) and not (layers.module.version and layers.control):
        return _NoneListed("absent", f"no NVIDIA card is visible, and {reason}")
    if reply.state == "denied":
        return _NoneListed("denied", reason)
    return _NoneListed("error", reason if not there else f"there is an NVIDIA card, but {reason}")


def _without_nvgpu(layers: Layers) -> _NoneListed:
    board = layers.board
    assert board is not None
    what = f"this is a Tegra board ({board.words})"
    if layers.container:
        return _NoneListed("absent", f"{what}; no device node of its GPU is in this container")
    if board.stray:
        return _NoneListed(
            "error",
            f"{what}, and its GPU did not start: nvgpu has {', '.join(board.stray)} and no node to "
            "compute with; `dmesg` has the reason, switching the power off and on often helps",
            ("not-started",),
        )
    return _NoneListed(
        "error", f"{what}, and its GPU's driver nvgpu has no device node: is it loaded?"
    )

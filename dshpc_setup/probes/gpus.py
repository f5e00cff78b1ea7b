"""The vendors' answers, put together into one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dshpc_setup.facts import Gpus, Platform, State

# Which failure says most about the machine, where no GPU can be listed.
_WORST: tuple[State, ...] = ("timeout", "denied", "error", "unsupported", "absent")

_NOTHING = "there is no GPU of NVIDIA, AMD or Intel"
_APPLE_SILICON = (
    "containers on a Mac run in a virtual machine that the GPU does not reach, and Apple's Metal "
    "is neither CUDA nor ROCm"
)
_APPLE_INTEL = "Docker Desktop on a Mac does not hand GPUs to containers"


def unsupported(platform: Platform) -> Gpus | None:
    """Where no GPU can ever reach a container, whatever the machine has."""
    if platform.kind == "macos":
        detail = _APPLE_INTEL if platform.arch == "x86_64" else _APPLE_SILICON
        return Gpus("unsupported", detail=detail)
    if platform.kind == "wsl1":
        detail = "WSL 1 has no access to GPUs; `wsl --set-version <distribution> 2` converts it"
        return Gpus("unsupported", detail=detail)
    return None


def merge(answers: Sequence[Gpus], *, simulated: bool) -> Gpus:
    """All devices, numbered through: NVIDIA's first, as NVML has them.

    One vendor's failure does not hide another's GPUs, and is told in `detail`.
    """
    devices = [device for answer in answers for device in answer.devices]
    if len({device.vendor for device in devices}) > 1:
        devices = [replace(device, index=index) for index, device in enumerate(devices)]
    versions = [answer.driver_version for answer in answers if answer.driver_version]
    cuda = [answer.cuda_version for answer in answers if answer.cuda_version]
    told = [answer for answer in answers if answer.state not in ("present", "absent")]
    state: State
    if devices:
        state = "present"
        told += [answer for answer in answers if answer.state == "present"]
    else:
        state = min((answer.state for answer in answers), key=_rank, default="absent")
        told = told or list(answers)
    details = [answer.detail for answer in told if answer.detail]
    return Gpus(
        state,
        tuple(devices),
        simulated=simulated,
        driver_version=versions[0] if versions else None,
        cuda_version=cuda[0] if cuda else None,
        detail="; ".join(dict.fromkeys(details)) or (None if devices else _NOTHING),
    )


def _rank(state: State) -> int:
    return _WORST.index(state) if state in _WORST else len(_WORST)

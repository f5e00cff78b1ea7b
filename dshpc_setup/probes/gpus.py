"""The vendors' answers, put together into one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from dshpc_setup import gpu_vendors
from dshpc_setup.facts import Because, Conclusion, Gpus, Platform, State, Vendor
from dshpc_setup.probes.trace import counted

# Which failure says most about the machine, where no GPU can be listed.
_WORST: tuple[State, ...] = ("timeout", "denied", "error", "unsupported", "absent")

_APPLE_SILICON = (
    "Docker on a Mac runs containers in a Linux virtual machine, and Apple's hypervisor shows no GPU "
    "to it; besides, the GPU of Apple Silicon speaks Metal, which is neither CUDA nor ROCm"
)
_APPLE_INTEL = (
    "Docker Desktop on a Mac runs containers in a Linux virtual machine, and macOS hands the PCI "
    "device of no AMD, NVIDIA or Intel GPU over to it"
)
_APPLE_INSTEAD = (
    "GPU work can run on a Linux server with a GPU, on a rented one in a cloud, or on macOS itself "
    "with Metal, outside of Docker"
)
_WSL1 = (
    "WSL 1 has no access to GPUs; `wsl --set-version <distribution> 2` in Windows converts the "
    "distribution to WSL 2, which has"
)


def unsupported(platform: Platform) -> Gpus | None:
    """Where no GPU can ever reach a container, whatever the machine has."""
    if platform.kind == "macos":
        reason = _APPLE_INTEL if platform.arch == "x86_64" else _APPLE_SILICON
        return Gpus("unsupported", detail=f"{reason}. {_APPLE_INSTEAD}")
    if platform.kind == "wsl1":
        return Gpus("unsupported", detail=_WSL1)
    return None


def merge(answers: Sequence[Gpus], *, simulated: bool) -> Gpus:
    """All devices, numbered through where they are of several vendors, NVIDIA's first.

    One vendor's failure does not hide another's GPUs, and is told in `detail`.
    """
    devices = [device for answer in answers for device in answer.devices]
    if len({device.index for device in devices}) < len(devices):  # each vendor has a first one
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
        detail="; ".join(dict.fromkeys(details)) or (None if devices else _nothing()),
        unused=tuple(item for answer in answers for item in answer.unused),
        disagreements=tuple(item for answer in answers for item in answer.disagreements),
        causes=tuple(dict.fromkeys(item for answer in told for item in answer.causes)),
        complete=all(answer.complete for answer in answers),
    )


def _nothing() -> str:
    *labels, last = (each.label for each in gpu_vendors.all_of_them())
    return f"there is no GPU of {', '.join(labels)} or {last}"


def conclude(answers: Mapping[Vendor, Gpus], merged: Gpus) -> Conclusion:
    """How the state of them all follows from each vendor's."""
    because = tuple(
        Because(gpu_vendors.label(vendor), in_words(answer)) for vendor, answer in answers.items()
    )
    counts = Counter(gpu_vendors.label(device.vendor) for device in merged.devices)
    if counts:
        says = " and ".join(f"{counted(count, 'GPU')} of {name}" for name, count in counts.items())
        return Conclusion("gpus", f"SIMULATED: {says}" if merged.simulated else says, because)
    instead = []
    if merged.state != "absent":
        open_ = [
            gpu_vendors.label(each) for each, said in answers.items() if said.state != "absent"
        ]
        why = f"that is said only where it is sure, and of {' and '.join(open_)} it is not"
        instead.append(Because("zero GPUs", why))
    others = {answer.state for answer in answers.values()} - {merged.state, "absent", "present"}
    instead += [
        Because(state, f"{merged.state} says more of why no GPU can be listed")
        for state in sorted(others)
    ]
    says = "no GPU" if merged.state == "absent" else f"not known ({merged.state})"
    return Conclusion("gpus", says, because, tuple(instead))


def conclude_never(platform: Platform, found: Gpus) -> Conclusion:
    """Why GPUs are not looked for here: `found` is what `unsupported` said."""
    says = f"none can be used ({found.state})"
    return Conclusion("gpus", says, (Because(platform.kind, found.detail or ""),))


def in_words(answer: Gpus) -> str:
    """ "2 GPUs", "no GPU: ...", "not known (error): ...": one vendor's answer in a sentence."""
    unsure = f"not known ({answer.state})"
    what = counted(len(answer.devices), "GPU")
    what = what if answer.devices or answer.state == "absent" else unsure
    return f"{what}: {answer.detail}" if answer.detail else what


def _rank(state: State) -> int:
    return _WORST.index(state) if state in _WORST else len(_WORST)

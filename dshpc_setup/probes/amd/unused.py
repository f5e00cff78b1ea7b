"""AMD cards that are on the bus and that KFD does not list: why, and whether something is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dshpc_setup.facts import (
    BY_CHOICE,
    Because,
    Disagreement,
    DisagreementCode,
    UnusedCode,
    UnusedGpu,
)
from dshpc_setup.probes import pci
from dshpc_setup.probes.amd import blacklist
from dshpc_setup.probes.amd import names as amd_names
from dshpc_setup.probes.amd.attributes import Layers
from dshpc_setup.probes.trace import Trace
from dshpc_setup.problems import NO_KFD

HELD = ("vfio-pci", "pci-stub", "xen-pciback")  # drivers that keep a card for virtual machines

# A display adapter inside the processor has a carve-out of a few hundred MiB; no card for computing
# has so little.
INTEGRATED_MIB = 3072

_COMPUTE_APUS = (0x1586, 0x74A0)  # Strix Halo, MI300A
_APUS = (0x13C0, 0x1FFF)
# The generations that KFD has ever served: Hawaii, Polaris, Vega, Tonga, Fiji, and all since Navi.
_SERVED = (
    (0x66A0, 0x66AF), (0x67A0, 0x67FF), (0x6860, 0x687F), (0x6920, 0x693F), (0x6980, 0x69BF),
    (0x7300, 0x8FFF),
)  # fmt: skip


_OF_A_DISAGREEMENT: dict[UnusedCode, DisagreementCode] = {
    "not-loaded": "not-loaded",
    "no-kfd": "no-kfd",
}


@dataclass(frozen=True)
class Reason:
    """Why a card is not used."""

    code: UnusedCode
    text: str

    @property
    def wrong(self) -> bool:
        """Whether it could be used, and the machine must be fixed."""
        return self.code not in BY_CHOICE


@dataclass(frozen=True)
class Left:
    """The cards that are not used, each with its reason."""

    reasons: tuple[tuple[pci.PciDevice, Reason], ...] = ()

    @property
    def wrong(self) -> tuple[tuple[pci.PciDevice, Reason], ...]:
        return tuple(item for item in self.reasons if item[1].wrong)

    @property
    def detail(self) -> str | None:
        """What is wrong with the first card that could be used, in one sentence."""
        for card, reason in self.wrong:
            more = f" (and {len(self.wrong) - 1} more)" if len(self.wrong) > 1 else ""
            return f"there is an AMD card at {card.address}, but {reason.text}{more}"
        return None


def judge(look: Trace, cards: Sequence[pci.PciDevice], *, kfd: bool) -> Left:
    """`kfd`: whether the kernel has a KFD at all."""
    return Left(tuple((card, _reason(look, card, kfd)) for card in cards))


def _reason(look: Trace, card: pci.PciDevice, kfd: bool) -> Reason:
    if card.driver in HELD:
        return Reason("virtual-machines", f"it is handed to virtual machines ({card.driver})")
    device = card.device
    if device is not None and device not in _COMPUTE_APUS:
        if _APUS[0] <= device <= _APUS[1]:
            return Reason(
                "display", "the display adapter inside the processor is not used for jobs"
            )
        if not any(first <= device <= last for first, last in _SERVED):
            return Reason("too-old", "it is too old for ROCm")
    if card.driver == "radeon":
        return Reason("too-old", "it is too old for ROCm: its driver is radeon")
    if card.driver is None:
        return _no_driver(look)
    if card.driver != "amdgpu":
        return Reason("other-driver", f"the driver {card.driver} holds it; amdgpu is needed")
    if kfd:
        return Reason("not-listed", "KFD does not list it")
    return Reason("no-kfd", "the kernel has no KFD")


def _no_driver(look: Trace) -> Reason:
    if look.machine.exists("/sys/module/amdgpu"):
        return Reason("no-driver", "the driver amdgpu is loaded and has not taken it")
    found = blacklist.fetch(look, "amdgpu")
    if found is None:
        return Reason("not-loaded", "its driver amdgpu is not loaded")
    place, line = found
    look.saw("amd-blacklist", "present", place, line)
    return Reason("not-loaded", f"its driver amdgpu is not loaded: {place} has `{line}`")


def as_unused(left: Left, layers: Layers) -> tuple[UnusedGpu, ...]:
    return tuple(
        UnusedGpu(
            "amd",
            reason.text,
            pci.parse_address(card.address),
            amd_names.by_id(card.device, layers.of(card.address).product),
            card.driver,
            reason.code,
        )
        for card, reason in left.reasons
    )


def disagreements(left: Left) -> tuple[Disagreement, ...]:
    """A card on the bus that KFD does not have, where it should."""
    return tuple(
        Disagreement(
            card.address,
            (
                Because("PCI", f"there is an AMD card, and {card.driver or 'no driver'} holds it"),
                Because("KFD", "no GPU node is at that address"),
            ),
            f"jobs cannot compute on it: {reason.text}",
            NO_KFD,
            code=_OF_A_DISAGREEMENT.get(reason.code),
        )
        for card, reason in left.wrong
    )

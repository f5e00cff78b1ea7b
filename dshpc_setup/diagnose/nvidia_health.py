"""What NVIDIA's cards count of their own faults: told first where their firmware calls them broken.

Sources: NVIDIA GPU Memory Error Management (row remapping, page retirement, SRAM threshold), its guides to
Multi-Instance GPU and Fabric Manager; nvml.h.
"""

from __future__ import annotations

from dshpc_setup import remedies
from dshpc_setup.diagnose.common import USE_IT, given_out, named
from dshpc_setup.diagnose.model import Check, CheckInput, Verdict, fault, fine, note, warning
from dshpc_setup.diagnose.nvidia_evidence import cards, handle, on_nvidia, titled
from dshpc_setup.errors import Fix
from dshpc_setup.facts import FabricFault, GpuDevice, GpuHealth
from dshpc_setup.problems import BROKEN, FABRIC_UNHEALTHY, NO_FABRIC

WAITING = "DSH-NV-108"

_SEE = Fix(
    "See what the card counts", "nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT", step="look"
)
_FABRIC_WORDS: dict[FabricFault, str] = {
    "unhealthy": "the fabric is unhealthy",
    "limited-capacity": "the fabric has less capacity than it should",
    "degraded-bandwidth": "less bandwidth than it should have",
    "route-recovery": "a route is being restored",
    "route-unhealthy": "a route is unhealthy",
    "access-timeout": "it recovers from an access that had no answer",
    "incorrect-configuration": "the fabric is configured wrongly",
}


def _told_of(gpu: GpuDevice) -> GpuHealth:
    return gpu.health or GpuHealth()


@on_nvidia
def _broken(known: CheckInput) -> Verdict:
    """Whether a card's own firmware calls its memory broken."""
    broken = [gpu for gpu in cards(known) if BROKEN in gpu.problems]
    if not broken:
        return fine(*(named(gpu) for gpu in cards(known) if gpu.health is not None))
    words = [f"{named(gpu)}: {'; '.join(_memory_words(_told_of(gpu)))}" for gpu in broken]
    return fault(
        "The GPU's own firmware calls it broken: it has bad memory and nothing left to replace it. "
        f"{given_out(known, broken)}",
        *words,
        fix=(
            _SEE,
            Fix("Ask the seller for a replacement; NVIDIA's field diagnostics show the fault"),
            USE_IT,
        ),
    )


def _memory_words(health: GpuHealth) -> list[str]:
    found = []
    if health.remap_failed:
        found.append("a row of memory could not be remapped")
    if health.sram_over_threshold:
        found.append("more uncorrected errors in the chip (SRAM) than the firmware allows")
    return found + _counts(health)


def _counts(health: GpuHealth) -> list[str]:
    """The uncorrected errors: since the driver's start, and of the card's life."""
    now = {"memory (DRAM)": health.volatile_dram, "the chip (SRAM)": health.volatile_sram}
    ever = {"memory (DRAM)": health.aggregate_dram, "the chip (SRAM)": health.aggregate_sram}
    return [
        *(f"{n} uncorrected in {where} since the driver started" for where, n in now.items() if n),
        *(f"{n} uncorrected in {where} of its life" for where, n in ever.items() if n),
    ]


@on_nvidia
def _fabric(known: CheckInput) -> Verdict:
    """Whether the NVLink fabric is well at each card."""
    ill = [gpu for gpu in cards(known) if _told_of(gpu).fabric]
    if not ill:
        return fine()
    words = [
        f"{named(gpu)}: {'; '.join(_FABRIC_WORDS[item] for item in _told_of(gpu).fabric)}"
        for gpu in ill
    ]
    left_out = [gpu for gpu in ill if FABRIC_UNHEALTHY in gpu.problems]
    steps = (
        Fix("See the state of the fabric", "nvidia-smi -q | grep -A 12 Fabric", step="look"),
        Fix("See which NVLink connections are down", "nvidia-smi nvlink --status", step="look"),
        *remedies.reset_fabric(known.facts),
    )
    if not left_out:
        cause = (
            "The NVLink fabric is not whole: jobs on several GPUs are slower than they should be."
        )
        return warning(cause, *words, fix=steps)
    return fault(
        "The GPU's firmware calls its part of the NVLink fabric unhealthy: jobs on several GPUs fail or "
        f"hang. {given_out(known, left_out)}",
        *words,
        fix=(*steps, USE_IT),
    )


@on_nvidia
def _waiting(known: CheckInput) -> Verdict:
    """Whether a card has met errors that a reset ends, or waits for one to change its mode."""
    sound = [gpu for gpu in cards(known) if BROKEN not in gpu.problems]
    waiting = [(gpu, words) for gpu in sound if (words := _waits_for(_told_of(gpu)))]
    if waiting:
        return warning(
            "A GPU waits for a reset: until then its memory or its mode is not what it should be.",
            *(f"{named(gpu)}: {'; '.join(words)}" for gpu, words in waiting),
            fix=(_SEE, *remedies.reset_gpu(known.facts, [handle(gpu) for gpu, _ in waiting])),
        )
    before = [(gpu, words) for gpu in sound if (words := _counts(_told_of(gpu)))]
    if not before:
        return fine()
    cause = (
        "The GPU had memory errors in its life that ECC could not correct. What they met was replaced; "
        "where the count grows, the card is failing."
    )
    told = note(cause, *(f"{named(gpu)}: {'; '.join(words)}" for gpu, words in before), fix=(_SEE,))
    return titled("A GPU had uncorrectable memory errors before", told)


def _waits_for(health: GpuHealth) -> list[str]:
    found = []
    if health.remap_pending:
        found.append("rows of memory wait to be remapped")
    if health.retirement_pending:
        found.append("pages of memory wait to be retired")
    if health.volatile_dram or health.volatile_sram:
        found += _counts(health)
    if health.mig_pending is not None:
        found.append(f"MIG mode is to be {health.mig_pending}")
    return found


CHECKS: tuple[Check, ...] = (
    Check(BROKEN, "driver", "No NVIDIA GPU calls itself broken",
          "A GPU's own firmware calls it broken", _broken),
    Check(FABRIC_UNHEALTHY, "driver", "The NVLink fabric is healthy at every GPU",
          "The NVLink fabric is unhealthy at a GPU", _fabric, because=(NO_FABRIC, "DSH-NV-101")),
    Check(WAITING, "driver", "No NVIDIA GPU waits for a reset of its memory or its mode",
          "A GPU waits for a reset of its memory or its mode", _waiting, because=("DSH-NV-081",)),
)  # fmt: skip

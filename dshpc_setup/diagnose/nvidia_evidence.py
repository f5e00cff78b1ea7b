"""What the facts and the test-run tell about NVIDIA, for the checks of its driver and cards. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import wraps

from dshpc_setup.diagnose.common import named, of_vendor
from dshpc_setup.diagnose.kernel_log import why_unread
from dshpc_setup.diagnose.model import (
    FAULTS,
    CheckInput,
    Verdict,
    fault,
    fine,
    not_here,
    unknown,
    warning,
)
from dshpc_setup.diagnose.proof import Look, from_proof
from dshpc_setup.errors import Fix
from dshpc_setup.facts import Evidence, GpuDevice


def on_nvidia(look: Look) -> Look:
    """The check, only where NVIDIA's hardware or driver is."""

    @wraps(look)
    def looked(known: CheckInput) -> Verdict:
        return elsewhere(known) or look(known)

    return looked


def with_log(look: Look) -> Look:
    """The check, only where the kernel's log was read and the driver is one of this kernel."""

    @wraps(look)
    def looked(known: CheckInput) -> Verdict:
        if in_wsl(known) or on_board(known):
            return fine()  # the driver of Windows, or of the board's own kernel
        why = why_unread(known.observed.kernel)
        return unknown(why) if why is not None else look(known)

    return on_nvidia(looked)


def elsewhere(known: CheckInput) -> Verdict | None:
    """Why there is nothing of NVIDIA's to look at; None where there is."""
    if known.facts.gpus.simulated:
        return not_here("The GPUs are simulated.")
    bare = evidence(known, "nvidia")
    if bare is not None and bare.state == "denied":
        return unknown("The PCI bus may not be read, so GPUs cannot be looked for.")
    if cards(known) or on_board(known) or evidence(known, "wsl") is not None:
        return None
    seen = evidence(known, "nvidia-pci")
    if seen is not None and (seen.state == "present" or known.facts.gpus.state == "error"):
        return None
    where = " in this container" if in_container(known) else ""
    return not_here(f"There is no NVIDIA GPU{where}.")


def cards(known: CheckInput) -> tuple[GpuDevice, ...]:
    """NVIDIA's GPUs that a driver lists."""
    return of_vendor(known, "nvidia")


def evidence(known: CheckInput, *probes: str) -> Evidence | None:
    """What the last of the named probes said."""
    found = [item for item in known.facts.evidence if item.probe in probes]
    return found[-1] if found else None


def on_board(known: CheckInput) -> bool:
    """Whether this is a Jetson, whose GPU is no card."""
    return evidence(known, "jetson") is not None


def in_wsl(known: CheckInput) -> bool:
    return known.facts.platform.kind == "wsl2"


def in_container(known: CheckInput) -> bool:
    return known.facts.platform.in_container


def driver_loaded(known: CheckInput) -> bool:
    """Whether NVIDIA's own kernel module is loaded."""
    module = evidence(known, "nvidia-module")
    return module is not None and module.state == "present" and module.module is not None


def silent(known: CheckInput) -> list[Evidence]:
    """The questions to NVIDIA's driver that got no answer in time."""
    asked = ("nvml", "nvidia-smi")
    return [
        item for item in known.facts.evidence if item.probe in asked and item.state == "timeout"
    ]


def said(item: Evidence | None) -> tuple[str, ...]:
    """("NVML: error 18: a version mismatch",), for a finding's evidence."""
    if item is None:
        return ()
    names = {
        "nvml": "NVML",
        "nvidia-answer": "nvidia-smi",
        "nvidia-pci": "PCI",
        "nvidia-module": "kernel",
    }
    name = names.get(item.probe, item.probe)
    code = f" {item.code}" if item.code is not None and item.state != "present" else ""
    detail = f": {item.detail}" if item.detail else ""
    return (f"{name}: {item.state}{code}{detail}",)


def answer(known: CheckInput) -> Evidence | None:
    """What the driver answered, by NVML's numbers: through its library, else through nvidia-smi."""
    return evidence(known, "nvml", "nvidia-answer")


def nvml_code(known: CheckInput) -> int | None:
    """NVML's error number (nvmlReturn_t)."""
    item = answer(known)
    return item.code if item is not None else None


def left_out(
    known: CheckInput, gpus: Sequence[GpuDevice], cause: str, fix: tuple[Fix, ...]
) -> Verdict:
    """An error where no GPU of NVIDIA's is left for jobs, else a warning."""
    words = tuple(named(gpu) for gpu in gpus)
    usable = any(not gpu.problems for gpu in cards(known))
    return (warning if usable else fault)(cause, *words, fix=fix)


def handle(gpu: GpuDevice) -> str:
    """What `nvidia-smi -i` takes; its own index may be another than ours beside other makers' GPUs."""
    return gpu.pci_bus_id or gpu.uuid or str(gpu.index)


def titled(title: str, verdict: Verdict) -> Verdict:
    """A note under a title of its own: the check's own says that all is well."""
    return replace(verdict, title=title)


# -- the test-run -----------------------------------------------------------------------------------


def by_test(known: CheckInput, finding: str) -> Verdict | None:
    """The fault that the test-run showed of a cause of the catalogue; None where it showed none."""
    verdict = from_proof(finding)(known)
    return verdict if verdict.state in FAULTS else None

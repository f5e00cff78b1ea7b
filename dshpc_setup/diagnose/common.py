"""Words and questions that checks of several sections share."""

from __future__ import annotations

from collections.abc import Sequence

from dshpc_setup import gpu_vendors
from dshpc_setup.diagnose.model import CheckInput, Verdict, not_here, unknown
from dshpc_setup.errors import Fix, configure
from dshpc_setup.facts import BY_CHOICE, Evidence, GpuDevice, UnusedGpu, Vendor
from dshpc_setup.observed.cluster_status import ClusterStatus

_LONGEST = 200  # characters of one answer


def set_up(known: CheckInput) -> Fix:
    """The one command that sets up; in other words where it was run before."""
    text = "Set it up again" if known.observed.cluster else "Set it up"
    return configure(text)


def cluster(known: CheckInput) -> ClusterStatus:
    """The cluster that was set up; for checks that need DSH-SL-001."""
    found = known.observed.cluster
    if found is None:
        raise LookupError("no cluster is set up")
    return found


def of_vendor(known: CheckInput, vendor: Vendor) -> tuple[GpuDevice, ...]:
    """The GPUs of one vendor."""
    return tuple(gpu for gpu in known.facts.gpus.devices if gpu.vendor == vendor)


def by_choice(item: UnusedGpu) -> bool:
    """Whether no job gets this card by somebody's choice or by its kind, with nothing wrong."""
    return item.code in BY_CHOICE


def in_plan(known: CheckInput, gpu: GpuDevice) -> bool:
    """Whether the plan gives it to jobs; not where there is no plan."""
    return known.plan is not None and any(line.index == gpu.index for line in known.plan.gres)


USE_IT = Fix(
    "Or give it to jobs anyway",
    "configure-environment --unhealthy-gpus use",
    step="alternative",
)


def given_out(known: CheckInput, gpus: Sequence[GpuDevice]) -> str:
    """Whether jobs get those GPUs, which their own firmware or driver calls broken, by the setting."""
    if any(in_plan(known, gpu) for gpu in gpus):
        return "Jobs get it anyway, by the setting unhealthy_gpus: use."
    return "Jobs do not get it."


def none_of(known: CheckInput, vendor: Vendor) -> Verdict:
    """Why there is no GPU of a vendor to look at: there is none, or it could not be read."""
    first = gpu_vendors.of(vendor).first_evidence
    asked = [item for item in known.facts.evidence if item.probe == first]
    for item in asked:
        if item.state in ("denied", "error", "timeout"):
            return unknown(f"It could not be read: {item.detail or item.state}.")
    where = " in this container" if known.facts.platform.in_container else ""
    return not_here(f"there is no {gpu_vendors.label(vendor)} GPU{where}")


def named(gpu: GpuDevice) -> str:
    """ "GPU 3 (NVIDIA H100 80GB HBM3, 0000:66:00.0)"."""
    about = ", ".join(filter(None, (gpu.name, gpu.pci_bus_id)))
    return f"GPU {gpu.index}" + (f" ({about})" if about else "")


def answered(item: Evidence) -> str:
    """What a probe was told, cut where a tool's whole output is in it."""
    detail = item.detail or ""
    cut = detail if len(detail) <= _LONGEST else f"{detail[:_LONGEST]} ..."
    return f"{item.probe}: {item.state} ({item.source}) {cut}".strip()

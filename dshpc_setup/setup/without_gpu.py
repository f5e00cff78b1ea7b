"""A run that finds no usable GPU: an error where one was asked for, else what would fix it. Pure."""

from __future__ import annotations

from dshpc_setup import gpu_vendors
from dshpc_setup.diagnose import CheckInput, Finding, diagnose
from dshpc_setup.diagnose.model import FAULTS
from dshpc_setup.engine.refusals import look_up
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import HostFacts
from dshpc_setup.passthrough import Passthrough
from dshpc_setup.passthrough.words import describe_attempt
from dshpc_setup.plan import ClusterPlan
from dshpc_setup.settings import Settings

_NOT_HERE, _NOT_USABLE = "DSH-GP-001", "DSH-PT-001"  # findings of doctor


def cause(facts: HostFacts, plan: ClusterPlan, settings: Settings) -> Finding | None:
    """What doctor puts first of the GPUs and their drivers where the plan has none; None: nothing.

    Where the settings name a vendor, only what is no other vendor's counts.
    """
    if plan.gres or settings.gpu == "none":
        return None
    found = (
        item for item in diagnose(CheckInput(facts, plan)) if item.section in ("gpu", "driver")
    )
    roots = [
        item
        for item in found
        if item.state in FAULTS
        and item.caused_by is None
        and item.fix
        and (settings.gpu == "auto" or _vendor_of(item.id) in (None, settings.gpu))
    ]
    return min(roots, key=lambda item: item.state != "error", default=None)


def _vendor_of(identity: str) -> str | None:
    """Whose hardware a finding is about, by its id; None: any vendor's."""
    vendors = gpu_vendors.all_of_them()
    return next((each.name for each in vendors if identity.startswith(each.findings)), None)


def refusal(
    settings: Settings, proof: Passthrough, root: Finding | None = None
) -> DshpcError | None:
    """Where the settings name a vendor or GPUs; None where a cluster without one will do.

    `root` is the cause that `cause` found.
    """
    if proof.works or not (gpu_vendors.find(settings.gpu) or settings.devices):
        return None
    asked = settings.gpu if settings.gpu != "auto" else ", ".join(settings.devices)
    fixes = _fixes(proof, root)
    return DshpcError(
        f"You asked for GPUs ({asked}), but none can be used here.",
        "\n".join(describe_attempt(row) for row in proof.attempts) or _reason(proof, root),
        (
            *fixes,
            *(["Then run again."] if fixes else []),
            "Or continue without a GPU: --gpu none.",
            look_up(root.id if root is not None else _finding(proof)),
        ),
    )


def notes(proof: Passthrough, root: Finding | None = None) -> tuple[str, ...]:
    """What people are told who did not ask for a GPU; () where there is one."""
    if proof.works:
        return ()
    fixes = _fixes(proof, root)
    if not fixes:
        return (f"CPU only: {proof.reason}",)
    steps = (*fixes, "Then run this again.")
    return (
        *([f"{root.title} ({root.id}): {root.cause}"] if root is not None else []),
        "Running CPU-only. To enable GPUs:",
        *(f"{number}. {step}" for number, step in enumerate(steps, 1)),
    )


def _finding(proof: Passthrough) -> str:
    """The cause where it is known, else that containers cannot use the GPUs, or that there is none."""
    if proof.to_fix is None:
        return _NOT_HERE
    return proof.to_fix.finding or _NOT_USABLE


def _reason(proof: Passthrough, root: Finding | None) -> str:
    return proof.reason if root is None else f"{root.title}. {root.cause}"


def _fixes(proof: Passthrough, root: Finding | None) -> tuple[str, ...]:
    """What fixes the mechanism that would be taken, or the cause why there is no GPU; a step each."""
    first = root or proof.to_fix
    return tuple(str(fix) for fix in first.fix) if first is not None else ()

"""A run that finds no usable GPU: an error where one was asked for, else what would mend it. Pure."""

from __future__ import annotations

from dshpc_setup.describe import describe_attempt, describe_fix
from dshpc_setup.engine.refusals import look_up
from dshpc_setup.errors import DshpcError
from dshpc_setup.passthrough import Passthrough
from dshpc_setup.settings import Settings

_NOT_HERE, _NOT_USABLE = "DSH-GP-001", "DSH-PT-001"  # findings of doctor


def refusal(settings: Settings, proof: Passthrough) -> DshpcError | None:
    """Where the settings name a vendor or GPUs; None where a cluster without one will do."""
    if proof.works or not (settings.gpu in ("nvidia", "amd", "intel") or settings.devices):
        return None
    asked = settings.gpu if settings.gpu != "auto" else ", ".join(settings.devices)
    return DshpcError(
        f"You asked for GPUs ({asked}), but none can be used here.",
        "\n".join(describe_attempt(row) for row in proof.attempts) or proof.reason,
        (
            *_fixes(proof),
            "Then run again.",
            "Or go on without a GPU: --gpu none.",
            look_up(_finding(proof)),
        ),
    )


def notes(proof: Passthrough) -> tuple[str, ...]:
    """What people are told who did not ask for a GPU; () where there is one."""
    if proof.works:
        return ()
    fixes = _fixes(proof)
    if not fixes:
        return (f"CPU only: {proof.reason}",)
    steps = (*fixes, "Then run this again.")
    return (
        "CPU only, until that is mended:",
        *(f"{number}. {step}" for number, step in enumerate(steps, 1)),
    )


def _finding(proof: Passthrough) -> str:
    """The cause where it is known, else that containers cannot use the GPUs, or that there is none."""
    if proof.to_mend is None:
        return _NOT_HERE
    return proof.to_mend.finding or _NOT_USABLE


def _fixes(proof: Passthrough) -> tuple[str, ...]:
    """What mends the mechanism that would be taken, a step each."""
    first = proof.to_mend
    return tuple(describe_fix(fix) for fix in first.fix) if first is not None else ()

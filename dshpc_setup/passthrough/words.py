"""What a test-run found, in one line each, for the screen."""

from __future__ import annotations

from dshpc_setup.passthrough.model import Attempt, Cause, Passthrough


def describe_cause(cause: Cause) -> str:
    """The sentence, with the finding's id to look it up by."""
    return f"{cause.says} ({cause.finding})" if cause.finding else cause.says


def describe_attempt(row: Attempt) -> str:
    """ "CDI: no CDI specification names a nvidia.com/gpu device (DSH-DK-016)"."""
    return f"{row.way}: {row.reason}" + (f" ({row.finding})" if row.finding else "")


def describe_proof(proof: Passthrough) -> str:
    """ "No container gets the GPUs: the NVIDIA Container Toolkit is not installed (DSH-DK-007)." """
    first = proof.to_fix
    if first is None:
        return proof.reason
    return f"No container gets the GPUs: {describe_cause(Cause(first.finding, first.reason))}."

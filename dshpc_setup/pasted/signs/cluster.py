"""What the cluster's container says."""

from __future__ import annotations

from dshpc_setup.pasted.signs.sign import sign

OWN = (
    sign("SL-006", "the start failed; 'dshpc-node status'", "dshpc: the cluster did not start"),
    sign(
        "SL-007 SL-006", "dshpc: the cluster did not get ready", "the start was ended from outside"
    ),
    sign("SL-027 DK-081", "the state volume has no room or cannot be written"),
    sign("SL-008 SL-009", r"the controller (?:does not answer:|does not say how node)"),
    sign("SL-046", r"dshpc: job \S{1,80} had \d+ processes, all that it may have"),
)

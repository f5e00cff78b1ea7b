"""Whether the node takes jobs at this moment, in words: what can run there may still have to wait."""

from __future__ import annotations

from dshpc_setup.machine import Machine
from dshpc_setup.slurm.client import Slurm

_ASK_S = 10.0


def ask(machine: Machine, node: str) -> str | None:
    """ "The node is drained: low disk. Jobs wait ..."; None where it takes jobs, or nobody says."""
    from dshpc_setup.jobs.gpu_words import shown
    from dshpc_setup.slurm.nodes import TAKEN_OUT

    told = Slurm(machine).nodes(deadline_s=_ASK_S).value
    found = [each for each in told or () if each.name == node]
    if not found or found[0].usable:
        return None
    state, reason = found[0].plain_state, found[0].reason
    if state not in TAKEN_OUT:
        state = f"not ready ({shown(found[0].state)})"
    why = f": {reason_text.rstrip('.')}" if (reason_text := shown(reason)) else ""
    return f"The node is {state}{why}. Jobs wait until it takes some again: dshpc status."

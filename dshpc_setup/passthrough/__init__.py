"""Can this engine hand the GPUs to a container? Found by doing it, before anything is rendered.

asked       what is to be handed over, on which machine
driver_files  what the built-in engine binds of a driver, and where it was found
candidates  which mechanisms this engine may have, and why it cannot have the others
cdi_names   by which names a CDI engine knows the GPUs
expected    what a container must see of the GPUs that it was promised
trial       the test container: started, ended by a deadline, removed
look        the script in it, and what it says
judge       what it saw against what it had to see: judge_nodes, judge_driver
stale       whether a CDI specification is the reason
causes      an engine's error text, and the facts, to a finding of the catalogue
image       what an image wants against what driver and GPUs offer
prove       all of it, and which mechanism to take
key         what a proof depends on
"""

from __future__ import annotations

from dshpc_setup.passthrough.bench import DEADLINE_S, Bench
from dshpc_setup.passthrough.key import proof_key
from dshpc_setup.passthrough.model import Attempt, Cause, Passthrough
from dshpc_setup.passthrough.prove import (
    of_driver,
    prove,
    still_holds,
    untested,
    why_none,
    without_test,
)

__all__ = [
    "DEADLINE_S",
    "Attempt",
    "Bench",
    "Cause",
    "Passthrough",
    "of_driver",
    "proof_key",
    "prove",
    "still_holds",
    "untested",
    "why_none",
    "without_test",
]

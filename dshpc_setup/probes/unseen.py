"""Where a part of the machine may not be read: that nothing was found there says nothing."""

from __future__ import annotations

from dshpc_setup.facts import Gpus
from dshpc_setup.probes.trace import Trace


def sure(look: Trace, found: Gpus, *, container: bool) -> Gpus:
    """The same, but for an `absent` that rests on folders which this process may not read.

    In a container the device nodes alone count, whatever /sys shows.
    """
    if found.state != "absent" or container or not look.unseen:
        return found
    return denied(look)


def denied(look: Trace) -> Gpus:
    """What can be said of a vendor's GPUs where they would be found, and nobody may look."""
    first, *others = look.unseen
    more = f" and {len(others)} more" if others else ""
    detail = f"{first}{more} may not be read: whether there is a GPU is not known"
    return Gpus("denied", detail=detail)

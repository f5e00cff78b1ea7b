"""The ids of what probes find wrong, and a few words for those of a GPU that jobs do not get.

Who only reads findings need not load the probes for them.
"""

from __future__ import annotations

from collections.abc import Iterable

VERSIONS_DIFFER = "DSH-NV-001"
NOUVEAU = "DSH-NV-002"
UNREADABLE = "DSH-NV-003"
NO_INSTANCES = "DSH-NV-018"
NO_FABRIC = "DSH-NV-019"
LOST = "DSH-NV-020"
RESET = "DSH-NV-021"
PROHIBITED = "DSH-NV-028"
LINUX_DRIVER_INSIDE = "DSH-NV-031"  # of WSL 2
BROKEN = "DSH-NV-106"
FABRIC_UNHEALTHY = "DSH-NV-107"
DRIVER_TOO_OLD = "DSH-NV-049"
NO_NODE = "DSH-GP-009"
NO_KFD = "DSH-AM-039"
RAS_BROKEN = "DSH-AM-102"
PARTITIONS_MISSING = "DSH-AM-042"  # fewer than the card's mode makes

RAS_ASLEEP = 1048560
"""0xffff0, and its multiples: what the error counters of an AMD card that sleeps read as; no errors."""

WORDS = {
    UNREADABLE: "the driver does not open it",
    NO_INSTANCES: "MIG is on, and no instance was made",
    NO_FABRIC: "its NVSwitches wait for the Fabric Manager, which has not come round to it",
    LOST: "it has fallen off the bus",
    RESET: "it needs a reset",
    BROKEN: "its firmware calls it broken: it has bad memory and nothing to replace it",
    RAS_BROKEN: "its driver calls it broken: more of its memory is bad than may be",
    FABRIC_UNHEALTHY: "its firmware calls its part of the NVLink fabric unhealthy",
    NO_NODE: "its device node is missing",
    PROHIBITED: "its compute mode is Prohibited: no program may compute on it",
}


UNHEALTHY = frozenset((BROKEN, FABRIC_UNHEALTHY, RAS_BROKEN))
"""Of GPUs that compute and that their own firmware or driver calls broken: `unhealthy_gpus` says who gets
them."""


def in_words(problems: Iterable[str]) -> str:
    """ "it has fallen off the bus (DSH-NV-020)"; an id without words stands for itself."""
    return "; ".join(f"{WORDS[item]} ({item})" if item in WORDS else item for item in problems)

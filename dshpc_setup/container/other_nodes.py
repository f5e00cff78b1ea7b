"""The other nodes of the cluster, as its controller sees them while the key is changed.

A slurmd that is told to reconfigure becomes a new one, which reads the key and registers: the time at which
it began tells whether it has. A node that is away reads the key as it comes back.
"""

from __future__ import annotations

import time

from dshpc_setup.machine import Machine
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.slurm.nodes import Node

_ASK_S = 20.0
_TAKEN_UP_S = 15.0
_POLL_S = 0.1


def _all(machine: Machine, own: str) -> tuple[Node, ...]:
    if machine.env.get("DSHPC_ROLE") != "controller":
        return ()
    return tuple(it for it in Slurm(machine).node_lines(deadline_s=_ASK_S) if it.name != own)


def _is_up(node: Node) -> bool:
    return node.registered and not node.down


def up(machine: Machine, own: str) -> tuple[str, ...]:
    """Names of those that answer."""
    return tuple(it.name for it in _all(machine, own) if _is_up(it))


def away(machine: Machine, own: str) -> tuple[str, ...]:
    """Names of those that do not."""
    return tuple(it.name for it in _all(machine, own) if not _is_up(it))


def moment() -> float:
    """Now, in seconds of the epoch, once a new second has begun: Slurm tells whole ones."""
    time.sleep(1.0 - time.time() % 1.0)
    return time.time()


def late(machine: Machine, names: tuple[str, ...], since: float) -> tuple[str, ...]:
    """Those of them that answer and whose slurmd is still the one of before `since`."""
    after = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since))
    until = time.monotonic() + _TAKEN_UP_S
    while True:
        found = [it for it in _all(machine, "") if it.name in names]
        old = [it for it in found if it.started < after]
        if not old:
            return ()
        if time.monotonic() >= until:
            return tuple(it.name for it in old if _is_up(it))
        time.sleep(_POLL_S)

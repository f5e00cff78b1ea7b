"""What the container and its controller say, asked and read in one place: start report and nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dshpc_setup import foreign
from dshpc_setup.engine import containers
from dshpc_setup.machine import CommandResult, Machine
from dshpc_setup.machine.silence import answered

_ASK_S = 30.0
_USABLE = ("idle", "mixed", "allocated", "completing", "planned")
TAKEN_OUT = ("drained", "draining", "down")  # and to be resumed by a person
_FLAGS = "*~#!%$@^-+"  # sinfo(1), NODE STATE CODES: what may stand behind a state
COLUMNS = "NodeList:|,Gres:|,GresUsed:|,StateLong:|,Reason:"


@dataclass(frozen=True)
class NodeStatus:
    """A node as the controller knows it; counts are by GRES name: {"gpu:h100": 2}."""

    name: str
    state: str  # "idle", "mixed", "drained", ...; "idle*": does not respond
    reason: str | None
    gres_total: dict[str, int]
    gres_in_use: dict[str, int]

    @property
    def usable(self) -> bool:
        """Whether jobs can run there."""
        return self.state.rstrip(_FLAGS) in _USABLE and not self.state.endswith("*")

    @property
    def plain_state(self) -> str:
        """The state without the signs behind it."""
        return self.state.rstrip(_FLAGS)

    @property
    def gres(self) -> str:
        """ "gpu:h100:2,gpu:t4:1"; "" without."""
        return ",".join(f"{name}:{count}" for name, count in self.gres_total.items())


def ask_start(machine: Machine, container: str) -> dict[str, Any]:
    """The start report (schema dshpc.start/1) of a running container; {} where it gives none.

    Raises DshpcError (INCOMPLETE) where the container does not answer in time.
    """
    asked = containers.exec_in(machine, container, ["dshpc-node", "status"], deadline_s=_ASK_S)
    return start_report(answered(asked, f"how the start of {container} is").stdout)


def start_report(text: str) -> dict[str, Any]:
    """What `dshpc-node status` or `dshpc-node wait` printed; {} where it is no such object."""
    try:
        value = foreign.value(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def ask_nodes(machine: Machine, container: str) -> tuple[CommandResult, tuple[NodeStatus, ...]]:
    """The controller's nodes, and how the asking ended: where that is not `ok`, there are none."""
    argv = ["sinfo", "-N", "-h", "-O", COLUMNS]
    asked = containers.exec_in(machine, container, argv, deadline_s=_ASK_S)
    return asked, parse_nodes(asked.stdout) if asked.ok else ()


def notes(report: Mapping[str, Any], usable: Iterable[str]) -> tuple[str, ...]:
    """A start's notes, less those of nodes that it left taken out and that take jobs again now."""
    told, about = report.get("notes"), report.get("notes_about")
    if not isinstance(told, list):
        return ()
    left = about if isinstance(about, dict) else {}  # not in the report of an earlier version
    over = [left.get(f"node {name}") for name in usable]
    return tuple(str(text) for text in told if text not in over)


def resume_argv(container: str, node: str) -> list[str]:
    """The command that takes a drained node back; `dshpc scontrol` is the caller himself, and Slurm
    lets only root and its own user."""
    return ["docker", "exec", container, "scontrol", "update", f"NodeName={node}", "State=RESUME"]


def parse_nodes(text: str) -> tuple[NodeStatus, ...]:
    """`sinfo -N -O "NodeList:|,Gres:|,GresUsed:|,StateLong:|,Reason:"`, each node once.

    The reason comes last because people write it, a '|' included.
    """
    nodes: dict[str, NodeStatus] = {}
    for line in text.splitlines():
        parts = [part.strip() for part in line.split("|", 4)]
        if len(parts) == 5 and parts[0]:
            reason = None if parts[4] in ("none", "") else parts[4]
            total, used = parse_gres(parts[1]), parse_gres(parts[2])
            nodes[parts[0]] = NodeStatus(parts[0], parts[3], reason, total, used)
    return tuple(nodes.values())


def parse_gres(text: str) -> dict[str, int]:
    """ "gpu:h100:3(IDX:0-2),gpu:1g.10gb:1(S:0)" -> {"gpu:h100": 3, "gpu:1g.10gb": 1}."""
    counts: dict[str, int] = {}
    for item in re.sub(r"\([^)]*\)", "", text).split(","):
        name, _, count = item.strip().rpartition(":")
        if name and count.isdecimal():
            counts[name.rstrip(":")] = int(count)  # "gpu:(null):0" where none is in use
    return counts


def same_gres(one: str, other: str) -> bool:
    """Whether two texts of GRES name the same; the controller spreads a `shard:12` over the types.

    slurm.conf says "gpu:h100:2,gpu:t4:1,shard:12", and sinfo "...,shard:h100:8,shard:t4:4" (24.11).
    """
    return _folded(one) == _folded(other)


def _folded(text: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name, count in parse_gres(text).items():
        kind = name.partition(":")[0]
        key = kind if kind in ("shard", "mps") else name
        counts[key] = counts.get(key, 0) + count
    return counts

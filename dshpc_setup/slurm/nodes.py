"""A node as the controller knows it: what sinfo prints of it, and what scontrol does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dshpc_setup import slurm_releases

_USABLE = ("idle", "mixed", "allocated", "completing", "planned")
TAKEN_OUT = ("drained", "draining", "down")  # and to be resumed by a person
_FLAGS = "*~#!%$@^-+"  # sinfo(1), NODE STATE CODES: what may stand behind a state
_BAD = ("DRAIN", "DOWN", "INVALID_REG", "FAIL", "FUTURE", "INVAL")
STOPPED = "dshpc:stopped"
FORMER_KEY = "dshpc:former-key"
"""The reason of a node on another machine that has not joined again since the key was changed."""
_SLURM = ("", "slurm", "Unknown")
COLUMNS = "NodeList:|,Gres:|,GresUsed:|,StateLong:|,Reason:"


@dataclass(frozen=True)
class Node:
    """Counts are by GRES name: {"gpu:h100": 2}.

    Of scontrol there are `states` in capitals ("IDLE", "DRAIN", ...), of sinfo one word alone.
    """

    name: str
    state: (
        str  # "idle", "mixed", "drained", ...; "idle*": does not respond; "idle+drain" of scontrol
    )
    reason: str | None = None
    gres_total: dict[str, int] = field(default_factory=dict)
    gres_in_use: dict[str, int] = field(default_factory=dict)
    flags: tuple[str, ...] = ()  # the states as scontrol has them
    who: str | None = (
        None  # set the reason: a user, or his number where he has no name; None: not told
    )
    started: str = ""  # when the slurmd that registered it began, in local time
    version: str | None = None  # of that slurmd
    address: str = ""  # at which it is called; of scontrol alone

    def to_json(self) -> dict[str, Any]:
        return {
            key: getattr(self, key)
            for key in ("name", "state", "reason", "gres_total", "gres_in_use")
        }

    @property
    def states(self) -> tuple[str, ...]:
        return self.flags or _states(self.state)

    @property
    def why(self) -> str:
        """The reason; "" without."""
        return self.reason or ""

    @property
    def plain_state(self) -> str:
        """The state without the signs behind it."""
        return self.state.rstrip(_FLAGS)

    @property
    def gres(self) -> str:
        """ "gpu:h100:2,gpu:t4:1"; "" without."""
        return ",".join(f"{name}:{count}" for name, count in self.gres_total.items())

    @property
    def gpus(self) -> int:
        return sum(n for kind, n in self.gres_total.items() if kind.split(":")[0] == "gpu")

    @property
    def usable(self) -> bool:
        """Whether jobs can run there."""
        if self.flags:
            return self.registered and not self.unwell
        return self.plain_state in _USABLE and not self.state.endswith("*")

    @property
    def registered(self) -> bool:
        return "UNKNOWN" not in self.states and "NOT_RESPONDING" not in self.states

    @property
    def unwell(self) -> tuple[str, ...]:
        return tuple(state for state in self.states if state in _BAD)

    @property
    def drained(self) -> bool:
        return "DRAIN" in self.states

    @property
    def silent(self) -> bool:
        return "NOT_RESPONDING" in self.states

    @property
    def down(self) -> bool:
        return "DOWN" in self.states or self.silent

    @property
    def invalid(self) -> bool:
        """Its last registration was refused: it has less than its line in slurm.conf says."""
        return bool({"INVALID_REG", "INVAL"} & set(self.states))

    @property
    def reserved(self) -> bool:
        """By a reservation, which a person has made."""
        return bool({"MAINT", "RESERVED"} & set(self.states))

    @property
    def by_slurm(self) -> bool:
        """Whether slurmctld itself gave the reason."""
        return (self.who or "") in _SLURM

    @property
    def stopped(self) -> bool:
        """Whether its container said so as it stopped (container/rootfs/.../stop)."""
        return self.down and self.why == STOPPED

    @property
    def has_former_key(self) -> bool:
        """Whether the key was changed since it has joined (cluster/key.py)."""
        # Slurm adds what it finds: "... : Not responding"
        return self.drained and self.why.startswith(FORMER_KEY)

    @property
    def own_doing(self) -> bool:
        """Whether Slurm took it out for what the start has put right, or this program did.

        A person's words may look like Slurm's: who set them tells them apart. Root in the container
        may be a person too, so that our own reasons begin with "dshpc:".
        """
        if self.why.startswith("dshpc:"):
            return (self.who or "") in ("root", *_SLURM)
        known = slurm_releases.node_reason("fewer_gres", "too_little", "restarted")
        return self.by_slurm and (not self.reason or known.search(self.reason) is not None)

    @property
    def by_a_person(self) -> bool:
        """Whether somebody took it out of use, and not Slurm or dshpc."""
        return self.who is not None and not (self.by_slurm or self.own_doing or self._by_daemon)

    @property
    def _by_daemon(self) -> bool:
        """Whether slurmd gave the reason, which it does as root."""
        return (
            slurm_releases.node_reason("kill_failed", "program_failed").match(self.why) is not None
        )

    @property
    def over(self) -> bool:
        """Whether what Slurm or dshpc took it out for is over, and a resume alone is missing."""
        holds = self.invalid or self.silent or self._by_daemon or self.has_former_key
        return self.who is not None and self.own_doing and not holds

    @property
    def processes_left(self) -> bool:
        """Whether slurmstepd took it out for processes of a job that did not end.

        It does so as root: a person who is root and writes its very words cannot be told from it.
        """
        return (self.who or "") in ("root", *_SLURM) and slurm_releases.of_slurmstepd(self.why)

    @property
    def prolog_failed(self) -> bool:
        """Whether Slurm took it out for a Prolog or Epilog; another slurm.conf may name none."""
        return self.by_slurm and self.failed_program is not None

    @property
    def failed_program(self) -> str | None:
        """ "Prolog" or "Epilog", where that is the reason."""
        found = slurm_releases.node_reason("program_failed").match(self.why)
        return found[1].capitalize() if found else None

    def is_for(self, *reasons: str) -> bool:
        """Whether Slurm gave a reason of these kinds (`NodeReasons`); a person's words may look like it."""
        found = slurm_releases.node_reason(*reasons).match(self.why)
        return not self.by_a_person and found is not None


def _states(word: str) -> tuple[str, ...]:
    """sinfo's one word for a state as the states that it stands for (sinfo(1), NODE STATE CODES)."""
    plain = word.rstrip(_FLAGS).upper()
    states = {
        "DRAINED": ("IDLE", "DRAIN"),
        "DRAINING": ("ALLOCATED", "DRAIN"),
        "INVAL": ("DRAIN", "INVALID_REG"),
    }.get(plain, (plain,))
    return (*states, "NOT_RESPONDING") if "*" in word else states


def parse_rows(text: str) -> tuple[Node, ...]:
    """`sinfo -N -O COLUMNS`, each node once.

    The reason comes last because people write it, a '|' included.
    """
    nodes: dict[str, Node] = {}
    for line in text.splitlines():
        parts = [part.strip() for part in line.split("|", 4)]
        if len(parts) == 5 and parts[0]:
            reason = None if parts[4] in ("none", "") else parts[4]
            total, used = parse_gres(parts[1]), parse_gres(parts[2])
            nodes[parts[0]] = Node(parts[0], parts[3], reason, total, used)
    return tuple(nodes.values())


def parse_line(text: str) -> Node | None:
    """One line of `scontrol -o show node`; None where it holds no state."""
    text = re.sub(
        r"\sExtra=dshpc1:\S+", "", text
    )  # container/far.py: it may stand behind the reason
    state = re.search(r"(?:^|\s)State=(\S+)", text)
    if state is None:
        return None
    address = re.search(r"\sNodeAddr=(\S+)", text)
    name = re.match(r"\s*NodeName=(\S+)", text)
    reason = re.search(r"\sReason=(.*?)(?:\s\[([^\]@]*)(?:@[^\]]*)?\])?\s*$", text)
    gres = re.search(r"\sGres=(\S+)", text)
    started = re.search(r"\sSlurmdStartTime=(\d\S+)", text)
    version = re.search(r"\sVersion=(\S+)", text)
    flags = tuple(item.rstrip("*~#!%$@^-") for item in state[1].upper().split("+"))
    silent = "*" if state[1].endswith("*") else ""
    return Node(
        name[1] if name else "",
        "+".join(flags).lower() + silent,
        (reason[1].strip() or None) if reason else None,
        parse_gres(gres[1]) if gres else {},
        flags=(*flags, "NOT_RESPONDING") if silent else flags,
        who=(reason[2] or "") if reason else "",
        started=started[1] if started else "",
        version=version[1] if version else None,
        address=address[1] if address else "",
    )


def parse_lines(lines: Sequence[str]) -> tuple[Node, ...]:
    """Those of them that name a node and its state, each node once."""
    found = (node for line in lines if (node := parse_line(line)) is not None and node.name)
    return tuple({node.name: node for node in found}.values())


def joined(rows: Sequence[Node], lines: Sequence[Node]) -> tuple[Node, ...]:
    """What sinfo said of each node, with what only scontrol knows; scontrol's alone without sinfo's."""
    known = {node.name: node for node in lines}
    return tuple(_joined(node, known.get(node.name)) for node in rows) or tuple(known.values())


def _joined(row: Node, line: Node | None) -> Node:
    if line is None:
        return row
    return replace(
        row, reason=line.reason, flags=line.flags, who=line.who, started=line.started,
        version=line.version, address=line.address,
    )  # fmt: skip


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

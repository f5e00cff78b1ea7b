"""Queued jobs with how long they have waited, and nodes with what of their GPUs is free, of one call.

Beside them stand the reservations of jobs that have waited for `longest_wait`: `turns.py` says which.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from dshpc_setup.slurm import job_states, pending, slurm_conf
from dshpc_setup.slurm.nodes import TAKEN_OUT, Node, parse_gres
from dshpc_setup.slurm.pending import Request
from dshpc_setup.slurm_releases import waits_for

FILE = "/run/dshpc/longest_wait.json"  # what is kept, for who asks what is free
OURS = "longest_wait-"
BESIDE = f"{OURS}beside-"
_MOST_NODES = 100_000  # of one name such as "node[1-3]"; what claims more is damaged
_JOB = (
    *pending.JOB,
    *("EligibleTime", "PriorityLong", "Reservation", "OverSubscribe", "ExcNodes", "HetJobID"),
)
_PLACE = "NodeList Partition CPUs Memory Gres GresUsed StateLong Features OverSubscribe".split()
_NEXT = "\x1e"
_SCRIPT = """squeue -h -a -t PENDING -O "$1" | head -c 33554432
printf '\\n%s' "$3" && sinfo -h -N -a -O "$2" && printf %s "$3" && scontrol -o show reservation"""


@dataclass(frozen=True)
class Need:
    """What a job takes of each of its nodes; of GPUs by GRES name, and by "gpu" where any will do."""

    cpus: int = 0
    memory_mib: int = 0
    gpus: Mapping[str, int] = field(default_factory=dict)
    everything: bool = False


@dataclass(frozen=True)
class Waiting:
    """A queued job; `waited_s` is None for one that is held, or that waits for something else than room."""

    asked: Request
    waited_s: float | None
    priority: int = 1
    reservation: str = ""
    alone: bool = False  # --exclusive
    excluded: str = ""

    @property
    def tasks(self) -> tuple[str, ...]:
        """As scontrol takes them: "7", or the tasks that wait together, each by itself."""
        job = self.asked.job
        if not job_states.is_group(job):
            return (job,)
        number = job.partition("_")[0]
        return tuple(f"{number}_{task}" for task in sorted(job_states.tasks_of(job))) or (job,)

    @property
    def order(self) -> tuple[int, ...]:
        """Slurm's own: by priority, then by number."""
        return (-self.priority, *map(int, re.findall(r"\d+", self.tasks[0])))

    @property
    def need(self) -> Need:
        asked, nodes = self.asked, max(1, self.asked.nodes)
        counts = dict(asked.gres_per_node)
        for name, count in asked.gres.items():
            counts[name] = counts.get(name, 0) + -(-count // nodes)
        cpus, memory = asked.cpus or 1, asked.memory_mib or 0
        return Need(-(-cpus // nodes), -(-memory // nodes), whole_gpus(counts), self.alone)


@dataclass(frozen=True)
class Place:
    """A node: what it has, and what of its GPUs is free."""

    status: Node
    cpus: int  # for jobs that take less than a core each, so many times as there are
    memory_mib: int
    features: frozenset[str] = frozenset()
    partitions: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return self.status.name

    @property
    def gpus(self) -> Mapping[str, int]:
        return {
            name: n for name, n in self.status.gres_total.items() if name.split(":")[0] == "gpu"
        }

    def free(self, kinds: Iterable[str]) -> int:
        """How many of these are free, whichever GPUs the shares are of that are in use."""
        used = self.status.gres_in_use
        shares = sum(count for name, count in used.items() if name.split(":")[0] != "gpu")
        return max(0, sum(self.gpus[name] - used.get(name, 0) for name in kinds) - shares)

    def kinds(self, need: Need) -> frozenset[str]:
        """Of its GPUs those of which the job may take one."""
        return frozenset(name for name in self.gpus if name in need.gpus or "gpu" in need.gpus)

    @property
    def is_usable(self) -> bool:
        return self.status.usable or self.status.plain_state == "reserved"

    @property
    def comes_back(self) -> bool:
        """Whether jobs will begin there again before anybody has done anything: a slurmctld that has just
        started does not know yet how it is."""
        return self.status.plain_state not in (*TAKEN_OUT, "inval")

    def fits(self, job: Waiting) -> bool:
        """Whether it could run the job, were it empty. What only Slurm can judge ("a|b") is no."""
        need, asked = job.need, job.asked
        named, excluded = (_names(text) for text in (asked.wanted_nodes, job.excluded))
        wants = set(filter(None, asked.features.split("&")))
        return (
            (not self.partitions or bool(self.partitions & set(asked.partitions)))
            and (not named or self.name in named)
            and self.name not in excluded
            and wants <= self.features
            and need.cpus <= self.cpus
            and need.memory_mib <= self.memory_mib
            and all(
                sum(self.gpus[kind] for kind in self.kinds(Need(gpus={name: n}))) >= n
                for name, n in need.gpus.items()
            )
            and (not need.gpus or bool(self.kinds(need)))
        )


@dataclass(frozen=True)
class Reservation:
    name: str
    nodes: tuple[str, ...]
    ends: datetime | None = None  # of Slurm's clock and zone

    @property
    def first(self) -> str | None:
        """The job that comes first by it; None where it is for those beside."""
        return None if self.name.startswith(BESIDE) else self.name.removeprefix(OURS)


@dataclass(frozen=True)
class Look:
    """What the controller said: queued jobs in their order, nodes, and reservations of ours."""

    queue: tuple[Waiting, ...] = ()
    places: tuple[Place, ...] = ()
    reservations: Mapping[str, Reservation] = field(default_factory=dict)


def argv() -> list[str]:
    """All in one call."""
    return ["sh", "-c", _SCRIPT, "sh", pending.option(_JOB), pending.option(_PLACE), _NEXT]


def parse(text: str, now: datetime) -> Look:
    """`now` is of Slurm's clock and zone."""
    jobs, nodes, reservations, *_ = [*text.split(_NEXT), "", ""]
    cells = (dict(zip(_JOB, row, strict=True)) for row in pending.rows(jobs, len(_JOB)))
    queue = (_waiting(each, now) for each in cells if not each["HetJobID"].strip("0"))
    return Look(
        tuple(sorted(queue, key=lambda job: job.order)),
        _places(pending.rows(nodes, len(_PLACE))),
        parse_reservations(reservations),
    )


def parse_reservations(text: str) -> dict[str, Reservation]:
    """Of `scontrol -o show reservation` those that are ours, by name."""
    found = (_reservation(line) for line in text.splitlines())
    return {each.name: each for each in found if each is not None}


def _waiting(cells: Mapping[str, str], now: datetime) -> Waiting:
    asked = pending.request(cells)
    priority = slurm_conf.number(cells["PriorityLong"]) or 0
    since = _time(cells["EligibleTime"])
    room = waits_for(asked.reason) in ("first_look", "turn", "resources", "node")
    return Waiting(
        asked,
        max(0.0, (now - since).total_seconds()) if since and priority and room else None,
        priority,
        cells["Reservation"],
        cells["OverSubscribe"] in ("NO", "EXCLUSIVE"),
        cells["ExcNodes"],
    )


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=None)
    except ValueError:  # "N/A", "Unknown"
        return None


def _places(rows: Iterable[Sequence[str]]) -> tuple[Place, ...]:
    """A row for each partition of a node."""
    found: dict[str, Place] = {}
    for row in rows:
        cells = dict(zip(_PLACE, row, strict=True))
        known = found.get(cells["NodeList"])
        # FORCE:2 of a node with more GPUs than CPUs (decision 0007)
        times = re.fullmatch(r"FORCE:(\d{1,3})", cells["OverSubscribe"])
        cpus = (slurm_conf.number(cells["CPUs"]) or 0) * (int(times[1]) if times else 1)
        total, used = parse_gres(cells["Gres"]), parse_gres(cells["GresUsed"])
        found[cells["NodeList"]] = Place(
            Node(cells["NodeList"], cells["StateLong"], None, total, used),
            max(cpus, known.cpus if known else 0),
            slurm_conf.number(cells["Memory"]) or 0,
            frozenset(filter(None, cells["Features"].split(","))),
            frozenset((cells["Partition"].rstrip("*"), *(known.partitions if known else ()))),
        )
    return tuple(found.values())


def _reservation(line: str) -> Reservation | None:
    words = dict(word.split("=", 1) for word in line.split() if "=" in word)
    name = words.get("ReservationName", "")
    if not name.startswith(OURS):
        return None
    return Reservation(name, _names(words.get("Nodes", "")), _time(words.get("EndTime", "")))


def _names(text: str) -> tuple[str, ...]:
    """ "lab,node[1-3]" -> the four."""
    listed = slurm_conf.items(text)
    return tuple(name for item in listed for name in slurm_conf.expand(item, _MOST_NODES))


def whole_gpus(gres: Mapping[str, int]) -> dict[str, int]:
    """Whole ones; who has or wants a share has none, of any."""
    return {
        name if name.split(":")[0] == "gpu" else "gpu": count if name.split(":")[0] == "gpu" else 0
        for name, count in gres.items()
    }

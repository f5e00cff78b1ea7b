"""What the controller says of queued jobs, and of what there is for them: asked in one call."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dshpc_setup.slurm import slurm_conf
from dshpc_setup.slurm.nodes import Node, parse_gres

_CUT = "\x1f"  # between columns: Slurm's own texts hold every printable sign, '|' included
_NEXT = "\x1e"  # between the answers
JOB = (
    "JobArrayID Partition Reason tres-alloc tres-per-job tres-per-node tres-per-socket tres-per-task "
    "mem-per-tres cpus-per-tres NumTasks Feature Dependency ReqNodes UserName Name"
).split()
_NODE = "NodeList CPUs Memory Gres StateLong Features Reason".split()
_PARTITION = "PartitionName Available".split()
# No more of the queue than is read of an answer: what else there is has to stay readable
_SCRIPT = """squeue -h -t PENDING -O "$1" | head -c 33554432
printf '\\n%s' "$4" && sinfo -h -N -a -O "$2" && printf %s "$4" && sinfo -h -a -O "$3\""""


@dataclass(frozen=True)
class Request:
    """A queued job; numbers are of the whole job but for `_per_node`, None where it does not say."""

    job: str  # "7", "7_[1-4]"
    user: str
    name: str
    partitions: tuple[str, ...]
    reason: str  # Slurm's own word for why it waits
    cpus: int | None = None
    memory_mib: int | None = None
    nodes: int = 1
    gres: Mapping[str, int] = field(default_factory=dict)  # {"gpu:h100": 4, "gpu": 1}
    gres_per_node: Mapping[str, int] = field(default_factory=dict)
    features: str = ""
    dependency: str = ""
    wanted_nodes: str = ""

    @property
    def id(self) -> str:
        """As commands take it: the tasks of an array together."""
        return self.job.partition("_[")[0]


@dataclass(frozen=True)
class NodeResources:
    """What a node offers to jobs."""

    status: Node
    cpus: int | None
    memory_mib: int | None
    features: str


@dataclass(frozen=True)
class Queue:
    """What the controller answered: queued jobs, nodes, and partition -> "up", "down", ..."""

    jobs: tuple[Request, ...] = ()
    nodes: tuple[NodeResources, ...] = ()
    partitions: Mapping[str, str] = field(default_factory=dict)


def argv() -> list[str]:
    """The queue and what there is for it, in one call."""
    columns = map(option, (JOB, _NODE, _PARTITION))
    return ["sh", "-c", _SCRIPT, "sh", *columns, _NEXT]


def option(names: Sequence[str]) -> str:
    """The columns as `-O` takes them."""
    return ",".join(f"{name}:{_CUT}" for name in names)


def parse(text: str) -> Queue:
    """The three answers, one after the other; lines that are none of theirs are left out."""
    jobs, nodes, partitions, *_ = [*text.split(_NEXT), "", "", ""]
    rooms = {room.status.name: room for room in map(_room, rows(nodes, len(_NODE)))}
    return Queue(
        tuple(request(dict(zip(JOB, row, strict=True))) for row in rows(jobs, len(JOB))),
        tuple(rooms.values()),
        {name.rstrip("*"): state for name, state in rows(partitions, len(_PARTITION))},
    )


def rows(text: str, columns: int) -> Iterable[list[str]]:
    """Lines with that many columns, each of which ends with the cut; "nothing" becomes ""."""
    for line in text.split("\n"):
        cells = [cell.strip() for cell in line.split(_CUT)]
        if len(cells) == columns + 1 and cells[0]:
            yield ["" if cell in ("N/A", "(null)") else cell for cell in cells[:-1]]


def request(cells: Mapping[str, str]) -> Request:
    """Of the columns JOB; others beside them are left out."""
    tres = parse_tres(cells["tres-alloc"])
    tasks = slurm_conf.number(cells["NumTasks"]) or 1
    per_task = {name: count * tasks for name, count in parse_tres(cells["tres-per-task"]).items()}
    whole = _gres_of(parse_tres(cells["tres-per-job"]), per_task)
    per_node = _gres_of(parse_tres(cells["tres-per-node"]), parse_tres(cells["tres-per-socket"]))
    nodes = tres.get("node", 1)
    gpus = _gpus(whole) + _gpus(per_node) * nodes
    per_gpu = re.fullmatch(r"(?:gres[/:])?gpu:(\d{1,12})", cells["mem-per-tres"])
    return Request(
        job=cells["JobArrayID"],
        user=cells["UserName"],
        name=cells["Name"],
        partitions=tuple(filter(None, cells["Partition"].split(","))),
        reason=cells["Reason"],
        cpus=tres.get("cpu"),
        # With memory per GPU, `mem` is what the job would have without one
        memory_mib=int(per_gpu[1]) * gpus if per_gpu and gpus else tres.get("mem"),
        nodes=nodes,
        gres=whole,
        gres_per_node=per_node,
        features=cells["Feature"],
        dependency=cells["Dependency"],
        wanted_nodes=cells["ReqNodes"],
    )


def _room(row: list[str]) -> NodeResources:
    cells = dict(zip(_NODE, row, strict=True))
    reason = cells["Reason"] if cells["Reason"] != "none" else ""
    status = Node(
        cells["NodeList"], cells["StateLong"], reason or None, parse_gres(cells["Gres"]), {}
    )
    return NodeResources(
        status,
        slurm_conf.number(cells["CPUs"]),
        slurm_conf.number(cells["Memory"]),
        cells["Features"],
    )


def parse_tres(text: str) -> dict[str, int]:
    """ "cpu=2,mem=10847M,gres/gpu:h100:2" -> {"cpu": 2, "mem": 10847, "gpu:h100": 2}; memory in MiB."""
    found: dict[str, int] = {}
    for item in filter(None, text.split(",")):
        match = re.fullmatch(
            r"(?:gres[/:])?([^=]+?)(?:[:=]([0-9.]{1,18})([KMGTP]?))?", item.strip()
        )
        if match is None:
            continue
        name = match[1]
        if name == "mem":
            count = _mib(match[2] or "", match[3] or "M")
        else:
            count = int(match[2]) if (match[2] or "1").isdecimal() and match[2] else 1
        if count is not None:
            found[name] = found.get(name, 0) + count
    return found


def _mib(number: str, unit: str) -> int | None:
    """Rounded up: a job that asks for half a MiB more than there is cannot run."""
    if not re.fullmatch(r"\d{1,12}(?:\.\d{1,4})?", number):
        return None
    factor = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3}[unit]
    return -int(-float(number) * factor // 1)


def _gres_of(*counts: Mapping[str, int]) -> dict[str, int]:
    """What of the counts is GRES, added up."""
    added: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            if name.split(":")[0] in ("gpu", "shard", "mps"):
                added[name] = added.get(name, 0) + count
    return added


def _gpus(counts: Mapping[str, int]) -> int:
    return sum(count for name, count in counts.items() if name.split(":")[0] == "gpu")

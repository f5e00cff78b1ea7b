"""What a plan is made of: all that the templates need to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from dshpc_setup import gpu_vendors
from dshpc_setup.facts import GpuDevice, Vendor

Isolation = Literal["default", "enforced"]
GresType = Literal["model", "index"]
DATABASE_PORT = 6819
# Where a cluster has other machines, each node has one of these features, and nodes that take the jobs of
# their owner alone have a partition of their own
SHARED_NODE, OWNED_NODE, OWNERS = "shared_node", "owned_node", "owners"


@dataclass(frozen=True)
class GresLine:
    """One schedulable GPU (a whole card, a MIG instance or a partition): one line of gres.conf."""

    slurm_type: str
    vendor: Vendor
    files: tuple[str, ...]  # one: File=; several: MultipleFiles=
    index: int
    uuid: str | None = None
    cores: str | None = None  # in Slurm's own numbers, "0-15": those of the socket it is near
    links: tuple[int, ...] = ()  # connections to each line, -1 to itself; (): not known, or alike


@dataclass(frozen=True)
class DeviceLink:
    """A name of our own for a device node that stands for several GPUs: WSL2 has one for all.

    Slurm refuses a file that is named twice, and takes a symbolic link for a device of its own.
    """

    path: str
    target: str


@dataclass(frozen=True)
class Sharing:
    """A GRES by which several jobs get one GPU: `count` of them over all GPUs of the node."""

    kind: Literal["shard", "mps"]
    count: int


@dataclass(frozen=True)
class Partition:
    """`max_time` as Slurm writes it: "INFINITE", "1:00:00", "7-0"."""

    name: str
    max_time: str = "INFINITE"


@dataclass(frozen=True)
class ExtraLine:
    """A line of the user's for slurm.conf; `key` is what it begins with."""

    key: str
    text: str


@dataclass(frozen=True)
class ClusterPlan:
    """All that the templates need to know."""

    cluster: str
    node: str
    partition: str
    cpus: int
    real_memory_mib: int
    def_mem_per_cpu_mib: int
    sockets: int | None = None  # sockets, cores and threads: all three or none
    cores_per_socket: int | None = None
    threads_per_core: int | None = None
    oversubscribe: int = 1  # jobs a CPU may be given to: more than 1 where GPUs outnumber CPUs
    gres: tuple[GresLine, ...] = ()
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # ^ what people may say -> the types of this node that it means, the best one first; "": any GPU
    gres_type: GresType = "model"  # index: each line has a type of its own
    ambiguous: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # ^ what people may not say -> the types of which it would mean some
    vendor: str = "none"  # its name, mixed or none
    gpu_type: str = "none"  # the image's GPU_TYPE: a vendor's name, all or none
    simulated: bool = False
    gpus: tuple[GpuDevice, ...] = ()
    left_out: tuple[str, ...] = ()  # why a GPU, or every GPU, is not used: one sentence each
    features: tuple[str, ...] = ()  # what all GPUs of the node have in common: for --constraint
    sharing: Sharing | None = None
    device_links: tuple[DeviceLink, ...] = ()  # to be made before slurmd is asked
    isolation: Isolation = "default"
    def_cpu_per_gpu: int | None = None  # what a GPU job gets that names no CPUs, no memory
    def_mem_per_gpu_mib: int | None = None
    tmp_disk_mib: int | None = None
    more_partitions: tuple[Partition, ...] = ()
    max_array_size: int = 10001
    ports: tuple[int, ...] = (6817, 6818)  # of slurmctld and slurmd, and perhaps of slurmdbd
    max_job_count: int = 100_000  # each task of an array is a job
    extra: tuple[ExtraLine, ...] = ()
    rest: bool = False  # whether clients of slurmrestd have tokens
    accounting: bool = False  # whether slurmdbd keeps jobs, users and their limits
    role: Literal["alone", "controller", "worker"] = "alone"
    controller: str = ""  # the controller's node, of a worker
    shared_as: str = ""  # the kind of `sharing` on any node, where there are others
    srun_ports: tuple[int, int] | None = None  # None: other machines are none of the cluster's
    is_joined: bool = False  # a worker on another machine than the controller's
    own_work: bool = False  # whose work folder is not the controller's
    carried_work: str = ""  # where workspaces are carried to therefore
    owner: int | None = None  # the user whose jobs alone it takes

    @property
    def has_other_nodes(self) -> bool:
        return self.role != "alone"

    @property
    def gres_counts(self) -> Mapping[str, int]:
        """Slurm type -> count, in the order of first appearance."""
        counts: dict[str, int] = {}
        for line in self.gres:
            counts[line.slurm_type] = counts.get(line.slurm_type, 0) + 1
        return counts

    @property
    def gres_flags(self) -> str:
        """`Flags=` of every line: which variables name a job's GPUs. Slurm wants all lines alike."""
        vendors = dict.fromkeys(line.vendor for line in self.gres)
        known = filter(None, map(gpu_vendors.find, vendors))
        flags = (vendor.slurm.env_flag for vendor in known)
        # Without any flag Slurm would set the variables of all vendors that it knows
        return ",".join(filter(None, flags)) or ("no_gpu_env" if vendors else "")

    @property
    def gres_text(self) -> str:
        """As `Gres=` wants it: "gpu:h100:7,gpu:1g.10gb:2,shard:36"; "" without a GPU."""
        items = [f"gpu:{kind}:{count}" for kind, count in self.gres_counts.items()]
        if self.sharing:
            items.append(f"{self.sharing.kind}:{self.sharing.count}")
        return ",".join(items)

    @property
    def gres_types(self) -> str:
        """`GresTypes=`: always with "gpu", for without it a GPU job would run with no GPU."""
        kind = self.sharing.kind if self.sharing else self.shared_as
        return f"gpu,{kind}" if kind else "gpu"

    @property
    def counted(self) -> str:
        """`AccountingStorageTRES=`: GPUs, and each of the node's types. Those of other nodes are GPUs."""
        return ",".join(("gres/gpu", *(f"gres/gpu:{kind}" for kind in self.gres_counts)))

    @property
    def database_port(self) -> int:
        """Of slurmdbd."""
        return self.ports[2] if len(self.ports) > 2 else DATABASE_PORT

    @property
    def all_features(self) -> tuple[str, ...]:
        """Of the node. Where there are other machines, one says which partitions it is in."""
        if self.srun_ports is None:
            return self.features
        return (*self.features, SHARED_NODE if self.owner is None else OWNED_NODE)

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """All of them, the default one first."""
        return (Partition(self.partition), *self.more_partitions)

    @property
    def replaced(self) -> frozenset[str]:
        """Keys of slurm.conf, in lower case, that stand in `extra` and so not in our own lines."""
        return frozenset(line.key.lower() for line in self.extra)

    @property
    def own_memory_default(self) -> bool:
        """Whether `extra` says what memory a job gets that names none: the forms exclude each other."""
        return bool(self.replaced & {"defmempercpu", "defmempernode", "defmempergpu"})

    @property
    def own_scripts(self) -> bool:
        """Whether `extra` names a script for the begin or the end of each job, which Slurm is to run."""
        scripts = {"prolog", "epilog", "prologslurmctld", "epilogslurmctld"}
        return bool(self.replaced & (scripts | {"prepplugins", "prepparameters"}))

    @property
    def gpu_memory_default(self) -> int | None:
        """`DefMemPerGPU` of each partition, in MiB: for jobs that name GPUs and no memory."""
        replaced = self.replaced & {"defmempergpu", "jobdefaults"}
        return None if replaced else self.def_mem_per_gpu_mib

    @property
    def gpu_cpu_default(self) -> int | None:
        """CPUs with each GPU, for jobs that do not say: job_submit.lua's, since Slurm's own
        DefCpuPerGPU refuses jobs of more tasks than that, and jobs of several types."""
        return None if "jobdefaults" in self.replaced else self.def_cpu_per_gpu

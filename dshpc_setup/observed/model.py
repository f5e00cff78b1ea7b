"""What doctor sees beside the facts of the machine: the cluster, its container, the project's files.

Frozen values that are asked by `dshpc_setup.checkup`, written into a report (`dshpc doctor --bundle`) as
`observed.json` and read back from there (`--machine`). Every field has a default that means "not
asked", so that a report of an older version, or a test, names only what it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dshpc_setup.facts import State
from dshpc_setup.observed.cluster_status import ClusterStatus
from dshpc_setup.observed.idle import IdleGpu
from dshpc_setup.settings.overruled import Overruled
from dshpc_setup.settings.wrong import WrongSetting

SCHEMA = "dshpc.observed/1"


@dataclass(frozen=True)
class KernelLog:
    """Messages of the kernel's log that are about GPUs and drivers, oldest first, without their times.

    Those of several lines are joined; reports of older versions hold their lines one by one.
    """

    state: State | None = None  # None: not asked; denied: an ordinary user may not read it
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class MemoryUse:
    """Memory of one GPU or MIG instance: what any program holds of it, in MiB."""

    name: str  # "GPU 0 (NVIDIA H100 PCIe, 0000:41:00.0)"
    used_mib: int
    total_mib: int


@dataclass(frozen=True)
class GpuMemory:
    """GPU memory in use at the moment of the look, of GPUs that have memory of their own."""

    state: State | None = None  # None: not asked
    used: tuple[MemoryUse, ...] = ()


@dataclass(frozen=True)
class DeviceLinks:
    """Of NVIDIA's device nodes, whether each has its link MAJOR:MINOR in /dev/char."""

    state: State | None = None  # None: not asked; denied: this user may not look there
    links: Mapping[str, bool] = field(default_factory=dict)  # "/dev/nvidia0" -> it has one


@dataclass(frozen=True)
class Disk:
    """A file system: `what` is "engine", "project", "work" or "tmp". Sizes in MiB."""

    what: str
    path: str
    free_mib: int
    size_mib: int
    free_inodes: int | None = None  # None: the file system has no fixed number


@dataclass(frozen=True)
class ProjectFile:
    """A file of the project folder that dshpc writes.

    `owner`: missing | ours | custom | edited. `state`: whether it reads as a file of its kind; `detail`
    says why not. `stale`: what would be written now differs from what is there (None: not known).
    """

    path: str  # "config/slurm.conf", "docker-compose.yml", ".env", "dshpc.yaml"
    owner: str
    state: Literal["good", "unreadable", "invalid"] = "good"
    detail: str | None = None
    stale: bool | None = None
    offered: bool = False  # a new text waits beside it (NAME.dshpc-new)
    mode: int | None = None  # permission bits
    text: str | None = None  # of files up to 64 KiB; never of .env
    sha256: str | None = None  # as ownership.digest has it; never of .env


@dataclass(frozen=True)
class OtherCluster:
    """Another cluster that runs on this engine with GPUs of this one."""

    prefix: str
    folder: str
    gpus: tuple[str, ...]  # UUIDs, else PCI addresses


@dataclass(frozen=True)
class ContainerSeen:
    """The cluster's container as the engine describes it."""

    name: str
    status: str  # created | running | paused | restarting | removing | exited | dead
    exit_code: int | None = None
    oom_killed: bool = False
    restarts: int = 0
    health: str | None = None
    image: str | None = None
    image_there: bool | None = None  # whether the image of docker-compose.yml is on this engine
    memory_limit_mib: int | None = None
    shm_mib: int | None = None
    devices: tuple[str, ...] = ()  # device nodes handed over by path
    gpus: tuple[str, ...] = ()  # device requests, in words: "nvidia all", "cdi nvidia.com/gpu=all"
    runtime: str | None = None
    privileged: bool = False
    mounts: Mapping[str, str] = field(default_factory=dict)  # destination -> source or volume name
    published: tuple[str, ...] = ()  # ports open beyond the container: "0.0.0.0:6817"
    log: tuple[str, ...] = ()  # its last lines
    sharing: tuple[OtherCluster, ...] | None = None  # None: not asked


@dataclass(frozen=True)
class Daemon:
    """slurmctld or slurmd under its supervisor."""

    name: str
    up: bool
    pid: int | None = None
    seconds: int | None = None  # since it came up, or went down
    wanted: bool = True  # the supervisor is to keep it up
    exits: int = 0  # times that it ended by itself since the container's start
    version: str | None = None  # "24.11.5", of the program file
    running_version: str | None = None  # of the process that runs


@dataclass(frozen=True)
class KeyFile:
    """Slurm's key in its volume."""

    state: State
    mode: int | None = None
    owner: str | None = None  # user name
    size: int | None = None
    detail: str | None = None  # why it is no key that Slurm takes
    kid: str | None = None  # the name of the one that signs, which is no secret


ProgramFault = Literal["missing", "no_file", "not_executable", "no_interpreter"]


@dataclass(frozen=True)
class NamedProgram:
    """A program that slurm.conf in force names, and that cannot be run."""

    key: str  # "TaskProlog"
    path: str
    fault: ProgramFault


@dataclass(frozen=True)
class WorkFolder:
    """The work folder as a node sees it; None: it has no such folder."""

    inode: int | None = None


@dataclass(frozen=True)
class OtherUser:
    """A user of the cluster who is somebody else on the machine of another node: `number` is what the name
    has there, and `other` the name that the user's number has; None where that is no other."""

    node: str
    name: str
    uid: int
    number: int | None = None
    other: str | None = None


@dataclass(frozen=True)
class Inside:
    """What the container says of itself: the answer of `dshpc-node observe`."""

    time: float | None = None  # its clock, seconds since 1970
    asked_at: float | None = None  # the host's clock, halfway between question and answer
    daemons: tuple[Daemon, ...] = ()
    controller: Literal["up", "down", "silent"] | None = None  # `scontrol ping`
    controller_says: str | None = None  # its error, where it is not up
    key: KeyFile | None = None
    state_volume: Disk | None = None
    state_files_mib: int | None = None  # what Slurm's saved state takes
    zombies: int = 0
    wheel_version: str | None = None  # of dshpc in the container
    packages_days: int | None = None  # since Debian's packages were put into the image
    slurm_package: str | None = None  # "24.11.5-4+deb13u1", Debian's version of slurmctld
    gres_conf: str | None = None  # in force
    slurm_conf: str | None = None
    cgroup_conf: str | None = None
    programs: tuple[NamedProgram, ...] = ()  # of slurm_conf, that cannot be run
    device_files: Mapping[str, bool] = field(default_factory=dict)  # of gres.conf -> can be opened
    gpus: tuple[str, ...] = ()  # Slurm types of what the container sees now
    gpu_problems: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # name -> finding ids
    node_real_memory_mib: int | None = None  # RealMemory of slurm.conf
    memory_limit_mib: int | None = None  # of the container
    node_cpus: int | None = None
    cpus: int | None = None  # that the container may use
    pids_limit: int | None = None  # processes and threads that it may have; None: no limit
    pids_refused: int = 0  # how often the kernel has refused it one more
    host_name: str | None = None
    host_name_resolves: bool | None = None
    controller_resolves: bool | None = None  # of a worker: whether it finds the controller by name
    work: WorkFolder | None = None  # None: not asked
    node_lines: tuple[str, ...] = ()  # `scontrol show node -o`
    errors: tuple[str, ...] = ()  # last lines of the daemons with error: or fatal:
    task_prolog: tuple[str, ...] = ()  # jobs that ended lately at one: "17 (exit code 3)"
    out_of_memory: tuple[str, ...] = ()  # jobs that ended so lately: "17 (train)"
    without_process: tuple[str, ...] = ()  # batch jobs that Slurm takes for running: "17"
    steps_without_process: tuple[str, ...] = ()  # steps of srun that it takes for running: "17_2.0"
    gpus_state: State | None = None  # timeout, error, denied: `gpus` says nothing
    accounting_up: bool | None = None  # slurmdbd and its database answer; None: off, or not asked
    other_users: tuple[OtherUser, ...] = ()  # who are others on the machines of other nodes
    idle_gpus: tuple[IdleGpu, ...] = ()  # held for longer than idle_gpu without use
    other_work: Mapping[str, bool] = field(
        default_factory=dict
    )  # node on another machine without the work folder -> whether workspaces are carried there


@dataclass(frozen=True)
class NodeSeen:
    """Another node of the cluster; `status` is its container's, `problem` why it could not be asked."""

    name: str
    status: str
    inside: Inside | None = None
    problem: str | None = None


LentState = Literal["good", "gone", "empty", "replaced", "unknown"]


@dataclass(frozen=True)
class LentFolder:
    """A folder of this machine that jobs are to see, by one of the settings. `path` is empty where `toolkit`
    is set and nothing was ever found to lend. `empty`: a toolkit without its
    compiler. `replaced`: jobs see what was there before."""

    setting: Literal["home", "mounts", "toolkit"]
    path: str
    state: LentState = "good"


@dataclass(frozen=True)
class Observed:
    """All of it; an empty one where nothing was asked."""

    version: str | None = None  # of dshpc that looked
    project: str | None = None  # the folder; None where there is none
    settings_wrong: tuple[WrongSetting, ...] = ()  # those that cannot be used
    cluster: ClusterStatus | None = None
    container: ContainerSeen | None = None
    inside: Inside | None = None
    inside_problem: str | None = None  # why the container could not be asked
    others: tuple[NodeSeen, ...] = ()  # the nodes beside the controller's own
    work: WorkFolder | None = None  # on this machine; None: there are no others to compare it with
    files: tuple[ProjectFile, ...] = ()
    disks: tuple[Disk, ...] = ()
    kernel: KernelLog = field(default_factory=KernelLog)
    gpu_memory: GpuMemory = field(default_factory=GpuMemory)
    device_links: DeviceLinks = field(default_factory=DeviceLinks)
    wanted_gpus: tuple[str, ...] | None = None  # GPU part that docker-compose.yml would have now
    written_gpus: tuple[str, ...] | None = None  # and the one that it has
    engine_installed: bool | None = None  # a Docker engine's program is here, running or not
    docker_command: bool | None = None  # the docker command is here
    owner: str | None = None  # of a project folder that is another user's: his name
    packages: tuple[str, ...] | None = None  # of methods, as locked: "torch 2.9.0"; None: not read
    leftovers: tuple[str, ...] = ()  # of an interrupted write: paths in the project folder
    overruled: tuple[Overruled, ...] = ()  # settings that a file of the user's own keeps out
    lent: tuple[LentFolder, ...] = ()  # folders of this machine that jobs see
    refused: dict[str, Any] | None = None  # why the last configure-environment put nothing in force

    def daemon(self, name: str) -> Daemon | None:
        """slurmctld or slurmd, None where it was not asked."""
        daemons = self.inside.daemons if self.inside else ()
        return next((item for item in daemons if item.name == name), None)

    def file(self, path: str) -> ProjectFile | None:
        """None where it was not looked at."""
        return next((item for item in self.files if item.path == path), None)

"""All values, parsed: what the rest of the package knows of settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from dshpc_setup.engine_client import OWNER
from dshpc_setup.settings.declarations import BY_NAME, DECLARATIONS
from dshpc_setup.settings.texts import REMOVED
from dshpc_setup.settings.wrong import Source

# In the environment of a node on another machine than the controller's, in place of addresses, as these may
# change while its jobs run: they are in LIVE_FILE
ELSEWHERE = "elsewhere"


@dataclass(frozen=True)
class Place:
    """Which node of the cluster: alone, the controller's own beside workers, or a worker."""

    role: Literal["alone", "controller", "worker"] = "alone"
    node: str = ""  # "": named as the cluster is
    most_gpus: int = 0  # that a node of the cluster has: the defaults of jobs are the same on all
    controller: str = ""  # the address of its machine, of a worker on another one
    own_work: bool = False  # of such a one: its work folder is not the controller's
    carried_work: str = ""  # of such a one: where workspaces of the controller's are carried to
    owner: int | None = None  # of such a one: the user whose jobs alone it takes

    def to_env(self) -> dict[str, str]:
        """Variables that tell a container its place; none where it is alone."""
        if self.role == "alone":
            return {}
        named = {"DSHPC_NODE": self.node} if self.node else {}
        far = {"DSHPC_CONTROLLER": ELSEWHERE} if self.controller else {}
        own = {"DSHPC_OWN_WORK": "1"} if self.own_work else {}
        if self.carried_work:
            own["DSHPC_CARRIED_WORK"] = self.carried_work
        if self.owner is not None:
            own[OWNER] = str(self.owner)
        most = {"DSHPC_MOST_GPUS": str(self.most_gpus)}
        return {"DSHPC_ROLE": self.role, **named, **most, **far, **own}

    @property
    def is_joined(self) -> bool:
        """Whether it is a worker on another machine than the controller's."""
        return bool(self.controller)


ALONE = Place()
_LISTEN = BY_NAME["listen"].env
LIVE_FILE = "live.json"  # of config/: settings that may change while the container runs


@dataclass(frozen=True)
class Settings:
    """All values, parsed; `sources[name]` says where each came from, `texts[name]` what stood there.

    `hidden` are values of dshpc.yaml that a flag or a variable outranks, with their places.
    """

    prefix: str = "dshpc"
    gpu: str = "auto"
    devices: tuple[str, ...] = ()
    unhealthy_gpus: str = "exclude"  # exclude | use
    simulate: str = ""
    nodes: int | tuple[str, ...] = 1  # how many, or what each one simulates
    engine: str = "auto"  # auto | docker | podman | builtin
    work: str = "work"
    home: str = ""  # "": as setup/homes.py says; host | kept
    mounts: tuple[str, ...] = ()  # folders, ":ro" behind some
    toolkit: str = "none"  # none | host
    cuda_paths: tuple[str, ...] = ()  # (): where these toolkits lie as a rule
    workspace_access: str = "private"  # private | group
    partition: str = "debug"
    partitions: tuple[tuple[str, str], ...] = ()  # (name, longest time)
    gpu_sharing: str = "none"  # none | shard:N | mps
    gres_type: str = "model"  # model | index
    isolation: str = "default"  # default | enforced
    containers: str = "off"  # off | on: whether jobs may run in images, where it takes more rights
    slurm_conf_extra: str = ""
    reserve_mib: int | None = None
    shm_size: str = "1g"
    pids_limit: int | None = None  # None: by the number of CPUs; 0: no limit
    log_size: str = ""  # "": as log_bounds.py says; engine; a size
    array_limit: int = 10001
    job_limit: int | None = None  # None: by array_limit
    longest_wait: str = "1h"  # "none": without end
    # slurmctld, slurmd, slurmdbd, then slurmd of further nodes on this machine
    slurm_ports: tuple[int, ...] = (6817, 6818)
    listen: str = "off"  # off, or an address or an interface of this machine
    srun_ports: tuple[int, int] = (61001, 61999)  # the first and the last
    clean_after: str = "30d"
    accounting: str = "off"  # off | on
    rest: str = "off"  # off | on | ADDRESS:PORT
    idle_gpu: str = "30m"
    release_idle: str = "off"  # off, or a time
    metrics: str = "off"  # off, or ADDRESS:PORT
    dashboard: str = "off"  # off, or ADDRESS:PORT
    base_image: str = "debian:trixie-slim"
    apt_mirror: str = ""
    cuda_runtime: str = "no"
    amd_profiling: str = "no"
    homes: tuple[
        str, ...
    ] = ()  # folders above users' own homes, which the cluster sees: home = host
    toolkits: tuple[str, ...] = ()  # what jobs are lent by toolkit = host: settings/lent.py
    place: Place = ALONE  # of the node that these are for
    sources: Mapping[str, Source] = field(default_factory=dict, compare=False)
    texts: Mapping[str, str] = field(default_factory=dict, compare=False)
    hidden: Mapping[str, tuple[Any, Source]] = field(default_factory=dict, compare=False)

    @property
    def of_file(self) -> Settings:
        """As they are without what outranks dshpc.yaml, which has to be right by itself."""
        values = {name: value for name, (value, _) in self.hidden.items()}
        places = {name: source for name, (_, source) in self.hidden.items()}
        return replace(self, **values, sources={**self.sources, **places}, hidden={})

    @property
    def container(self) -> str:
        return f"{self.prefix}-slurm"

    @property
    def worker_containers(self) -> dict[str, str]:
        """Node -> container of each worker on this machine."""
        return {f"{self.prefix}-{each}": f"{self.container}-{each}" for each in self.worker_numbers}

    @property
    def worker_numbers(self) -> tuple[int, ...]:
        """The second node is number 2; one that was removed leaves its number free."""
        return tuple(
            number
            for number, profile in enumerate(self.profiles, 1)
            if number > 1 and profile != REMOVED
        )

    def without_worker(self, number: int) -> str:
        """The setting `nodes` with that worker gone and each other one under its name."""
        kept = [profile or "none" for profile in self.profiles]
        kept[number - 1] = REMOVED
        while kept[-1] == REMOVED:
            kept.pop()
        is_count = isinstance(self.nodes, int) and REMOVED not in kept
        return str(len(kept)) if is_count else ",".join(kept)

    @property
    def node(self) -> str:
        return self.place.node or self.prefix

    @property
    def daemon_ports(self) -> tuple[int, ...]:
        """Of slurmctld, slurmd, and slurmdbd where its port is set."""
        return self.slurm_ports[:3]

    @property
    def profiles(self) -> tuple[str, ...]:
        """What each node of this machine simulates, the controller's first; "": what is there; `REMOVED`
        of a number that no node has."""
        if isinstance(self.nodes, tuple):
            return self.nodes
        return (self.simulate,) * self.nodes

    @property
    def listens(self) -> bool:
        """Whether other machines can be nodes."""
        return self.listen != "off"

    def joined(self, place: Place) -> Settings:
        """Those of the one node that this machine has, of a cluster whose controller is elsewhere."""
        return replace(self, place=place)

    def of_worker(self, number: int) -> Settings:
        """Those of a worker: the second node is number 2. One that simulates none has no GPU: those of
        the machine are the first node's."""
        profile = self.profiles[number - 1]
        place = replace(self.place, role="worker", node=f"{self.prefix}-{number}")
        gpu = self.gpu if profile else "none"
        texts = {**self.texts, "simulate": profile or "none", "gpu": gpu}
        ports = self.slurm_ports
        further = ports[len(self.daemon_ports) :]
        if len(further) > number - 2:  # they share the machine's network
            ports = (ports[0], further[number - 2], *self.daemon_ports[2:])
            texts["slurm_ports"] = ",".join(map(str, ports))
        return replace(
            self, place=place, simulate=profile, devices=(), gpu=gpu, slurm_ports=ports, texts=texts
        )

    def container_env(self) -> dict[str, str]:
        """Variables of the container that give its processes the same settings, as long as it is there:
        those that are not the default.

        Of ports its own alone: those of further nodes come and go, and are no reason to make it anew.
        """
        found = self._variables(live=False)
        if self.place.is_joined:
            found[_LISTEN] = ELSEWHERE
        name = BY_NAME["slurm_ports"].env
        return {**found, name: ",".join(map(str, self.daemon_ports))} if name in found else found

    def live_env(self) -> dict[str, str]:
        """Those that may change while the container runs; of a node that has joined also the addresses, which
        it is told as it joins."""
        place = self.place
        told = (
            {"DSHPC_CONTROLLER": place.controller, _LISTEN: self.listen} if place.is_joined else {}
        )
        return {**self._variables(live=True), **told}

    def live_digests(self) -> dict[str, str]:
        """Names the settings of `live_env`, as a container tells by them what it has read: {} for none."""
        import json

        from dshpc_setup.files.ownership import digest

        texts = self._variables(live=True)
        return {LIVE_FILE: digest(json.dumps(texts, sort_keys=True))} if texts else {}

    def _variables(self, *, live: bool) -> dict[str, str]:
        return {
            item.env: self.texts[item.name]
            for item in DECLARATIONS
            if item.in_container and item.live is live and item.name in self.texts
        }

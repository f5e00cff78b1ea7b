"""Every GPU, what it measures and which job holds it: what `dshpc gpus` shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from dshpc_setup import probes
from dshpc_setup.cluster import gpu_jobs
from dshpc_setup.cluster.gpu_jobs import ClusterGpus, Job
from dshpc_setup.errors import Exit
from dshpc_setup.facts import Evidence, GpuDevice, Gpus, MigInstance, Section, State
from dshpc_setup.machine import Ended, Machine, Say, earlier
from dshpc_setup.machine.overlay import with_simulated_gpus
from dshpc_setup.plan.devices import asked_as
from dshpc_setup.probes import readings
from dshpc_setup.probes.readings import PartReading, Reading, Readings
from dshpc_setup.project.folder import Project
from dshpc_setup.settings import Settings
from dshpc_setup.slurm.gpus import SlurmGpu

SCHEMA = "dshpc.gpus/1"
DEADLINE_S = 10.0
_HEADROOM_S = 0.5  # for what is asked inside to end by itself, with the better words
_SECTIONS: tuple[Section, ...] = ("gpus",)


@dataclass(frozen=True)
class Part:
    """A MIG instance; `jobs` is None where it is not known who holds it."""

    instance: MigInstance
    reading: PartReading
    slurm_type: str | None
    in_slurm: bool
    jobs: tuple[Job, ...] | None


@dataclass(frozen=True)
class Card:
    """A GPU; `slurm_type` is None where no job can ask for it as a whole."""

    device: GpuDevice
    reading: Reading
    slurm_type: str | None
    in_slurm: bool
    jobs: tuple[Job, ...] | None
    parts: tuple[Part, ...] = ()

    @property
    def memory_total_mib(self) -> int | None:
        own = self.device.memory_mib
        return own if own is not None else self.reading.memory_total_mib


@dataclass(frozen=True)
class GpusNow:
    """One look. `age_s` is set where the values are older than it: the driver gave no answer.

    `settings` are the project's, for what the cluster does not say itself.
    """

    gpus: Gpus
    readings: Readings
    cluster: ClusterGpus | None
    cluster_ms: float = 0.0
    evidence: tuple[Evidence, ...] = ()  # of the hardware
    taken: float = 0.0
    no_answer: bool = False
    age_s: float | None = None
    settings: Settings = field(default_factory=Settings)
    others: tuple[GpusNow, ...] = ()  # of the cluster's other nodes

    @property
    def node(self) -> str | None:
        """Whose GPUs these are, where the cluster says it."""
        return self.cluster.node if self.cluster is not None else None

    @property
    def hung(self) -> bool:
        """Whether the hardware gave no answer in time."""
        timed_out = any(item.state == "timeout" for item in self.evidence)
        return self.gpus.state == "timeout" or self.readings.hung or timed_out

    @property
    def exit_code(self) -> int:
        unread = self.gpus.state in ("timeout", "denied", "error") or self.readings.refused
        silent = self.cluster is not None and self.cluster.hung
        late = any(each.exit_code for each in self.others)
        return int(Exit.INCOMPLETE if self.hung or unread or silent or late else Exit.OK)

    def cards(self) -> tuple[Card, ...]:
        holders = _Holders(self.gpus, self.cluster)
        measured = [*self.readings.devices, *(Reading() for _ in self.gpus.devices)]
        return tuple(
            _card(device, reading, holders, asked_as(device, self.settings))
            for device, reading in zip(self.gpus.devices, measured, strict=False)
        )

    def _all_evidence(self) -> tuple[Evidence, ...]:
        if self.cluster is None:
            return self.evidence
        state = _OF_CLUSTER.get(self.cluster.state, "absent")
        detail = self.cluster.detail
        seen = Evidence("cluster", state, self.cluster.container, self.cluster_ms, detail)
        return (*self.evidence, seen)

    def to_json(self) -> dict[str, Any]:
        """The `dshpc.gpus/1` object."""
        return {
            "schema": SCHEMA,
            "exit_code": self.exit_code,
            "simulated": self.gpus.simulated,
            "state": self.gpus.state,
            "detail": self.gpus.detail,
            "gpus": [_card_json(card) for card in self.cards()],
            "cluster": None if self.cluster is None else self.cluster.to_json(),
            "idle_gpus": [asdict(each) for each in (self.cluster.idle if self.cluster else ())],
            "evidence": [asdict(item) for item in self._all_evidence()],
            **({"nodes": [each.of_node() for each in self.others]} if self.others else {}),
        }

    def of_node(self) -> dict[str, Any]:
        """What the object has of another node."""
        return {
            "node": self.node,
            "state": self.gpus.state,
            "gpus": [_card_json(card) for card in self.cards()],
            "cluster": None if self.cluster is None else self.cluster.to_json(),
        }


_OF_CLUSTER: dict[str, State] = {"ready": "present", "timeout": "timeout", "error": "error"}


def _card_json(card: Card) -> dict[str, Any]:
    device, reading = card.device, card.reading
    return {
        "index": device.index,
        "vendor": device.vendor,
        "name": device.name,
        "uuid": device.uuid,
        "pci_bus_id": device.pci_bus_id,
        "partition_of": device.partition_of,
        "slurm_type": card.slurm_type,
        "memory_total_mib": card.memory_total_mib,
        "memory_used_mib": reading.memory_used_mib,
        "utilization_percent": reading.utilization_percent,
        "temperature_c": reading.temperature_c,
        "power_w": reading.power_w,
        "power_limit_w": reading.power_limit_w,
        "problems": list(device.problems),
        "jobs": _jobs_json(card.jobs),
        "mig": [_part_json(part) for part in card.parts],
    }


def _part_json(part: Part) -> dict[str, Any]:
    own = part.instance.memory_mib
    return {
        "profile": part.instance.profile,
        "uuid": part.instance.uuid,
        "slurm_type": part.slurm_type,
        "memory_total_mib": own if own is not None else part.reading.memory_total_mib,
        "memory_used_mib": part.reading.memory_used_mib,
        "jobs": _jobs_json(part.jobs),
    }


def _jobs_json(jobs: tuple[Job, ...] | None) -> list[dict[str, Any]] | None:
    return None if jobs is None else [job.to_json() for job in jobs]


class _Holders:
    """Finds Slurm's GPU of a device, and the jobs that hold it."""

    def __init__(self, gpus: Gpus, cluster: ClusterGpus | None) -> None:
        known = cluster is not None and cluster.simulated in (None, gpus.simulated)
        listed = cluster.listed if cluster is not None and known else None
        self._jobs = cluster.jobs if cluster is not None and listed is not None else None
        self._by_files: dict[frozenset[str], int] = {}
        self._by_uuid: dict[str, int] = {}
        self._listed: tuple[SlurmGpu, ...] = listed or ()
        for place, gpu in enumerate(self._listed):
            self._by_files.setdefault(frozenset(gpu.files), place)
            if gpu.uuid:
                self._by_uuid.setdefault(gpu.uuid, place)

    def of(
        self, uuid: str | None, files: tuple[str, ...]
    ) -> tuple[SlurmGpu | None, tuple[Job, ...] | None]:
        """Slurm's GPU, None where it has none of it; the jobs, None where they are not known."""
        place = self._by_uuid.get(uuid or "")
        if place is None and files:
            place = self._by_files.get(frozenset(files))
        if self._jobs is None:
            return (None if place is None else self._listed[place]), None
        jobs = tuple(job for job in self._jobs if place is not None and place in job.held)
        return (None if place is None else self._listed[place]), jobs


def _card(device: GpuDevice, reading: Reading, holders: _Holders, types: Sequence[str]) -> Card:
    found, jobs = holders.of(device.uuid, device.device_files)
    if device.mig_mode != "enabled":
        kind = found.slurm_type if found and found.slurm_type else None
        kind = kind or next(iter(types), device.slurm_type)
        return Card(device, reading, kind, found is not None, jobs)
    parts = tuple(
        _part(instance, reading.part(instance.uuid, place), holders, types[place : place + 1])
        for place, instance in enumerate(device.mig)
    )
    if jobs is not None:
        held = {job.job_id: job for part in parts for job in part.jobs or ()}
        jobs = tuple(held.values())
    return Card(device, reading, None, False, jobs, parts)


def _part(
    instance: MigInstance,
    reading: PartReading,
    holders: _Holders,
    types: Sequence[str],
) -> Part:
    found, jobs = holders.of(instance.uuid, instance.device_files)
    kind = found.slurm_type if found and found.slurm_type else None
    kind = kind or next(iter(types), instance.profile)
    return Part(instance, reading, kind, found is not None, jobs)


def look(
    machine: Machine,
    project: Project | None,
    simulate: str = "",
    *,
    deadline_s: float = DEADLINE_S,
    listed: Gpus | None = None,
    cluster: ClusterGpus | None = None,
    hardware: bool = True,
) -> GpusNow:
    """Hardware and cluster, asked at the same time, within the deadline.

    `simulate` is the made-up machine of the project's settings; what a running cluster says that it
    has counts more. `listed` and `cluster` are of an earlier look: then only what may have changed
    is asked. Without `hardware` no driver is.
    """
    questions: dict[str, Callable[[Say], None]] = {}
    if hardware:
        questions["gpus"] = _hardware(with_simulated_gpus(machine, simulate), listed, deadline_s)
    if project is not None:
        questions["cluster"] = _cluster(machine, project, cluster, deadline_s)
    ended = machine.apart(questions, deadline_s=deadline_s)
    said = _of_cluster(ended.get("cluster"), project)
    ms = ended["cluster"].ms if "cluster" in ended else 0.0
    if made_up := made_up_by(said, machine.clock()):
        return replace(made_up, cluster_ms=ms)
    if said is not None and said.simulated is False and simulate and hardware:
        question = {"gpus": _hardware(machine, listed, deadline_s)}
        ended = {**ended, **machine.apart(question, deadline_s=deadline_s)}
    gpus, found, evidence = _of_hardware(ended.get("gpus"))
    return GpusNow(gpus, found, said, ms, evidence, machine.clock())


def made_up_by(said: ClusterGpus | None, taken: float) -> GpusNow | None:
    """What a cluster of made-up GPUs says that it has; None of another one: the hardware tells that."""
    if said is None or not said.simulated or said.reported is None:
        return None
    return GpusNow(said.reported, Readings(), said, taken=taken)


def _hardware(machine: Machine, listed: Gpus | None, deadline_s: float) -> Callable[[Say], None]:
    def ask(say: Say) -> None:
        ends = machine.clock() + earlier(deadline_s, _HEADROOM_S)
        gpus = listed
        if gpus is None or gpus.simulated != (machine.simulated is not None):
            left_s = max(0.1, ends - machine.clock())
            facts = probes.gather(machine, engine=False, only=_SECTIONS, deadline_s=left_s)
            gpus = facts.gpus
            say(facts.evidence)
        say(gpus)
        say(readings.gather(machine, gpus, max(0.1, ends - machine.clock())))

    return ask


def _cluster(
    machine: Machine, project: Project, before: ClusterGpus | None, deadline_s: float
) -> Callable[[Say], None]:
    left_s = earlier(deadline_s, _HEADROOM_S)
    return lambda say: say(gpu_jobs.ask(machine, project, left_s, before))


def _of_cluster(end: Ended | None, project: Project | None) -> ClusterGpus | None:
    if end is None or project is None:
        return None
    if end.items:
        answer = end.items[0]
        return answer if isinstance(answer, ClusterGpus) else None
    container = project.runtime().get("container")
    state = "error" if end.state == "present" else end.state
    return ClusterGpus(container, state, end.detail) if isinstance(container, str) else None


def _of_hardware(end: Ended | None) -> tuple[Gpus, Readings, tuple[Evidence, ...]]:
    if end is None:
        return Gpus("unsupported", detail="not asked"), Readings(), ()
    gpus = Gpus("error" if end.state == "present" else end.state, detail=end.detail)
    found, evidence = Readings(), tuple[Evidence, ...]()
    for item in end.items:
        if isinstance(item, Gpus):
            gpus = item
        elif isinstance(item, Readings):
            found = item
            evidence += item.evidence
        else:
            evidence += tuple(item)
    if end.state != "present":
        evidence += (Evidence("gpus", end.state, "", end.ms, end.detail),)
    return gpus, found, evidence

"""What was seen, as families of prometheus-client; pure.

Where name and unit are the same thing, a name is that of NVIDIA's DCGM exporter (its default-counters.csv)
or of Slurm's own OpenMetrics (25.11 and later, src/plugins/metrics/openmetrics). A job stands in no label
but those of `dshpc_gpu_job_info`, which ends with the job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from dshpc_setup.cluster.gpus import Card, Part
from dshpc_setup.metrics.look import Seen
from dshpc_setup.probes.readings import Reading

GPU = ("gpu", "UUID", "modelName", "Hostname")
_MOST_LABEL = 100

# (name, help, value of a reading, whether it is a counter)
_OF_CARD: tuple[tuple[str, str, Callable[[Reading], float | None], bool], ...] = (
    ("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", lambda it: it.sm_clock_mhz, False),
    ("DCGM_FI_DEV_MEM_CLOCK", "Memory clock frequency (in MHz).", lambda it: it.memory_clock_mhz, False),
    ("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", lambda it: it.temperature_c, False),
    ("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", lambda it: it.power_w, False),
    ("DCGM_FI_DEV_POWER_MGMT_LIMIT", "Power limit (in W).", lambda it: it.power_limit_w, False),
    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Total energy consumption since boot (in mJ).",
     lambda it: it.energy_mj, True),
    ("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", lambda it: it.utilization_percent, False),
    ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "Total number of single-bit volatile ECC errors.",
     lambda it: it.ecc_corrected, True),
    ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "Total number of double-bit volatile ECC errors.",
     lambda it: it.ecc_uncorrected, True),
)  # fmt: skip

# Slurm's states of a job -> the end of the metric's name
_JOB_STATES = {
    "RUNNING": "running", "PENDING": "pending", "COMPLETED": "completed", "FAILED": "failed",
    "CANCELLED": "cancelled", "TIMEOUT": "timeout", "OUT_OF_MEMORY": "outofmemory",
    "NODE_FAIL": "node_failed", "PREEMPTED": "preempted", "SUSPENDED": "suspended",
    "COMPLETING": "completing", "CONFIGURING": "configuring", "DEADLINE": "deadline",
    "BOOT_FAIL": "bootfail",
}  # fmt: skip
_NODE_STATES = {
    "ALLOCATED": "alloc", "IDLE": "idle", "MIXED": "mixed", "DOWN": "down", "DRAIN": "drain",
    "COMPLETING": "completing", "UNKNOWN": "unknown", "INVALID_REG": "invalid_reg",
    "NOT_RESPONDING": "noresp", "RESERVED": "resv", "MAINTENANCE": "maint",
}  # fmt: skip
_OF_NODE = (
    ("slurm_node_cpus", "Total number of cpus in the node", "cpus", 1),
    ("slurm_node_cpus_alloc", "Allocated cpus in the node", "cpus_alloc", 1),
    ("slurm_node_memory_bytes", "Total memory in bytes of the node", "memory_mib", 1 << 20),
    ("slurm_node_memory_alloc_bytes", "Bytes allocated to jobs in the node", "memory_alloc_mib", 1 << 20),
    ("slurm_node_memory_free_bytes", "Free memory in bytes of the node", "memory_free_mib", 1 << 20),
    ("slurm_node_gpus", "Total number of gpus in the node", "gpus", 1),
)  # fmt: skip


class Snapshot(Collector):
    """What prometheus-client's writers take: the families of one look."""

    def __init__(self, seen: Seen) -> None:
        self.families = list(families(seen))

    def collect(self) -> Iterable[Metric]:
        return self.families


def families(seen: Seen) -> Iterator[Metric]:
    yield _one("dshpc_up", "Whether the cluster's container runs and is ready.", seen.up)
    yield _one(
        "dshpc_look_seconds", "How long the look took that these values are of.", seen.took_s
    )
    yield _one("dshpc_look_timestamp_seconds", "When that look was taken.", seen.at)
    yield from _gpus(seen)
    if seen.drift is not None:
        yield _one(
            "dshpc_drift", "Differences found since the last start that got ready.", seen.drift
        )
    if seen.node is not None:
        yield from _slurm(seen.node, seen.cluster)
    if seen.doctor is not None:
        found = GaugeMetricFamily(
            "dshpc_doctor_finding", "Findings of dshpc doctor.", labels=("id", "state")
        )
        for name, state in seen.doctor.findings:
            found.add_metric((name, state), 1)
        yield found


def _one(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=float(value))


def label(text: object) -> str:
    """Of people's own words: no sign that is none, and not without end. The writers escape the rest."""
    told = "".join(sign if sign.isprintable() else "\ufffd" for sign in str(text or ""))
    return told[:_MOST_LABEL]


# GPUs


@dataclass(frozen=True)
class _Own:
    """A card and the node that it is in."""

    node: str
    card: Card

    def labels(self, part: Part | None = None) -> tuple[str, ...]:
        device = self.card.device
        uuid = device.uuid if part is None else part.instance.uuid
        return str(device.index), uuid or "", label(device.name or device.vendor), label(self.node)


def _cards(seen: Seen) -> tuple[_Own, ...]:
    """Of the controller's node, called as the cluster is where it says no name, and of the others."""
    nodes = ((now.node or seen.cluster, now) for now in (seen.gpus, *seen.gpus.others))
    return tuple(_Own(node, card) for node, now in nodes for card in now.cards())


def _gpus(seen: Seen) -> Iterator[Metric]:
    """Of made-up GPUs there is no reading, and so no series but those that say which there are."""
    now, cards = seen.gpus, _cards(seen)
    answers = GaugeMetricFamily(
        "dshpc_gpu_driver_answers", "Whether the GPUs' drivers answer in time."
    )
    answers.add_metric((), float(not now.hung))
    yield answers
    simulated = _one("dshpc_gpus_simulated", "Whether the GPUs are made up.", now.gpus.simulated)
    yield simulated
    more_labels = ("vendor", "type", "pci_bus_id", "mig_profile", "partition_of")
    text = "Each GPU, MIG instance and partition."
    info = GaugeMetricFamily("dshpc_gpu_info", text, labels=(*GPU, *more_labels))
    for own in cards:
        device, address = own.card.device, own.card.device.pci_bus_id or ""
        more = (device.vendor, own.card.slurm_type or "", address, "", device.partition_of or "")
        info.add_metric((*own.labels(), *more), 1)
        for part in own.card.parts:
            profile = (device.vendor, part.slurm_type or "", address, part.instance.profile, "")
            info.add_metric((*own.labels(part), *profile), 1)
    yield info
    for name, text, value, counts in _OF_CARD:
        yield from _readings(cards, (name, text, counts), value)
    yield from _memory(cards)
    yield from _holders(seen, cards)
    yield from _xids(seen, cards)


def _readings(
    cards: tuple[_Own, ...],
    about: tuple[str, str, bool],
    value: Callable[[Reading], float | None],
) -> Iterator[Metric]:
    name, text, counts = about
    # DCGM's own counters have no _total, which prometheus-client adds to each: so they are gauges here
    found = GaugeMetricFamily(name, f"{text} It only grows." if counts else text, labels=GPU)
    for own in cards:
        if (number := value(own.card.reading)) is not None:
            found.add_metric(own.labels(), number)
    if found.samples:
        yield found


def _memory(cards: tuple[_Own, ...]) -> Iterator[Metric]:
    used = GaugeMetricFamily("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", labels=GPU)
    free = GaugeMetricFamily("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", labels=GPU)
    for own in cards:
        card = own.card
        rows = [(own.labels(), card.reading.memory_used_mib, card.memory_total_mib)]
        rows += [
            (own.labels(part), part.reading.memory_used_mib,
             part.instance.memory_mib or part.reading.memory_total_mib)
            for part in card.parts
        ]  # fmt: skip
        for labels, in_use, total in rows:
            if in_use is not None:
                used.add_metric(labels, in_use)
                if total is not None:
                    free.add_metric(labels, max(0, total - in_use))
    yield from (each for each in (used, free) if each.samples)


def _holders(seen: Seen, cards: tuple[_Own, ...]) -> Iterator[Metric]:
    held = GaugeMetricFamily("dshpc_gpu_held", "Jobs that hold the GPU.", labels=GPU)
    jobs = GaugeMetricFamily("dshpc_gpu_job_info", "The job that holds the GPU.",
                             labels=(*GPU, "job", "user", "method", "name"))  # fmt: skip
    idle = GaugeMetricFamily("dshpc_gpu_idle_seconds", "For how long a job has held the GPU without use, "
                             "where that is longer than idle_gpu.", labels=GPU)  # fmt: skip
    methods = (seen.node or {}).get("methods") or {}
    idle_s = {
        each.get("uuid"): each.get("idle_s") for each in (seen.node or {}).get("idle_gpus") or ()
    }
    for own in cards:
        card = own.card
        rows = [(own.labels(), card.jobs)] if not card.parts else []
        rows += [(own.labels(part), part.jobs) for part in card.parts]
        for labels, holders in rows:
            if holders is not None:
                held.add_metric(labels, len(holders))
            for job in holders or ():
                whose = (label(job.job_id), label(job.user), label(methods.get(job.job_id)))
                jobs.add_metric((*labels, *whose, label(job.name)), 1)
            if labels[1] in idle_s:
                idle.add_metric(labels, float(idle_s[labels[1]] or 0))
    yield from (held, jobs, idle)


def _xids(seen: Seen, cards: tuple[_Own, ...]) -> Iterator[Metric]:
    """Of this machine's kernel, and so of the controller's node alone."""
    if seen.doctor is None or seen.gpus.gpus.simulated:
        return
    last = GaugeMetricFamily(
        "DCGM_FI_DEV_XID_ERRORS", "Value of the last XID error encountered.", labels=GPU
    )
    count = GaugeMetricFamily("dshpc_gpu_xid_errors", "XID errors in the kernel's log.", labels=GPU)
    here = seen.gpus.node or seen.cluster
    for own in cards:
        device = own.card.device
        if own.node == here and device.vendor == "nvidia" and device.pci_bus_id is not None:
            number, times = seen.doctor.xids.get(device.pci_bus_id, (0, 0))
            last.add_metric(own.labels(), number)
            count.add_metric(own.labels(), times)
    yield from (each for each in (last, count) if each.samples)


# Slurm


def _slurm(told: Mapping[str, Any], cluster: str) -> Iterator[Metric]:
    daemons = GaugeMetricFamily(
        "dshpc_daemon_up", "Whether the daemon answers.", labels=("daemon", "node")
    )
    daemons.add_metric(("slurmctld", cluster), float(bool(told.get("controller_up"))))
    nodes = _dicts(told.get("nodes"))
    for node in nodes:
        gone = {"DOWN", "NOT_RESPONDING", "UNKNOWN"} & set(map(str, node.get("states") or ()))
        daemons.add_metric(("slurmd", label(node.get("name"))), float(not gone))
    for name, up in (told.get("services") or {}).items():
        daemons.add_metric((label(name), cluster), float(bool(up)))
    yield daemons
    seconds = CounterMetricFamily("dshpc_gpu_seconds", "GPU seconds of jobs that have ended: held, and used.",
                                  labels=("user", "type", "how"))  # fmt: skip
    for row in _dicts(told.get("gpu_seconds")):
        seconds.add_metric((label(row.get("user")), label(row.get("type")), label(row.get("how"))),
                           float(row.get("seconds") or 0))  # fmt: skip
    yield seconds
    if told.get("queue") is not None:
        yield from _jobs(_dicts(told["queue"]))
    if told.get("nodes") is not None:
        yield from _nodes(nodes)
    if told.get("partitions") is not None:
        yield from _partitions(_dicts(told["partitions"]), _dicts(told.get("queue")))
    for name, value in sorted((told.get("scheduler") or {}).items()):
        yield _one(
            str(name), f"{name.removeprefix('slurm_').replace('_', ' ')}, as sdiag has it.", value
        )


def _dicts(value: object) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _jobs(queue: list[Mapping[str, Any]]) -> Iterator[Metric]:
    yield _one("slurm_jobs", "Total number of jobs", sum(int(row["jobs"]) for row in queue))
    count = Counter[str]()
    users: dict[str, Counter[str]] = {"running": Counter(), "pending": Counter()}
    reasons = Counter[tuple[str, str]]()
    cpus = 0
    for row in queue:
        state = _JOB_STATES.get(str(row["state"]), "")
        count[state] += int(row["jobs"])
        if state in users:
            users[state][label(row["user"])] += int(row["jobs"])
        if state == "pending":
            reasons[label(row["partition"]), label(row["reason"])] += int(row["jobs"])
        cpus += int(row["cpus"]) if state == "running" else 0
    for state in _JOB_STATES.values():
        yield _one(f"slurm_jobs_{state}", f"Number of jobs in {state} state", count[state])
    yield _one("slurm_jobs_cpus_alloc", "Total number of cpus allocated by jobs", cpus)
    for state, of_users in users.items():
        found = GaugeMetricFamily(f"slurm_user_jobs_{state}", f"Jobs of the user in {state} state",
                                  labels=("username",))  # fmt: skip
        for user, number in of_users.items():
            found.add_metric((user,), number)
        yield found
    why = GaugeMetricFamily("dshpc_jobs_pending", "Queued jobs by the reason that Slurm gives.",
                            labels=("partition", "reason"))  # fmt: skip
    for labels, number in reasons.items():
        why.add_metric(labels, number)
    yield why


def _nodes(nodes: list[Mapping[str, Any]]) -> Iterator[Metric]:
    yield _one("slurm_nodes", "Total number of nodes", len(nodes))
    count = Counter(str(state) for node in nodes for state in node["states"])
    for state, name in _NODE_STATES.items():
        yield _one(f"slurm_nodes_{name}", f"Number of nodes in {name} state", count[state])
    for name, text, key, times in _OF_NODE:
        found = GaugeMetricFamily(name, text, labels=("node",))
        for node in nodes:
            if node.get(key) is not None:
                found.add_metric((label(node["name"]),), node[key] * times)
        yield found


def _partitions(rows: list[Mapping[str, Any]], queue: list[Mapping[str, Any]]) -> Iterator[Metric]:
    yield _one("slurm_partitions", "Total number of partitions", len(rows))
    names = [label(row["name"]) for row in rows]
    for key, text in (("nodes", "Total number of nodes"), ("cpus", "Total number of cpus")):
        found = GaugeMetricFamily(
            f"slurm_partition_{key}", f"{text} of the partition", labels=("partition",)
        )
        for name, row in zip(names, rows, strict=True):
            if row.get(key) is not None:
                found.add_metric((name,), row[key])
        yield found
    up = GaugeMetricFamily(
        "dshpc_partition_up", "Whether the partition takes jobs.", labels=("partition",)
    )
    for name, row in zip(names, rows, strict=True):
        up.add_metric((name,), float(bool(row["up"])))
    yield up
    for state in ("RUNNING", "PENDING"):
        word = _JOB_STATES[state]
        jobs = Counter[str]()
        for row in queue:
            jobs[label(row["partition"])] += int(row["jobs"]) if row["state"] == state else 0
        found = GaugeMetricFamily(f"slurm_partition_jobs_{word}", f"Number of jobs in {word} state",
                                  labels=("partition",))  # fmt: skip
        for name in names:
            found.add_metric((name,), jobs[name])
        yield found


def prometheus(collector: Collector) -> str:
    from prometheus_client.exposition import generate_latest

    return generate_latest(collector).decode()


def openmetrics(collector: Collector) -> str:
    from prometheus_client.openmetrics.exposition import generate_latest

    told: bytes = generate_latest(collector)  # type: ignore[no-untyped-call]
    return told.decode()

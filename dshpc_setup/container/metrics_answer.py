"""`dshpc-node metrics`: what slurmctld says of jobs, nodes, partitions and its scheduler, for the host."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from typing import Any

from dshpc_setup.container import observe_daemons
from dshpc_setup.machine import Machine
from dshpc_setup.slurm import associations, slurm_conf
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.slurm.nodes import parse_gres
from dshpc_setup.slurm.paths import Paths
from dshpc_setup.usage import ledger, live

SCHEMA = "dshpc.node-metrics/1"
_ASK_S = 8.0
_QUEUE = "%T|%P|%u|%C|%r"  # the reason last: it may hold anything
_MOST_REASON = 60
# Of sdiag's "\tMean cycle:   454", by the heading above it
_SCHEDULER = {
    ("Main schedule statistics", "Last cycle"): "slurm_sched_cycle_last",
    ("Main schedule statistics", "Max cycle"): "slurm_sched_cycle_max",
    ("Main schedule statistics", "Total cycles"): "slurm_sched_cycle_cnt",
    ("Main schedule statistics", "Mean cycle"): "slurm_sched_mean_cycle",
    ("Main schedule statistics", "Last queue length"): "slurm_schedule_queue_len",
    ("Backfilling stats", "Total cycles"): "slurm_bf_cycle_cnt",
    ("Backfilling stats", "Last cycle"): "slurm_bf_cycle_last",
    ("Backfilling stats", "Total backfilled jobs"): "slurm_backfilled_jobs",
    ("", "Server thread count"): "slurm_server_thread_cnt",
    ("", "Agent queue size"): "slurm_agent_queue_size",
    ("", "DBD Agent queue size"): "slurm_slurmdbd_queue_size",
    ("", "Jobs submitted"): "slurm_jobs_stats_submitted",
    ("", "Jobs started"): "slurm_jobs_stats_started",
    ("", "Jobs completed"): "slurm_jobs_stats_completed",
    ("", "Jobs canceled"): "slurm_jobs_stats_canceled",
    ("", "Jobs failed"): "slurm_jobs_stats_failed",
}


def tell(machine: Machine, folder: str = ledger.FOLDER) -> None:
    """One JSON object on stdout; what slurmctld did not answer is missing in it."""
    slurm = Slurm(machine)
    running = live.read(None, folder)
    told: dict[str, Any] = {
        "schema": SCHEMA,
        "idle_gpus": [
            {"job": job.id or str(job.own), "uuid": gpu.uuid, "idle_s": idle_s}
            for job, gpu, idle_s in running.idle()
        ],
        "methods": {job.id: job.method for job in running.jobs if job.id and job.method},
        "gpu_seconds": gpu_seconds(folder),
        "controller_up": slurm.ping(deadline_s=_ASK_S).ok,
        "services": services(machine, slurm),
    }
    if told["controller_up"]:
        asked = slurm.run("squeue", "-h", "-a", "-r", "-t", "all", "-o", _QUEUE, deadline_s=_ASK_S)
        told["queue"] = queue(asked.stdout) if asked.ok else None
        asked = slurm.run("scontrol", "-o", "show", "node", deadline_s=_ASK_S)
        told["nodes"] = nodes(asked.stdout) if asked.ok else None
        asked = slurm.run("scontrol", "-o", "show", "partition", deadline_s=_ASK_S)
        told["partitions"] = partitions(asked.stdout) if asked.ok else None
        asked = slurm.run("sdiag", deadline_s=_ASK_S)
        told["scheduler"] = scheduler(asked.stdout) if asked.ok else None
    sys.stdout.write(json.dumps(told) + "\n")


def services(machine: Machine, slurm: Slurm) -> dict[str, bool]:
    """What settings have asked for beside slurmctld and slurmd: whether each is up, and slurmdbd answers."""
    found = observe_daemons.daemons(machine, Paths(), _ASK_S)
    up = {each.name: each.up for each in found if each.name not in ("slurmctld", "slurmd")}
    if up.get("slurmdbd"):
        up["slurmdbd"] = associations.database(slurm, deadline_s=_ASK_S).value is True
    return up


def gpu_seconds(folder: str) -> list[dict[str, Any]]:
    """By user and type of GPU, of jobs that have ended."""
    found: Counter[tuple[str, str, str]] = Counter()
    for each in ledger.all_sums(None, folder):
        found[each.user, each.gpu_type, "held"] += each.held_s  # type: ignore[assignment]
        found[each.user, each.gpu_type, "used"] += each.used_s  # type: ignore[assignment]
    return [
        {"user": user, "type": kind, "how": how, "seconds": seconds}
        for (user, kind, how), seconds in found.items()
    ]


def queue(text: str) -> list[dict[str, Any]]:
    """Jobs that are alike in state, partition, user and, where they wait, reason."""
    jobs: Counter[tuple[str, str, str, str]] = Counter()
    cpus: Counter[tuple[str, str, str, str]] = Counter()
    for line in text.split("\n"):
        cells = line.split("|", 4)
        if len(cells) != 5 or not cells[3].isdecimal():
            continue
        state, partition, user, count, reason = cells
        why = re.split(r"[:,(]", reason)[0].strip()[:_MOST_REASON] if state == "PENDING" else ""
        jobs[state, partition, user, why] += 1
        cpus[state, partition, user, why] += int(count)
    return [
        {"state": state, "partition": partition, "user": user, "reason": why, "jobs": count,
         "cpus": cpus[state, partition, user, why]}
        for (state, partition, user, why), count in jobs.items()
    ]  # fmt: skip


def nodes(text: str) -> list[dict[str, Any]]:
    found = []
    for line in text.splitlines():
        words = _words(line)
        if "NodeName" not in words:
            continue
        gres = parse_gres(words.get("Gres", ""))
        alloc = re.findall(r"gres/gpu=([0-9]+)", words.get("AllocTRES", ""))
        found.append({
            "name": words["NodeName"],
            "states": words.get("State", "").split("+"),
            "partitions": slurm_conf.items(words.get("Partitions", "")),
            "cpus": _number(words.get("CPUTot")),
            "cpus_alloc": _number(words.get("CPUAlloc")),
            "memory_mib": _number(words.get("RealMemory")),
            "memory_alloc_mib": _number(words.get("AllocMem")),
            "memory_free_mib": _number(words.get("FreeMem")),
            "gpus": sum(count for name, count in gres.items() if name.split(":")[0] == "gpu"),
            "gpus_alloc": int(alloc[0]) if alloc else None,
        })  # fmt: skip
    return found


def partitions(text: str) -> list[dict[str, Any]]:
    found = []
    for line in text.splitlines():
        words = _words(line)
        if "PartitionName" in words:
            found.append({
                "name": words["PartitionName"], "up": words.get("State") == "UP",
                "nodes": _number(words.get("TotalNodes")), "cpus": _number(words.get("TotalCPUs")),
            })  # fmt: skip
    return found


def scheduler(text: str) -> dict[str, int]:
    """By the names of Slurm's own metrics; times in microseconds."""
    found: dict[str, int] = {}
    heading = ""
    for line in text.splitlines():
        if (
            line
            and not line.startswith(("\t", " "))
            and re.fullmatch(r"[A-Z][^:]*:?|[^:]*\(.*\):", line)
        ):
            heading = line.partition("(")[0].rstrip(": ")
        match = re.match(r"\s*([A-Za-z ]+?)(?: \(since last slurm start\))?:\s*([0-9]+)$", line)
        name = match and _SCHEDULER.get((heading if line.startswith("\t") else "", match[1]))
        if match and name:
            found[name] = int(match[2])
    return found


def _words(line: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None

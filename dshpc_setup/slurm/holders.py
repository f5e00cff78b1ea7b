"""Jobs that hold GPUs, of `squeue --json`: what of which node, and until when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dshpc_setup import slurm_releases
from dshpc_setup.slurm import answers
from dshpc_setup.slurm.answers import number


@dataclass(frozen=True)
class Holder:
    """`held`: "gpu:h100:2(IDX:0-1)" for each of its nodes; `nodes`: their names, where it says them."""

    job_id: str  # "17", "17_2" of an array, "17+1" of a heterogeneous one
    user: str  # "" where it is not told
    name: str
    held: tuple[str, ...]
    nodes: tuple[str, ...]
    until: float | None  # seconds of the epoch, at the latest; None where its time has no end
    cpus: tuple[int, ...] = ()  # on each of `nodes`, as far as it says
    memory_mib: tuple[int, ...] = ()
    reservation: str = ""

    def on(self, node: str | None) -> str:
        """What it has on this node; where Slurm does not name its nodes, all that it has on its only one."""
        if len(self.held) == 1 and (node is None or not self.nodes):
            return self.held[0]
        known = node in self.nodes and len(self.nodes) == len(self.held)
        return self.held[self.nodes.index(node)] if node is not None and known else ""


def parse(text: str) -> tuple[Holder, ...]:
    """`squeue --json`; raises ValueError for what is none of its answers."""
    return tuple(map(_holder, answers.objects(text, "jobs")))


def _holder(item: Mapping[str, Any]) -> Holder:
    details = item.get("gres_detail")
    resources = item.get("job_resources")
    nodes = resources.get("nodes") if isinstance(resources, dict) else None
    places = nodes.get("allocation") if isinstance(nodes, dict) else None
    nodes_of = [each for each in places or () if isinstance(each, dict)]
    return Holder(
        answers.job_name(item),
        str(item.get("user_name") or item.get("user_id") or ""),
        str(item.get("name") or ""),
        tuple(map(str, details)) if isinstance(details, list) else (),
        tuple(str(each.get("name")) for each in nodes_of),
        _until(item),
        tuple(_amount(each.get("cpus"), "count") for each in nodes_of),
        tuple(_amount(each.get("memory"), "allocated") for each in nodes_of),
        str(item.get("resv_name") or ""),
    )


def _amount(value: object, key: str) -> int:
    return (number(value.get(key)) or 0) if isinstance(value, dict) else 0


def _until(item: Mapping[str, Any]) -> float | None:
    limit = item.get("time_limit")
    # Not yet set in a job's first moments: its end is then a year away, as for one without a limit
    if isinstance(limit, dict) and (limit.get("infinite") or limit.get("set") is False):
        return None
    if number(limit) in slurm_releases.unlimited_minutes():
        return None
    end = number(item.get("end_time"))
    return float(end) if end is not None and 0 < end < answers.LATEST else None

"""Does a configuration of the user's own fit the hardware that is here: seen before Slurm is asked.

slurmd waits 19 s for a device file that is missing, and ends. slurmctld drains a node that registers
with less than its NodeName line says (validate_node_specs in node_mgr.c, 24.11), unless
SlurmdParameters=config_overrides tells it to believe the line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from dshpc_setup.container import check
from dshpc_setup.container.complaints import shortened, what_to_do
from dshpc_setup.container.config import Candidate
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import HostFacts
from dshpc_setup.slurm import slurm_conf
from dshpc_setup.slurm.slurm_conf import Entry

if TYPE_CHECKING:
    from dshpc_setup.container.look import Seen


def own_misfit(
    candidate: Candidate, seen: Seen, wanted: str, is_device: Callable[[str], bool]
) -> DshpcError | None:
    """The first line of a file of the user's that asks for more than there is."""
    if "gres.conf" in candidate.customized:
        error = check.device_error(candidate, is_device, wanted)
        error = error or _for_another_node(candidate, wanted)
        if error is not None:
            return error
    if "slurm.conf" not in candidate.customized:
        return None
    try:
        name = check.node_name(candidate, wanted)
    except DshpcError:
        return None  # another check has its words for that
    entry = slurm_conf.node(candidate.texts["slurm.conf"], name)
    if entry is None:
        return None
    for why in (*_too_much(candidate, entry, seen.facts), *_too_many_gpus(candidate, entry, name)):
        return _misfit(candidate, entry, why, wanted)
    return None


def _for_another_node(candidate: Candidate, wanted: str) -> DshpcError | None:
    """A gres.conf all of whose lines name other nodes: slurmd reads it and finds no GPU."""
    try:
        node = check.node_name(candidate, wanted)
    except DshpcError:
        return None
    entries = slurm_conf.entries(candidate.texts["gres.conf"])
    lines = [entry for entry in entries if "name" in entry.values]
    if not lines or any(slurm_conf.applies(entry, node) for entry in lines):
        return None
    entry = lines[0]
    name = shortened(entry.values["nodename"])
    return DshpcError(
        f"config/gres.conf, line {entry.number}: NodeName={name} is not this node, {node}.",
        f"The line is: {shortened(entry.line)}\nThe node would have no GPU.",
        what_to_do(candidate, "gres.conf", f"Write NodeName={node}, or leave NodeName out."),
        file=candidate.own("gres.conf"),
    )


def _misfit(candidate: Candidate, entry: Entry, why: str, wanted: str) -> DshpcError:
    text = candidate.rendered.get("slurm.conf", "")
    if "gres.conf" in candidate.customized:
        text = _with_gpus_of(candidate.texts["gres.conf"], text, wanted)
    ours = slurm_conf.node(text, wanted)
    right = [f"Right for what is here: {ours.line}"] if ours else []
    return DshpcError(
        f"config/slurm.conf, line {entry.number}: {why}.",
        "\n".join(
            [
                f"The line is: {shortened(entry.line)}",
                *right,
                "Slurm would take the node out of service, and no job would run.",
            ]
        ),
        what_to_do(candidate, "slurm.conf", ""),
        file=candidate.own("slurm.conf"),
    )


def _too_much(candidate: Candidate, entry: Entry, facts: HostFacts) -> Iterator[str]:
    """CPUs, memory and disk: more than slurmd will find, which knows of no limit of the container."""
    overrides = (
        "config_overrides" in item.values.get("slurmdparameters", "").lower()
        for item in slurm_conf.entries(candidate.texts["slurm.conf"])
    )
    if any(overrides):
        return
    cpus = node_cpus(entry.values)
    here = facts.cpu.logical
    if cpus is not None and here is not None and cpus > here:
        yield f"the node would have {cpus} CPUs, and this machine has {here}"
    # What was measured is /tmp
    folder = slurm_conf.last(candidate.texts["slurm.conf"], "TmpFS") or "/tmp"
    disk = facts.platform.tmp_disk_mib if folder.rstrip("/") == "/tmp" else None
    for key, there, what in (
        ("realmemory", facts.memory.total_mib, "memory"),
        ("tmpdisk", disk, "disk for temporary files"),
    ):
        asked = slurm_conf.number(entry.values.get(key))
        if asked is not None and there is not None and asked > there:
            yield f"the node would have {asked} MiB of {what}, and there are {there}"


def node_cpus(values: Mapping[str, str]) -> int | None:
    """As slurmctld counts: the shape of the machine where the line gives one, else CPUs."""
    shape = ("boards", "sockets", "socketsperboard", "corespersocket", "threadspercore")
    if not any(key in values for key in shape):
        return slurm_conf.number(values.get("cpus", values.get("procs")))
    whole = 1
    for key in shape:
        whole *= slurm_conf.number(values.get(key)) or 1
    return whole


def _too_many_gpus(candidate: Candidate, entry: Entry, node: str) -> Iterator[str]:
    """GPUs of Gres= that no line of gres.conf has a file for."""
    asked = slurm_conf.gres_counts(entry.values.get("gres", ""))
    there = gpus_of(candidate.texts.get("gres.conf", ""), node)
    if asked is None or there is None:
        return
    for name, count in asked.items():
        kind, _, model = name.partition(":")
        if kind != "gpu":
            continue
        found = there.get(model, 0) if model else sum(there.values())
        if count > found:
            of = f" of type {model}" if model else ""
            yield (
                f"the node would have {count} GPUs{of}, and {candidate.where('gres.conf')} has "
                f"files for {found}"
            )


def gpus_of(gres: str, node: str) -> Mapping[str, int] | None:
    """Type -> number of GPUs with a file, "" for those without a type.

    None where the file leaves it to Slurm to find them (AutoDetect), and where it names more than any
    machine has.
    """
    found: dict[str, int] = {}
    total = 0
    for entry in slurm_conf.entries(gres):
        if not slurm_conf.applies(entry, node):
            continue
        if entry.values.get("autodetect", "off").lower() != "off":
            return None
        if entry.values.get("name", "").lower() != "gpu":
            continue
        kind = entry.values.get("type", "")
        files = check.device_files(entry.line)
        count = 1 if "multiplefiles" in entry.values and files else len(files)
        found[kind] = found.get(kind, 0) + count
        total += count
        if total > check.MOST_DEVICES:
            return None
    return found


def following(candidate: Candidate, node: str) -> Candidate:
    """A rendered slurm.conf with the GPUs of the user's own gres.conf: what he wrote there is meant.

    Left as it is where he made both his own, or left it to Slurm to find the GPUs.
    """
    if "gres.conf" not in candidate.customized or "slurm.conf" in candidate.customized:
        return candidate
    text = _with_gpus_of(candidate.texts["gres.conf"], candidate.texts["slurm.conf"], node)
    return replace(candidate, texts={**candidate.texts, "slurm.conf": text})


def _with_gpus_of(gres: str, text: str, node: str) -> str:
    """A rendered slurm.conf with the GPUs of that gres.conf; as it is where Slurm is to find them."""
    there = gpus_of(gres, node)
    if there is None:
        return text
    items = [f"gpu:{kind}:{count}" if kind else f"gpu:{count}" for kind, count in there.items()]
    shared = slurm_conf.summed_counts(gres, ("shard", "mps"))
    items += [f"{name}:{count}" for name, count in shared.items()]
    text = slurm_conf.with_gres(text, node, ",".join(items))
    types = ",".join(("gpu", *shared))
    return re.sub(r"(?m)^GresTypes=.*$", f"GresTypes={types}", text)

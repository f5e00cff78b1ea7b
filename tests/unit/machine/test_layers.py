"""Silence is not health: each layer of each machine emptied, cut off, or contradicting the others.

Whatever is done to one layer, no job is sold a GPU whose device node is not there, and a GPU that was there
is not gone without a word.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from dshpc_setup import probes
from dshpc_setup.checkup import known_of
from dshpc_setup.diagnose import CheckInput, diagnose
from dshpc_setup.machine.recorded import RecordedMachine
from dshpc_setup.observed.model import Observed
from dshpc_setup.settings import Settings
from tests.unit.machine.damaged import (
    DAMAGES,
    LAYERS,
    REPLIES,
    TOOLS,
    Damage,
    DamagedMachine,
    damaged,
    without,
)

FOLDER = Path(__file__).parents[2] / "machines"
NAMES = sorted(path.parent.name for path in FOLDER.glob("*/machine.yaml"))
MIG_NODES = "/dev/nvidia-caps/"


def look(machine: RecordedMachine) -> CheckInput:
    facts = probes.gather(machine, engine=(machine.folder / "docker.json").exists())
    return known_of(machine, facts, Settings(), Observed())


@cache
def whole(name: str) -> tuple[RecordedMachine, CheckInput]:
    machine = RecordedMachine(FOLDER / name)
    return machine, look(machine)


def sold(known: CheckInput) -> frozenset[str]:
    """The device nodes of all that the plan gives to jobs, and those that they share."""
    plan = known.plan
    assert plan is not None
    targets = {link.path: link.target for link in plan.device_links}
    files = {targets.get(file, file) for line in plan.gres for file in line.files}
    files |= {"/dev/kfd" for line in plan.gres if line.vendor == "amd"}
    return frozenset(files | {"/dev/nvidiactl" for gpu in plan.gpus if gpu.driver == "nvidia"})


def gpus(known: CheckInput) -> int:
    """How many GPUs and parts of GPUs jobs can have."""
    return len(known.plan.gres) if known.plan is not None else 0


def told(known: CheckInput) -> frozenset[tuple[str, str, str, tuple[str, ...]]]:
    """What doctor says of GPUs and drivers beside that all is well."""
    return frozenset(
        (finding.id, finding.state, finding.cause, finding.evidence)
        for finding in diagnose(known)
        if finding.section in ("gpu", "driver")
        and finding.state in ("error", "warn", "info", "crashed")
    )


def open_(known: CheckInput) -> bool:
    """Whether the facts themselves say that not all is known."""
    gpus = known.facts.gpus
    return gpus.state not in ("present", "absent") or not gpus.complete


# Why nothing need be said
_NOT_HANDED_OVER = (
    "in a container the node of a GPU that was not handed over is not there, whatever NVML lists; what its "
    "own cluster had before and has no more, the container's start tells (drift)"
)
_GONE = (
    "the card is gone from the bus: the kernel makes DRM's links with the card and takes them with it, and "
    "no other layer knows of Intel's cards"
)
_ON_NO_BUS = "the GPU is on no bus that this system sees: no layer but NVML has an address of it"

_NOT_ASKED = "NVML answered: the tool, which a recording asks all the same, is not"
_MIG_IS_OFF = "no job gets a part of a GPU: what nodes of MIG there are decides nothing"

EXCUSED: dict[tuple[str, str, Damage], str] = {
    ("container-h100-two-of-eight", "GPU nodes", "cut"): _NOT_HANDED_OVER,
    ("h100-microvm", "MIG nodes", "contradicting"): _MIG_IS_OFF,
    ("h100-microvm", "nvidia-smi", "contradicting"): _NOT_ASKED,
    ("max1550", "PCI", "cut"): _GONE,
    ("max1550-cdi", "PCI", "cut"): _GONE,
    ("orin-jetpack6", "nvml", "contradicting"): _ON_NO_BUS,
    ("wsl2-linux-driver-inside-unharmed", "nvml", "contradicting"): _ON_NO_BUS,
    ("wsl2-rancher-desktop", "nvml", "contradicting"): _ON_NO_BUS,
    ("wsl2-rancher-desktop-off", "nvml", "contradicting"): _ON_NO_BUS,
    ("wsl2-rtx3080", "nvml", "contradicting"): _ON_NO_BUS,
    ("wsl2-rtx3080-engine-cdi", "nvml", "contradicting"): _ON_NO_BUS,
    ("wsl2-three-gpus", "nvml", "contradicting"): _ON_NO_BUS,
}
"""Each damage of which nothing new is said, though another machine would be told of it: no others are."""


@pytest.mark.parametrize("name", NAMES)
def test_no_damage_to_one_layer_is_taken_for_health(name: str) -> None:
    machine, before = whole(name)
    assert all(machine.is_device(path) for path in sold(before)), "of the machine itself"
    for layer, damage, hurt in damaged(machine):
        where = f"{layer}, {damage}"
        known = look(hurt)
        files, said = sold(known), told(known)
        assert not any(state == "crashed" for _, state, *_ in said), where
        lacking = {path for path in files if not hurt.is_device(path)}
        assert all(path.startswith(MIG_NODES) for path in lacking), f"{where}: sold {lacking}"
        assert not lacking or any(id_ == "DSH-GP-009" for id_, *_ in said), where
        changed = gpus(known) != gpus(before) or (damage == "contradicting" and files)
        silent = bool(changed) and not (open_(known) or said - told(before))
        excused = (name, layer, damage) in EXCUSED
        assert silent == excused, (
            f"{where}: {known.facts.gpus.detail}; what need not be said stands in EXCUSED"
        )


def test_every_layer_of_some_machine_was_damaged_in_every_way() -> None:
    """The test above asks nothing where a pattern matches no file."""
    every_one = {(name, *each[:2]) for name in NAMES for each in damaged(whole(name)[0])}
    assert EXCUSED.keys() <= every_one
    done = {(layer, damage) for _, layer, damage in every_one}
    every = {layer.name for layer in LAYERS} | set(REPLIES) | set(TOOLS)
    assert {layer for layer, _ in done} == every
    for layer in every - {"amdgpu module", "DRM", "WSL", "device tree", "amdsmi"}:
        assert {damage for each, damage in done if each == layer} == set(DAMAGES), layer


def test_a_library_alone_is_no_gpu() -> None:
    """NVML answers for eight, and there is no card, no module and no device node."""
    machine, _ = whole("h100x8")
    tree = without(machine.tree, r"/sys/.*|/proc/driver/.*|/dev/.*")
    library = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
    known = look(DamagedMachine(machine, tree=replace(tree, there=tree.there | {library})))
    assert len(known.facts.gpus.devices) == 8
    assert sold(known) == frozenset()
    assert {("DSH-GP-004", "warn"), ("DSH-GP-009", "error")} <= {each[:2] for each in told(known)}

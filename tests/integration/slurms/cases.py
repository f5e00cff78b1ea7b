"""What is tried: every machine of tests/machines, and some of them under other settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from dshpc_setup import probes
from dshpc_setup.container import gpu_places
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import GpuDevice, HostFacts
from dshpc_setup.machine.overlay import with_simulated_gpus
from dshpc_setup.machine.recorded import RecordedMachine
from dshpc_setup.plan import ClusterPlan, plan_cluster
from dshpc_setup.render.configuration import render_slurm
from dshpc_setup.settings import Settings
from tests.unit.machine.test_machines import FOLDER, NAMES, look


@dataclass(frozen=True)
class Extra:
    """A machine under settings of its own."""

    machine: str
    settings: Settings


# By name. Odd sets of cards are laid over a machine by the product's own --simulate.
EXTRAS: Mapping[str, Extra] = {
    "none of the GPUs": Extra("h100x8", Settings(gpu="none")),
    "two of the GPUs": Extra("h100x8", Settings(devices=("1", "5"))),
    "four jobs a GPU": Extra("h100x8", Settings(gpu_sharing="shard:4")),
    "four jobs a GPU, two models": Extra("mixed-h100-t4", Settings(gpu_sharing="shard:4")),
    "two jobs a GPU, AMD": Extra("mi210x4-xgmi", Settings(gpu_sharing="shard:2")),
    "sharing without a GPU": Extra("vm-no-gpu", Settings(gpu_sharing="shard:4")),
    "MPS": Extra("a100x2", Settings(gpu_sharing="mps")),
    "MPS on one GPU": Extra("workstation-rtx4090", Settings(gpu_sharing="mps")),
    "partitions": Extra(
        "workstation-rtx4090",
        Settings(partition="all", partitions=(("short", "1:00:00"), ("long", "7-0"))),
    ),
    "partitions and more GPUs than CPUs": Extra(
        "ci-runner-azure", Settings(partitions=(("short", "30"),), simulate="h100:16")
    ),
    "lines of the user's": Extra(
        "mixed-h100-t4",
        Settings(
            slurm_conf_extra="SchedulerParameters=bf_interval=60\nMaxJobCount=500\nKillWait=5"
        ),
    ),
    "names of the user's": Extra("a100x2", Settings(prefix="my-lab2", partition="gpu")),
    "much memory kept": Extra("h100x8", Settings(reserve_mib=1_800_000)),
    "sixteen": Extra("server-256-cpus", Settings(simulate="h100:16")),
    "models by turns": Extra("server-256-cpus", Settings(simulate="h100+t4+h100")),
    "models by turns, the small one first": Extra(
        "server-256-cpus", Settings(simulate="t4+h100+t4+a100+h100")
    ),
    "AMD beside NVIDIA": Extra("server-256-cpus", Settings(simulate="h100:2+mi300x:2")),
    "NVIDIA by turns beside AMD": Extra("server-256-cpus", Settings(simulate="t4+mi300x+h100+t4")),
    "a whole card beside MIG": Extra("server-256-cpus", Settings(simulate="mig")),
    "MIG of two cards beside whole ones": Extra(
        "server-256-cpus", Settings(simulate="h100-mig+h100+a100-mig+t4")
    ),
    "by index, one model, MPS": Extra("a100x2", Settings(gres_type="index", gpu_sharing="mps")),
    "by index, many": Extra(
        "server-256-cpus",
        Settings(simulate="h100:12", gres_type="index", gpu_sharing="shard:2"),
    ),
    "by index, MIG and several models": Extra(
        "server-256-cpus", Settings(simulate="h100-mig+h100+a100-mig+t4", gres_type="index")
    ),
    "more GPUs than CPUs": Extra("cgroup-v2-nested-limits", Settings(simulate="t4:8")),
}


@dataclass(frozen=True)
class Case:
    """`gpus`: all that are visible to programs there, used by the plan or not."""

    plan: ClusterPlan
    texts: Mapping[str, str]
    gpus: tuple[GpuDevice, ...] = ()

    @property
    def key(self) -> tuple[object, ...]:
        """What tells this set of texts from others; machines that share it have one run."""
        named = self.gpus if gpu_places.needed(self.gpus, self.plan, own_gres=False) else ()
        return (named, *(_spoken(text) for text in self.texts.values()))


def case_of(name: str) -> Case | DshpcError:
    """A machine as it is, or one of EXTRAS; the error where no plan can be made of it."""
    extra = EXTRAS.get(name)
    settings = extra.settings if extra else Settings()
    facts = _facts(extra.machine, settings.simulate) if extra else look(name)
    try:
        plan = plan_cluster(facts, settings)
    except DshpcError as error:
        return error
    # Those that a setting leaves out are not handed to the container
    chosen = settings.devices or settings.gpu != "auto"
    return Case(plan, render_slurm(plan), plan.gpus if chosen else facts.gpus.devices)


ALL = (*NAMES, *EXTRAS)


@lru_cache(maxsize=1)
def cases() -> Mapping[str, Case | DshpcError]:
    """Of every machine and extra, by name."""
    return {name: case_of(name) for name in ALL}


def _facts(machine: str, profile: str) -> HostFacts:
    if not profile:
        return look(machine)
    recorded = RecordedMachine(FOLDER / machine)
    return probes.gather(with_simulated_gpus(recorded, profile), engine=False)


def _spoken(text: str) -> str:
    """Without the lines that Slurm does not look at: comments, which name this machine's faults."""
    lines = text.splitlines()
    return "\n".join(line for line in lines if line.strip() and not line.startswith("#"))

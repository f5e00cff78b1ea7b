"""The service `use`, from its start to its end: a sampler for the GPUs that the last start has found."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from dshpc_setup import codec
from dshpc_setup.container import drift
from dshpc_setup.container.use_jobs import say
from dshpc_setup.container.use_sampler import SAMPLE_S, Sampler
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import Gpus
from dshpc_setup.jobs import allocated_gpus
from dshpc_setup.machine import Machine
from dshpc_setup.settings import Settings
from dshpc_setup.slurm import completion_log
from dshpc_setup.slurm.paths import Paths


def facts_of(paths: Paths) -> Gpus:
    """Those of the container's last start."""

    @dataclass(frozen=True)
    class Facts:
        gpus: Gpus

    try:
        return codec.from_json(Facts, drift.load(paths)).gpus
    except ValueError:
        return Gpus("error", detail="the facts of the last start cannot be read")


def main(machine: Machine, paths: Paths, settings: Settings) -> None:
    """Until it is ended; what goes wrong is told once for each kind, and tried again."""
    sampler = _made(machine, paths, settings)
    stamp = _stamp(paths)
    told: set[str] = set()
    collected = float("-inf")
    while True:
        try:
            if (now_stamp := _stamp(paths)) != stamp:  # a start or reconfigure has found other GPUs
                stamp, before = now_stamp, sampler
                before.close()
                sampler = _made(machine, paths, settings)
                sampler.jobs = before.jobs
            sampler.pass_once(time.monotonic(), time.time())
            if settings.listens and time.monotonic() - collected >= SAMPLE_S:
                from dshpc_setup.container import far

                collected = time.monotonic()
                far.collect(machine, paths)
        except (OSError, DshpcError) as error:
            text = f"the use of GPUs is not written down: {error}"
            if text not in told:
                told.add(text)
                say(text)
        time.sleep(1.0)


def _stamp(paths: Paths) -> tuple[int, ...]:
    found = []
    for path in (f"{paths.run}/offer.json", f"{paths.run}/gpu-places"):
        try:
            found.append(os.stat(path).st_mtime_ns)
        except OSError:
            found.append(0)
    return tuple(found)


def _made(machine: Machine, paths: Paths, settings: Settings) -> Sampler:
    gpus = facts_of(paths)
    with open(f"{paths.run}/node", encoding="utf-8") as file:
        node = file.read().strip()
    sampler = Sampler(
        machine, settings, node, gpus, allocated_gpus.known(), log=completion_log.path()
    )
    sampler.begin()
    return sampler

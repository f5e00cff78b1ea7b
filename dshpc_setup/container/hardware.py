"""What this container has: detected, set against its device files, the last start and the image."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dshpc_setup.facts import GpuDevice, HostFacts
from dshpc_setup.machine import Machine

if TYPE_CHECKING:
    from dshpc_setup.plan import ClusterPlan

_REBUILD = "run `configure-environment` on the host to rebuild it"


def look(machine: Machine, simulate: str) -> HostFacts:
    """The facts of this container; with a profile, its GPUs instead of the real ones."""
    from dshpc_setup import probes

    if simulate:
        from dshpc_setup.machine.simulated import SimulatedMachine

        machine = SimulatedMachine(machine, simulate, devices_exist=False)
    return probes.gather(machine, engine=False)


def not_handed_in(machine: Machine, simulate: str) -> str | None:
    """Where device files of a profile are not here; its GPUs without them are not seen at all."""
    from dshpc_setup.machine.simulated import device_files, parse_profile

    missing = [
        path for path in device_files(parse_profile(simulate)) if not machine.is_device(path)
    ]
    return _left_out(f"A SIMULATED GPU of {simulate}", missing) if missing else None


def without_missing_plugin(plan: ClusterPlan, plugins: str = "/usr/lib") -> ClusterPlan:
    """AutoDetect=nvml hides every GPU, without an error, where slurmd has no NVML plugin."""
    if plan.autodetect == "nvml" and not any(Path(plugins).glob("*/slurm-wlm/gpu_nvml.so")):
        return replace(plan, autodetect="off")
    return plan


def only_visible(
    facts: HostFacts, is_device: Callable[[str], bool]
) -> tuple[HostFacts, tuple[str, ...]]:
    """Without the GPUs whose device files are not here, and a sentence for each of them.

    slurmd takes 19 s to find that a device file is missing, and then ends.
    """
    kept: list[GpuDevice] = []
    notes: list[str] = []
    for gpu in facts.gpus.devices:
        missing = [path for path in gpu.device_files if not is_device(path)]
        name = f"GPU {gpu.index} ({gpu.name or gpu.slurm_type})"
        if missing:
            notes.append(_left_out(name, missing))
            continue
        for instance in gpu.mig:
            lost = [path for path in instance.device_files if not is_device(path)]
            if lost:
                notes.append(_left_out(f"MIG instance {instance.profile} of {name}", lost))
        mig = tuple(item for item in gpu.mig if all(map(is_device, item.device_files)))
        if gpu.mig and not mig:
            continue
        kept.append(replace(gpu, mig=mig))
    if not notes:
        return facts, ()
    gpus = replace(facts.gpus, devices=tuple(kept))
    if not kept:
        gpus = replace(gpus, state="absent", detail=" ".join(notes))
    return replace(facts, gpus=gpus), tuple(notes)


def _left_out(name: str, missing: list[str]) -> str:
    return (
        f"{name} is left out: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not in "
        "this container. Run `configure-environment` on the host, so that it is handed in."
    )


def remembered(facts: HostFacts) -> dict[str, Any]:
    """What the next start compares with: the facts without how they were read."""
    found: dict[str, Any] = json.loads(json.dumps(facts.to_json()))
    found.pop("evidence")
    found.pop("docker")
    return found


def changes(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> tuple[str, ...]:
    """What is different since the last start, a sentence each; nothing at the first one."""
    if before is None:
        return ()
    found = []
    was, are = _cards(before), _cards(now)
    for key in was.keys() - are.keys():
        found.append(f"GPU gone: {was[key]}")
    for key in are.keys() - was.keys():
        found.append(f"GPU new: {are[key]}")
    for name, path, unit in (
        ("CPUs", ("cpu", "usable"), ""),
        ("Memory", ("memory", "usable_mib"), " MiB"),
        ("GPU driver", ("gpus", "driver_version"), ""),
        ("Platform", ("platform", "kind"), ""),
    ):
        old, new = _at(before, path), _at(now, path)
        if old != new and not _nearly(old, new):
            found.append(f"{name}: {old}{unit} before, {new}{unit} now")
    if bool(before.get("simulated")) != bool(now.get("simulated")):
        found.append(
            "GPUs are SIMULATED now, they were real before"
            if now.get("simulated")
            else "GPUs are real now, they were SIMULATED before"
        )
    return tuple(sorted(found))


def _cards(facts: Mapping[str, Any]) -> dict[str, str]:
    """Identity -> words, for each GPU: by UUID, else PCI address, else place."""
    cards = {}
    for gpu in facts.get("gpus", {}).get("devices", ()):
        key = gpu.get("uuid") or gpu.get("pci_bus_id") or f"{gpu.get('vendor')}{gpu.get('index')}"
        mig = "".join(f", MIG {item.get('profile')}" for item in gpu.get("mig", ()))
        cards[f"{key}{mig}"] = f"{gpu.get('name') or gpu.get('slurm_type')} ({key}{mig})"
    return cards


def _at(facts: Mapping[str, Any], path: tuple[str, str]) -> Any:
    return facts.get(path[0], {}).get(path[1])


def _nearly(old: object, new: object) -> bool:
    """Kernels of one machine differ by a few MiB in what they call the memory."""
    return (
        isinstance(old, int)
        and isinstance(new, int)
        and min(old, new) > 1024
        and abs(old - new) <= max(old, new) // 100
    )


def image_note(built_for: str, facts: HostFacts) -> str | None:
    """Where the image lacks what the visible hardware wants; nothing for made-up hardware."""
    if facts.gpus.simulated:
        return None
    seen = {gpu.vendor for gpu in facts.gpus.devices}
    covered = {"nvidia", "amd", "intel"} if built_for == "all" else {built_for}
    lacking = sorted(seen - covered)
    if lacking:
        words = " and ".join(_WORD[vendor] for vendor in lacking)
        what = "no GPU" if built_for == "none" else f"{_WORD.get(built_for, built_for)} GPUs"
        return f"This image was built for {what}, but {words} GPUs are visible: {_REBUILD}."
    if not seen and built_for != "none" and facts.gpus.state == "absent":
        return (
            f"This image was built for {_WORD.get(built_for, 'all')} GPUs, but none is visible "
            "here: jobs run on the CPU only."
        )
    return None


_WORD = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel"}

"""What this container has: detected, set against its device files, the last start and the image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dshpc_setup import gpu_vendors
from dshpc_setup.facts import GpuDevice, HostFacts
from dshpc_setup.machine import Machine
from dshpc_setup.slurm.paths import LEFT_OUT

_LONGER_S = 45.0  # somebody waits for the start, and a driver that hangs has it all
_REBUILD = "run `configure-environment` on the host to rebuild it"


def look(machine: Machine, simulate: str, *, deadline_s: float) -> HostFacts:
    """The facts of this container; with a profile, its GPUs instead of the real ones."""
    from dshpc_setup import probes

    return probes.gather(_seen(machine, simulate), engine=False, deadline_s=deadline_s)


def look_surely(machine: Machine, simulate: str, say: Callable[[str], None]) -> HostFacts:
    """The same for a start: a node without GPUs is made of what is known, not of who was silent."""
    from dshpc_setup import probes

    seen = _seen(machine, simulate)
    return probes.gather_surely(seen, say, engine=False, longer_s=_LONGER_S)


def _seen(machine: Machine, simulate: str) -> Machine:
    if not simulate:
        return machine
    from dshpc_setup.machine.simulated import SimulatedMachine

    return SimulatedMachine(machine, simulate, devices_exist=False)


def not_handed_in(machine: Machine, simulate: str) -> str | None:
    """Where device files of a profile are not here, and the host has not kept them back; its GPUs without
    them are not seen at all."""
    from dshpc_setup.machine.simulated import device_files, parse_profile

    kept_back = machine.env.get(LEFT_OUT, "").split(",")
    missing = [
        path
        for path in device_files(parse_profile(simulate))
        if path not in kept_back and not machine.is_device(path)
    ]
    return _left_out(f"A SIMULATED GPU of {simulate}", missing) if missing else None


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


def image_version(built_for: str) -> str:
    """The image in words: for which GPUs and with which version of ours it was built."""
    from dshpc_setup import __version__

    return f"for GPU_TYPE={built_for}, dsHPC setup {__version__}"


def image_note(built_for: str, facts: HostFacts) -> str | None:
    """Where the image lacks what the visible hardware wants; nothing for made-up hardware."""
    if facts.gpus.simulated:
        return None
    seen = {gpu.vendor for gpu in facts.gpus.devices}
    covered = set(gpu_vendors.names()) if built_for == "all" else {built_for}
    lacking = sorted(seen - covered)
    if lacking:
        words = " and ".join(map(gpu_vendors.label, lacking))
        what = "no GPU" if built_for == "none" else f"{_label(built_for, built_for)} GPUs"
        return f"This image was built for {what}, but {words} GPUs are visible: {_REBUILD}."
    if not seen and built_for != "none" and facts.gpus.state == "absent":
        return (
            f"This image was built for {_label(built_for, 'all')} GPUs, but none is visible "
            "here: jobs run on the CPU only."
        )
    return None


def _label(built_for: str, otherwise: str) -> str:
    vendor = gpu_vendors.find(built_for)
    return vendor.label if vendor is not None else otherwise

"""Which GPUs are used, and the line of gres.conf for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from dshpc_setup.errors import usage_error
from dshpc_setup.facts import GpuDevice, Gpus
from dshpc_setup.plan.model import ClusterPlan, DeviceLink, GresLine
from dshpc_setup.problems import UNHEALTHY, in_words
from dshpc_setup.settings import Settings, Source

TYPED = "gpu"  # before the index: Slurm refuses a type that is a number
LINKS = "/run/dshpc/gpus"  # where names of our own for device nodes lie in the container


def choose(gpus: Gpus, settings: Settings) -> tuple[list[GpuDevice], list[str]]:
    """The devices that the settings allow, and a sentence for each reason why one is not."""
    if settings.gpu == "none":
        return [], ["GPUs are switched off by the setting gpu = none."]
    if gpus.state != "present":
        if settings.devices:
            raise usage_error(
                f"{_source(settings).where} names {', '.join(settings.devices)}, but no GPU can be read here "
                f"({gpus.state}).",
                gpus.detail or "",
                "Fix that and run again, or leave the setting devices out.",
            )
        return [], [gpus.detail or f"GPUs: {gpus.state}."]
    devices, left_out = list(gpus.devices), []
    if settings.gpu != "auto":
        devices = [device for device in devices if device.vendor == settings.gpu]
        if not devices:
            left_out.append(f"The setting gpu = {settings.gpu} leaves none of the GPUs found.")
    if settings.devices:
        devices = [
            _named(name, devices, _source(settings).of_item(nth))
            for nth, name in enumerate(settings.devices)
        ]
    if settings.unhealthy_gpus == "use":
        devices = [_as_healthy(device) for device in devices]
    return devices, left_out


def _as_healthy(device: GpuDevice) -> GpuDevice:
    """Without what its firmware says of it: it computes, and was asked for all the same."""
    return replace(device, problems=tuple(it for it in device.problems if it not in UNHEALTHY))


def _source(settings: Settings) -> Source:
    return settings.sources.get("devices", Source("flag", "--devices"))


def _named(name: str, devices: list[GpuDevice], source: Source) -> GpuDevice:
    for device in devices:
        if name == str(device.index) or name == device.uuid:
            return device
        for instance in device.mig:
            if name == instance.uuid:
                return replace(device, mig=(instance,))
    known = ", ".join(f"{device.index} ({device.name or device.vendor})" for device in devices)
    raise usage_error(
        f"{source.where} names {name}, but there is no such GPU.",
        f"There are: {known or 'none'}.",
        "List them with `dshpc detect`, and name those to use by index or UUID.",
    )


def lines_of(device: GpuDevice) -> tuple[list[GresLine], str | None]:
    """Its lines of gres.conf, and why it has none or too few."""
    label = f"GPU {device.index} ({device.name or device.vendor})"
    if device.problems:
        use = (
            " Jobs get it with the setting unhealthy_gpus: use." if _only_unhealthy(device) else ""
        )
        return [], f"{label}: {in_words(device.problems)}.{use}"
    if device.mig_mode == "enabled":
        if not device.mig:
            return [], f"{label} is in MIG mode and has no instances: nvidia-smi mig -cgi ... -C"
        lines = [
            GresLine(item.profile, device.vendor, item.device_files, device.index, item.uuid)
            for item in device.mig
            if item.device_files
        ]
        short = len(device.mig) - len(lines)
        return lines, f"{label}: {short} MIG instance(s) without device files." if short else None
    if not device.device_files:
        return [], f"{label} has no device file that is visible here."
    line = GresLine(
        device.slurm_type, device.vendor, device.device_files, device.index, device.uuid
    )
    return [line], None


def _only_unhealthy(device: GpuDevice) -> bool:
    return set(device.problems) <= UNHEALTHY


def unhealthy_told(plan: ClusterPlan, gpus: Gpus) -> tuple[str, ...]:
    """A sentence for each GPU that its own firmware calls broken, and whether jobs get it."""
    given = {line.index for line in plan.gres}
    return tuple(
        f"GPU {device.index} ({device.name or device.vendor}): {in_words(ill)}. "
        + ("Jobs get it (unhealthy_gpus: use)." if device.index in given else "Jobs do not get it.")
        for device in gpus.devices
        if (ill := [it for it in device.problems if it in UNHEALTHY])
    )


def unhealthy_reasons(gpus: Gpus) -> frozenset[str]:
    """Those of a plan's `left_out` that `unhealthy_told` has told."""
    ill = (device for device in gpus.devices if UNHEALTHY & set(device.problems))
    return frozenset(reason for device in ill if (reason := lines_of(device)[1]))


def asked_as(device: GpuDevice, settings: Settings) -> tuple[str, ...]:
    """The type by which jobs ask for the GPU; of one in MIG mode, that of each of its instances.

    () where no job can have it. Of the settings count those that hold for any GPU: how they are called,
    and whether jobs get those that their own firmware calls broken.
    """
    if settings.unhealthy_gpus == "use":
        device = _as_healthy(device)
    # Their files may be made only as they are first used
    parts = tuple(replace(each, device_files=each.device_files or ("",)) for each in device.mig)
    files = device.device_files or ("",)
    lines, _ = lines_of(replace(device, device_files=files, mig=parts))
    if settings.gres_type == "index":
        lines = typed_by_index(lines, [device])
    return tuple(line.slurm_type for line in lines)


def typed_by_index(lines: Sequence[GresLine], devices: Sequence[GpuDevice]) -> list[GresLine]:
    """The lines with a type each: "gpu0" by the card's index, "gpu0.1" for its second MIG instance."""
    cut = {device.index for device in devices if device.mig_mode == "enabled"}
    found: list[GresLine] = []
    for line in lines:
        name = f"{TYPED}{line.index}"
        if line.index in cut:
            name += f".{sum(other.index == line.index for other in found)}"
        found.append(replace(line, slurm_type=name))
    return found


def told_apart(lines: Sequence[GresLine]) -> tuple[list[GresLine], tuple[DeviceLink, ...]]:
    """The lines with a file of its own each, and the names that are needed for that.

    Several GPUs behind one device node (WSL2's /dev/dxg) are named by links to it. The number at a
    link's end is the GPU's.
    """
    uses = Counter(line.files for line in lines)
    told, links = [], []
    for line in lines:
        if uses[line.files] == 1 or len(line.files) > 1:
            told.append(line)
            continue
        target = line.files[0]
        link = DeviceLink(f"{LINKS}/{target.rpartition('/')[2]}{line.index}", target)
        links.append(link)
        told.append(replace(line, files=(link.path,)))
    return told, tuple(links)

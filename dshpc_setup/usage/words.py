"""What a job has used, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dshpc_setup.terminal.sanitize import counted

_LITTLE = 0.25  # of the memory that it had: worth a word
_MUCH_MIB = 2048  # where it is about so much at least


def rows(use: Mapping[str, Any], indexes: Sequence[int | None]) -> list[tuple[str, str | None]]:
    """(label, text) of `JobUse.use_json`; the GPUs in the order of `indexes`."""
    gpus = [each for each in use.get("gpus") or () if isinstance(each, dict)]
    found: list[tuple[str, str | None]] = []
    for place, gpu in enumerate(gpus):
        index = indexes[place] if place < len(indexes) else None
        name = "GPU" if index is None else f"GPU {index}"
        found.append((f"{name} use", _gpu(gpu)))
    found += [("Not used", text) for text in idle(gpus)]
    found.append(("Energy", _energy(use.get("energy_j"))))
    cpus, mean = use.get("cpus"), use.get("mean_cpus")
    if cpus and mean is not None:
        found.append(("CPUs", f"{mean:g} of {cpus} used, mean"))
    peak, had = use.get("peak_memory_mib"), use.get("memory_mib")
    if peak:
        text = f"{_size(peak)} at most" + (f", of {_size(had)}" if had else "")
        found.append(("Memory", text))
    if peak and had and had - peak >= _MUCH_MIB and peak < had * _LITTLE:
        found.append(("Not used", f"it had {_size(had)} of memory, used {_size(peak)}"))
    return found


def idle(gpus: Sequence[Mapping[str, Any]]) -> list[str]:
    """ "2 GPUs, of which one was idle all the time"."""
    peaks = [gpu.get("peak_percent") for gpu in gpus]
    none = sum(peak == 0 for peak in peaks)
    if not none:
        return []
    if none == len(peaks):
        which = "which was" if none == 1 else "all of which were"
    else:
        which = "of which one was" if none == 1 else f"of which {none} were"
    return [f"{counted(len(peaks), 'GPU')}, {which} idle all the time"]


def _gpu(gpu: Mapping[str, Any]) -> str:
    mean, peak = gpu.get("mean_percent"), gpu.get("peak_percent")
    parts = []
    if mean is not None and peak is not None:
        parts.append(f"{mean:.0f} % mean, {peak} % peak")
    memory, most = gpu.get("mean_memory_mib"), gpu.get("peak_memory_mib")
    if memory is not None and most is not None:
        parts.append(f"memory {_size(memory)} mean, {_size(most)} peak")
    return "; ".join(parts) or "not measured"


def _energy(joules: float | None) -> str | None:
    return None if joules is None else f"{joules / 3_600_000:.3g} kWh"


def _size(mib: float) -> str:
    return f"{mib / 1024:.1f} GiB" if mib >= 1024 else f"{mib:.0f} MiB"

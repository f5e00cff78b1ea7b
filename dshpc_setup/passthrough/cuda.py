"""Which CUDA a driver offers, how far it reaches beyond that, and which CUDA knows which GPU. Pure.

Sources: NVIDIA's CUDA release notes, tables "CUDA Toolkit and corresponding driver versions" and
"minimum required driver version for minor version compatibility", CUDA 9.0 to 13.3 (12.7 had no
toolkit: its driver branch is 565); the CUDA compatibility guide (forward compatibility); the compute
capabilities that each nvcc takes, as Meson's CUDA module lists them (July 2026).
"""

from __future__ import annotations

from typing import Literal

from dshpc_setup import gpu_vendors
from dshpc_setup.facts import GpuDevice, HostFacts
from dshpc_setup.versions import at_least, numbers

Reach = Literal["native", "minor", "forward", "no"]
"""`minor`: the same major version; `forward`: by the image's cuda-compat libraries alone."""

_OFFERED = (
    ("610.43.02", "13.3"),
    ("595.45.04", "13.2"),
    ("590.44.01", "13.1"),
    ("580.65.06", "13.0"),
    ("575.51.03", "12.9"),
    ("570.26", "12.8"),
    ("565.57", "12.7"),
    ("560.28.03", "12.6"),
    ("555.42.02", "12.5"),
    ("550.54.14", "12.4"),
    ("545.23.06", "12.3"),
    ("535.54.03", "12.2"),
    ("530.30.02", "12.1"),
    ("525.60.13", "12.0"),
    ("520.61.05", "11.8"),
    ("515.43.04", "11.7"),
    ("510.39.01", "11.6"),
    ("495.29.05", "11.5"),
    ("470.42.01", "11.4"),
    ("465.19.01", "11.3"),
    ("460.27.03", "11.2"),
    ("455.23", "11.1"),
    ("450.36.06", "11.0"),
    ("440.33", "10.2"),
    ("418.39", "10.1"),
    ("410.48", "10.0"),
    ("396.26", "9.2"),
    ("390.46", "9.1"),
    ("384.81", "9.0"),
)
_FLOORS = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}

NEWEST_KNOWN = "13.3"
_KNOWN_SINCE = {
    "3.0": "5.0",
    "3.5": "5.0",
    "3.7": "6.5",
    "5.0": "6.5",
    "5.2": "6.5",
    "5.3": "6.5",
    "6.0": "8.0",
    "6.1": "8.0",
    "6.2": "8.0",
    "7.0": "9.0",
    "7.2": "10.0",
    "7.5": "10.0",
    "8.0": "11.0",
    "8.6": "11.1",
    "8.7": "11.5",
    "8.9": "11.8",
    "9.0": "11.8",
    "10.0": "12.8",
    "10.1": "12.8",
    "10.3": "12.9",
    "11.0": "13.0",
    "12.0": "12.8",
    "12.1": "12.9",
}
_DROPPED = (("7.5", "13.0"), ("5.0", "12.0"), ("3.5", "11.0"), ("3.0", "9.0"))
"""The lowest capability from a version on."""


def offered(facts: HostFacts) -> str | None:
    """The CUDA that the driver offers: as NVML says, else by the driver's version."""
    if facts.gpus.cuda_version:
        return facts.gpus.cuda_version
    tegra = any(gpu.driver == "nvgpu" for gpu in facts.gpus.devices)
    if facts.platform.kind != "linux" or tegra:  # drivers of Windows and of Jetson count otherwise
        return None
    driver = driver_version(facts)
    return next((cuda for least, cuda in _OFFERED if at_least(driver, least)), None)


def driver_version(facts: HostFacts) -> str | None:
    """NVIDIA's driver: of a card, since other vendors' are numbered otherwise."""
    told = (gpu.driver_version for gpu in facts.gpus.devices if gpu_vendors.has_cuda(gpu.vendor))
    return next(filter(None, told), None) or facts.gpus.driver_version


def reach(wanted: str, have: str, driver: str | None) -> Reach:
    """How a driver that offers CUDA `have` runs what was made with CUDA `wanted`."""
    if at_least(have, _major_minor(wanted)):
        return "native"
    major = (numbers(wanted) or (0,))[0]
    floor = _FLOORS.get(major)
    same = (numbers(have) or (0,))[0] == major
    if same and floor is not None and (driver is None or at_least(driver, floor)):
        return "minor"
    return "forward" if floor is not None else "no"


def knows(cuda: str, capability: str) -> bool | None:
    """Whether a CUDA makes code for GPUs of a capability; None where that cannot be told.

    Code for an earlier capability of the same major version runs as well.
    """
    wanted, made = numbers(capability), numbers(cuda)
    if wanted is None or made is None or len(wanted) < 2:
        return None
    for known, since in _KNOWN_SINCE.items():
        have = numbers(known) or ()
        if have[0] == wanted[0] and have[1] <= wanted[1] and at_least(cuda, since):
            return True
    return None if at_least(cuda, NEWEST_KNOWN) and not _listed(wanted[0]) else False


def _listed(major: int) -> bool:
    return any((numbers(known) or (0,))[0] == major for known in _KNOWN_SINCE)


def dropped(cuda: str, capability: str) -> str | None:
    """The lowest capability that a CUDA still makes code for, where this GPU's is below it."""
    if numbers(capability) is None:
        return None
    for lowest, version in _DROPPED:
        if at_least(cuda, version):
            return None if at_least(capability, lowest) else lowest
    return None


def _major_minor(version: str) -> str:
    return ".".join(str(part) for part in (numbers(version) or (0,))[:2])


# -- what a card is ---------------------------------------------------------------------------------

_BRANDS: tuple[tuple[str, frozenset[str]], ...] = (
    ("geforce", frozenset(("geforce", "geforcertx"))),
    ("titan", frozenset(("titan", "titanrtx"))),
    ("quadro", frozenset(("quadro", "quadrortx"))),
    ("tesla", frozenset(("tesla",))),
    ("rtx", frozenset(("nvidiartx", "quadrortx"))),
)
_DATA_CENTRE = frozenset(
    "a2 a10 a10g a16 a30 a40 a100 a800 b100 b200 b300 gb200 gb300 gh200 h100 h200 h20 h800 "
    "l2 l4 l20 l40 l40s k80 m40 m60 p4 p40 p100 t4 t4g v100 v100s".split()
)


def brands(name: str | None) -> frozenset[str] | None:
    """What `brand` may be for a card of this name, in lower case; None where its name does not tell.

    NVML calls data-centre cards Tesla or NVIDIA, depending on the driver.
    """
    words = (name or "").lower()
    for sign, meant in _BRANDS:
        if sign in words:
            return meant
    return frozenset(("tesla", "nvidia")) if _model(words) in _DATA_CENTRE else None


def is_consumer(gpu: GpuDevice) -> bool:
    """A card for which NVIDIA has no forward compatibility at all."""
    name = (gpu.name or "").lower()
    return "geforce" in name or "titan" in name


def is_data_centre(gpu: GpuDevice) -> bool:
    name = (gpu.name or "").lower()
    return "tesla" in name or _model(name) in _DATA_CENTRE


def _model(name: str) -> str:
    words = name.replace("-", " ").split()
    return next((word for word in words if word not in ("nvidia", "tesla")), "")

"""The sensors of a card in sysfs, as amdgpu, i915 and xe have them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dshpc_setup.probes.trace import Trace


def folders(look: Trace, folder: str) -> list[str]:
    """The card's folders of sensors."""
    names = look.machine.listdir(f"{folder}/hwmon")
    return [f"{folder}/hwmon/{name}" for name in names if re.fullmatch(r"hwmon\d{1,4}", name)]


def first(look: Trace, folder: str, names: Iterable[str]) -> int | None:
    """The number of the first file that has one."""
    values = (look.number(f"{folder}/{name}") for name in names)
    return next((value for value in values if value is not None), None)


def degrees(thousandths: int | None) -> int | None:
    """Of thousandths of a degree."""
    return None if thousandths is None else (thousandths + 500) // 1000


def watts(millionths: int | None) -> float | None:
    """Of millionths of a watt; None for what can be none."""
    if millionths is None or not 0 <= millionths < 1 << 60:
        return None
    return round(millionths / 1e6, 1)


def mib(size: int | None) -> int | None:
    """Of bytes; None for what can be no size."""
    return None if size is None or not 0 <= size < 1 << 60 else size >> 20

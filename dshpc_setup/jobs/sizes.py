"""Sizes of memory as people write them on the command line."""

from __future__ import annotations

import re

_SIZE = re.compile(r"([0-9]{1,9})\s*(M|MB|MIB|G|GB|GIB|T|TB|TIB)?", re.IGNORECASE | re.ASCII)
_MIB = {"M": 1, "G": 1024, "T": 1024 * 1024}
_MOST_MIB = 1 << 32  # 4 PiB
FORMS = "8GB, 8G, 8GiB, 4096MB, 4096M, or a number of megabytes"


def mib(text: str) -> int | None:
    """ "8GB" -> 8192; None for what is no size above 0.

    GB and G mean GiB, as Slurm's G does.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        return None
    size = int(found[1]) * _MIB[(found[2] or "M")[0].upper()]
    return size if 0 < size < _MOST_MIB else None

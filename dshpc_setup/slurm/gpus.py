"""The node's GPUs as slurmd lists them: in the order in which Slurm counts them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dshpc_setup.slurm import slurm_conf

_MOST = 4096  # GPUs of one node; what claims more is damaged


@dataclass(frozen=True)
class SlurmGpu:
    """One GPU as slurmd lists it."""

    slurm_type: str | None
    files: tuple[str, ...]
    uuid: str | None = None


def parse(text: str) -> tuple[SlurmGpu, ...]:
    """`slurmd -G`: the node's GPUs, in the order that Slurm counts them in."""
    found: list[SlurmGpu] = []
    for line in text.splitlines():
        match = re.search(r"\bGres Name=gpu (.*)", line)
        if match is None or len(found) > _MOST:
            continue
        words = dict(word.split("=", 1) for word in match[1].split() if "=" in word)
        kind, uuid = words.get("Type"), words.get("UniqueId")
        named = slurm_conf.items(words.get("File", ""))
        files = tuple(file for item in named for file in slurm_conf.expand(item, _MOST))
        count = int(words["Count"]) if re.fullmatch(r"[0-9]{1,4}", words.get("Count", "")) else 1
        each: list[tuple[str, ...]] = [files]  # one GPU may have several files: MIG instances
        if count != 1:
            each = [(file,) for file in files] if len(files) == count else [()] * count
        known = kind if kind not in (None, "(null)") else None
        found += [SlurmGpu(known, some, uuid if uuid != "(null)" else None) for some in each]
    return tuple(found)

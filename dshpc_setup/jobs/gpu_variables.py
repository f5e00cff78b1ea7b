"""Which of a job's variables say what GPUs it had. The launcher of each job loads this: it imports little."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

TABLE = "/run/dshpc/gpu-places"
PLACES = "SLURM_JOB_GPUS"
UUIDS = "UUIDS"  # of a job whose variables are not known: what was kept as it ended
_OF_SLURM = (PLACES, "SLURM_STEP_GPUS")
_USUAL = "_VISIBLE_DEVICES"  # the end of most of them


def names(environ: Mapping[str, str], table: str = TABLE) -> tuple[str, ...]:
    """Those of the environment, by the table of the task prolog (container/gpu_places.py)."""
    try:
        with open(table, encoding="utf-8") as file:
            ours = frozenset(of_table(file))
    except OSError:
        ours = frozenset()
    return tuple(
        name for name in environ if name in ours or name in _OF_SLURM or name.endswith(_USUAL)
    )


def of_table(lines: Iterable[str]) -> Iterable[str]:
    """Of lines "vendor NAME BY VISIBLE NONE UUIDS UUIDS-NONE ORDER RANKS"."""
    for line in lines:
        words = line.split()
        if len(words) == 9 and words[0] == "vendor":
            yield from (words[3], words[5], *(each.lstrip("?") for each in words[8].split(",")))

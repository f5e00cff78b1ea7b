"""What a job's result.json says, as far as it can be true: the file is the user's, of any shape."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dshpc_setup import signals

_LATEST = 253402300800.0  # the year 10000: what a calendar can show ends here
_MOST_MIB = 1 << 40
_MOST_LETTERS = 4096  # of a list of GPUs
_UUID = re.compile(r"[A-Za-z0-9._-]+")
_PLACES = re.compile(r"[0-9]{1,4}(?:[,-][0-9]{1,4}){0,255}")
_ENDS = frozenset(("SIGTERM", "SIGINT", "SIGHUP"))


_NAMES = frozenset(map(signals.name_of, range(1, 100)))


def checked(value: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that hold what they may; of the others none, as if they had not been written."""
    found = {
        "exit_code": _whole(value.get("exit_code"), 255),
        "signal": _signal(value.get("signal")),
        "max_rss_mib": _whole(value.get("max_rss_mib"), _MOST_MIB),
        "started": _time(value.get("started")),
        "ended": _time(value.get("ended")),
        "out_of_memory": _one_of(value.get("out_of_memory"), ("host", "gpu")),
        "out_of_memory_line": _text(value.get("out_of_memory_line")),
        "gpus": _gpus(value.get("gpus")),
        "told_to_stop": _signal(value.get("told_to_stop")),
    }
    return {name: each for name, each in found.items() if each is not None}


def ended_well(result: Mapping[str, Any]) -> bool:
    """Of checked fields: whether the program came to its end, and not because it was told to stop:
    many end with 0 upon that, with half of their work done."""
    return result.get("exit_code") == 0 and result.get("told_to_stop") not in _ENDS


def _whole(value: object, most: int) -> int | None:
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most
    return value if good and isinstance(value, int) else None


def _time(value: object) -> float | None:
    """Seconds since 1970; NaN and the infinite are within no limits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value < _LATEST else None


def _signal(value: object) -> str | None:
    if not isinstance(value, str):
        return None
    return value if value in _NAMES else None


def _one_of(value: object, known: tuple[str, ...]) -> str | None:
    return value if isinstance(value, str) and value in known else None


def _text(value: object) -> str | None:
    """On one line, and with no sign that moves a terminal's cursor."""
    from dshpc_setup.slurm import job_states

    return job_states.shown(value, 304) if isinstance(value, str) else None


def _gpus(value: object) -> dict[str, str] | None:
    """Of the variables that the job had, those that say which GPUs it held."""
    if not isinstance(value, dict):
        return None
    from dshpc_setup import gpu_vendors
    from dshpc_setup.jobs.gpu_variables import PLACES

    found = {}
    for name in gpu_vendors.uuid_variables():
        if isinstance(uuids := value.get(name), str):
            words = uuids[:_MOST_LETTERS].split(",")
            found[name] = ",".join(filter(_UUID.fullmatch, words))
    if isinstance(places := value.get(PLACES), str) and _PLACES.fullmatch(places):
        found[PLACES] = places
    return {name: text for name, text in found.items() if text} or None

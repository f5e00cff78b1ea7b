"""What Slurm's programs print with `--json`: lists of objects, numbers that may be unset, jobs' names.

It imports little: each submission reads one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dshpc_setup.documents import foreign

LATEST = 253402300800  # the year 10000: what a calendar can show ends here


def objects(text: str, key: str) -> tuple[Mapping[str, Any], ...]:
    """The objects of the list `key` ("jobs"); raises ValueError for what is no such answer."""
    try:
        value = foreign.value(text)
    except RecursionError as error:
        raise ValueError(str(error)) from error
    items = value.get(key) if isinstance(value, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ValueError(f"no list of {key}")
    return tuple(items)


def number(value: object) -> int | None:
    """A plain number, or one of Slurm's {"set": true, "infinite": false, "number": 7}."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def job_name(item: Mapping[str, Any]) -> str:
    """ "17"; "17_2" for a task of an array, "17_[3-9]" for those that wait together, "17+1" for a part of
    a heterogeneous job. A task's own job_id is a number that nobody has seen."""
    of = number(item.get("array_job_id")) or number(item.get("job_id")) or 0
    task, part = number(item.get("array_task_id")), number(item.get("het_job_id"))
    if task is not None:
        return f"{of}_{task}"
    if waiting := str(item.get("array_task_string") or ""):
        return f"{of}_[{waiting}]"
    if part:
        return f"{part}+{number(item.get('het_job_offset')) or 0}"
    return str(of)

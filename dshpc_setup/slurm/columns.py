"""Columns of `squeue -O`, read into jobs: a field for each column, the others stay as they are by default.

Where people's own words are among them (a job's name), a line break may be in one and nothing but an
unprintable sign cuts them; else a line that is none is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dshpc_setup.slurm.job_states import SlurmJob
from dshpc_setup.slurm.slurm_conf import node_names

_CUT, _CUT_OF_NAMES = "|", "\x1f"
_WIDE = {
    "NodeList": 300, "BatchHost": 300, "Partition": 1000, "STDOUT": 4096, "WorkDir": 4096,
}  # fmt: skip
_FREE = frozenset(("Name", "STDOUT", "WorkDir"))


def _flag(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError(text)
    return text == "1"


def _number(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(text)
    return int(text)


def _word(text: str) -> str:
    if not text:
        raise ValueError(text)
    return text


_FIELDS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "JobID": ("own", _number),
    "JobArrayID": ("id", _word),
    "ArrayTaskID": ("task", lambda text: None if text == "N/A" else _number(text)),
    "ArrayJobID": ("number", _number),
    "State": ("state", _word),
    "Reason": ("reason", str),
    "BatchFlag": ("batch", _flag),
    "Requeue": ("requeue", _flag),
    "RestartCnt": ("restarts", lambda text: _number(text or "0")),
    "EligibleTime": ("eligible", str),
    "NodeList": ("nodes", node_names),
    "BatchHost": ("nodes", lambda text: tuple(filter(None, (text,)))),
    "Partition": ("partition", str),
    "UserID": ("uid", _number),
    "UserName": ("user", str),
    "TimeUsed": ("elapsed", str),
    "Nice": ("nice", int),
    "Name": ("name", str),
    "STDOUT": ("log", str),
    "WorkDir": ("folder", str),
    "tres-per-job": ("asked", str),
    "tres-per-node": ("asked", str),
    "tres-per-socket": ("asked", str),
    "tres-per-task": ("asked", str),
}


def option(columns: str) -> str:
    """ "JobID State" -> "JobID:|,State:|"."""
    names = columns.split()
    return ",".join(f"{name}:{_WIDE.get(name, '')}{_cut(names)}" for name in names)


def _cut(names: list[str]) -> str:
    return _CUT_OF_NAMES if _FREE & set(names) else _CUT


def read(text: str, columns: str) -> tuple[SlurmJob, ...] | None:
    """The jobs; None where a name makes the whole unreadable."""
    names = columns.split()
    cut, width = _cut(names), len(names)
    if cut == _CUT:
        rows = [line.split(cut) for line in text.split("\n")]
        found = (_job(names, row[:-1]) for row in rows if len(row) == width + 1)
        return tuple(job for job in found if job is not None)
    cells = text.split(cut)
    whole = [_job(names, cells[at : at + width]) for at in range(0, len(cells) - 1, width)]
    jobs = tuple(job for job in whole if job is not None)
    return jobs if len(jobs) == len(whole) and not cells[-1].strip() else None


def _job(names: list[str], cells: list[str]) -> SlurmJob | None:
    if len(cells) != len(names):
        return None
    fields: dict[str, Any] = {}
    try:
        for name, cell in zip(names, cells, strict=True):
            field, of = _FIELDS[name]
            value = of(cell.strip())
            fields[field] = fields.get(field, "") + value if field == "asked" else value
    except ValueError:
        return None
    return SlurmJob(**{"id": str(fields.get("own", "")), **fields})

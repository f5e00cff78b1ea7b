"""The container's report of its start (schema dshpc.start/1), asked from outside and read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Any

from dshpc_setup.documents import foreign
from dshpc_setup.engine import containers
from dshpc_setup.machine import Machine
from dshpc_setup.machine.no_answer import answered

_ASK_S = 30.0


def ask(machine: Machine, container: str) -> dict[str, Any]:
    """The report of a running container; {} where it gives none.

    Raises DshpcError (INCOMPLETE) where the container does not answer in time.
    """
    asked = containers.exec_in(machine, container, ["dshpc-node", "status"], deadline_s=_ASK_S)
    return parse(answered(asked, f"how the start of {container} is").stdout)


def parse(text: str) -> dict[str, Any]:
    """What `dshpc-node status` or `dshpc-node wait` printed; {} where it is no such object."""
    try:
        value = foreign.value(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def notes(report: Mapping[str, Any], usable: Iterable[str]) -> tuple[str, ...]:
    """A start's notes, less those of nodes that it left taken out and that take jobs again now, and of the
    jobs that it found interrupted where an end that nobody ordered is told with them."""
    told, keys = report.get("notes"), report.get("note_keys")
    if not isinstance(told, list):
        return ()
    known = keys if isinstance(keys, list) else []  # not in the report of an earlier version
    over = [f"node {name}" for name in usable]
    if _told_with_jobs(report.get("unclean_ends")):
        over.append("interrupted")
    pairs = zip_longest(told, known[: len(told)])
    return tuple(str(text) for text, key in pairs if key not in over)


def _told_with_jobs(ends: object) -> bool:
    last = ends[-1] if isinstance(ends, list) and ends else None
    jobs = last.get("jobs") if isinstance(last, dict) else None
    return isinstance(jobs, dict) and "requeued" in jobs

"""What the jobs that run use, read from the container's state without a start of Python there."""

from __future__ import annotations

from dshpc_setup.engine import containers
from dshpc_setup.machine import Machine
from dshpc_setup.usage import live
from dshpc_setup.usage.ledger import FOLDER
from dshpc_setup.usage.live import Kept


def of(machine: Machine, container: str, *, deadline_s: float) -> Kept:
    """Jobs that run there, without a start of Python; none where that is not known."""
    asked = containers.exec_in(
        machine, container, ["cat", f"{FOLDER}/live.json"], deadline_s=deadline_s, user="0"
    )
    try:
        return live.parse(asked.stdout) if asked.ok else Kept()
    except (ValueError, RecursionError):
        return Kept()

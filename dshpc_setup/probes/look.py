"""What every probe does: read a small file, keep the evidence."""

from __future__ import annotations

import re

from dshpc_setup.facts import Evidence, State
from dshpc_setup.machine import Machine


class Look:
    """A probe's look at a machine: its clock started, its evidence collected in order."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.evidence: list[Evidence] = []
        self._started = machine.clock()

    def saw(self, probe: str, state: State, source: str, detail: str | None = None) -> None:
        """Add a piece of evidence; its time is counted from the piece before."""
        now = self.machine.clock()
        ms = round((now - self._started) * 1000, 1)
        self._started = now
        self.evidence.append(Evidence(probe, state, source, ms, detail))

    def text(self, path: str) -> str | None:
        """The file's text without white space around it; None where it cannot be read."""
        read = self.machine.read(path)
        return read.text.strip() if read.text is not None else None

    def number(self, path: str) -> int | None:
        return whole_number(self.text(path))


def whole_number(text: str | None) -> int | None:
    """A decimal or 0x number as the kernel prints it; None for anything else."""
    text = (text or "").strip()
    if re.fullmatch(r"-?\d{1,30}", text, re.ASCII):
        return int(text)
    if re.fullmatch(r"0x[0-9a-fA-F]{1,30}", text, re.ASCII):
        return int(text, 16)
    return None

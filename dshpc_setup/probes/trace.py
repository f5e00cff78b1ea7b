"""What every probe does: read a small file, keep the evidence, say what follows from it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from dshpc_setup.facts import Because, Conclusion, Evidence, ModuleKind, State
from dshpc_setup.machine import Ended, Machine
from dshpc_setup.terminal import sanitize

_T = TypeVar("_T")

KEPT_TEXT = 2000
"""How much is kept of a text that could not be understood: enough to see what it is."""


@dataclass(frozen=True)
class Found(Generic[_T]):
    """A probe's answer: the fact, what was looked at, and what was concluded."""

    fact: _T
    evidence: tuple[Evidence, ...] = ()
    conclusions: tuple[Conclusion, ...] = ()


def failure(name: str, end: Ended) -> Evidence:
    """What is told of a question that has told nothing itself."""
    state = "error" if end.state == "present" else end.state
    return Evidence(
        name, state, f"the {name} probe", end.ms, end.detail or "the probe gave no answer"
    )


class Trace:
    """A probe's look at a machine: its clock started, its evidence collected in order."""

    def __init__(self, machine: Machine, deadline_s: float = 0.0) -> None:
        self.machine = machine
        self._deadline_s = deadline_s
        self._evidence: list[Evidence] = []
        self._conclusions: list[Conclusion] = []
        self._started = machine.clock()
        self.unseen: list[str] = []  # what may not be read: its silence says nothing

    def tool_s(self, usual_s: float) -> float:
        """The deadline of one tool: a third of the look's where that is more than usual."""
        return max(min(self._deadline_s or usual_s, usual_s), self._deadline_s / 3)

    def saw(
        self,
        probe: str,
        state: State,
        source: str,
        detail: str | None = None,
        code: int | None = None,
        module: ModuleKind | None = None,
    ) -> None:
        """Add a piece of evidence; its time is counted from the piece before."""
        now = self.machine.clock()
        ms = round((now - self._started) * 1000, 1)
        self._started = now
        self._evidence.append(Evidence(probe, state, source, ms, detail, code, module))

    def concluded(
        self,
        about: str,
        says: str,
        *because: tuple[str, str],
        instead: Iterable[tuple[str, str] | Because] = (),
    ) -> None:
        """Add a conclusion: (source, what it says) pairs, and (what was not chosen, why not)."""
        self._conclusions.append(
            Conclusion(
                about,
                says,
                tuple(Because(*pair) for pair in because),
                tuple(each if isinstance(each, Because) else Because(*each) for each in instead),
            )
        )

    def found(self, fact: _T) -> Found[_T]:
        return Found(fact, tuple(self._evidence), tuple(self._conclusions))

    def names(self, folder: str) -> tuple[str, ...]:
        """What is in the folder; one that may not be listed is kept in `unseen`."""
        names = self.machine.listdir(folder)
        if not names and self.machine.read(folder).state == "denied":
            self.keep_unseen(folder)
        return names

    def keep_unseen(self, path: str) -> None:
        """Once, however often it was tried."""
        if path not in self.unseen:
            self.unseen.append(path)

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


def counted(number: int, what: str) -> str:
    """ "1 GPU", "2 GPUs", "no GPU"."""
    return sanitize.counted(number, what) if number else f"no {what}"


def kept(text: str) -> str:
    """The beginning of a text that could not be understood, for an `error` fact's detail."""
    text = text.replace("\0", "").strip()
    return text if len(text) <= KEPT_TEXT else f"{text[:KEPT_TEXT]}... ({len(text)} characters)"

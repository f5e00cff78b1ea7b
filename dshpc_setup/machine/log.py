"""What a machine was asked and what it answered, as the files of a folder will tell it."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from typing import Any, Literal

from dshpc_setup.facts import State
from dshpc_setup.machine import CommandResult, Read, Reply
from dshpc_setup.machine.tree import Tree

Kind = Literal["read", "there", "link", "device", "number", "group", "changed", "disk", "access",
               "architecture", "which", "run", "reply"]  # fmt: skip

KERNEL_LOG: tuple[tuple[str, ...], tuple[str, ...]] = (
    ("dmesg",),
    ("journalctl", "--dmesg", "--boot", "--output=cat", "--no-pager", "--lines=20000"),
)
"""What asks for the kernel's log: dmesg, and the newest of the journal, for a machine may have been up for
months. No recording keeps the answers, which are nobody's business; its kernel.log answers in their place."""


@dataclass(frozen=True)
class Note:
    """One answer; `asked` comes before what may hang, with the answer that counts if it does."""

    kind: Kind
    key: Any
    answer: Any
    asked: bool = False


@dataclass
class Log:
    """Everything that a machine was asked: paths with all links on the way to them followed."""

    read: dict[str, Read] = field(default_factory=dict)
    there: set[str] = field(default_factory=set)
    links: dict[str, str] = field(default_factory=dict)
    devices: set[str] = field(default_factory=set)
    numbers: dict[str, tuple[int, int]] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)
    changed: dict[str, float] = field(default_factory=dict)
    disks: dict[str, int] = field(default_factory=dict)
    access: dict[str, State] = field(default_factory=dict)
    architectures: dict[str, str] = field(default_factory=dict)
    programs: dict[str, str | None] = field(default_factory=dict)
    commands: dict[tuple[str, ...], CommandResult] = field(default_factory=dict)
    replies: dict[str, Reply] = field(default_factory=dict)
    begun: dict[tuple[Kind, Any], Any] = field(default_factory=dict)

    def add(self, note: Note) -> None:
        """Keep the note; of two answers to one question the first."""
        if note.asked:
            self.begun[note.kind, note.key] = note.answer
        elif note.kind == "there":
            self.there.update(note.answer)
        elif note.kind == "device":
            self.devices.add(note.key)
        else:
            self._answers(note.kind).setdefault(note.key, note.answer)

    def _answers(self, kind: Kind) -> dict[Any, Any]:
        answers: dict[str, dict[Any, Any]] = {
            "read": self.read,
            "link": self.links,
            "number": self.numbers,
            "group": self.groups,
            "changed": self.changed,
            "disk": self.disks,
            "access": self.access,
            "architecture": self.architectures,
            "which": self.programs,
            "run": self.commands,
            "reply": self.replies,
        }
        return answers[kind]

    def close(self) -> None:
        """Nothing will come any more: what was begun and has not ended hangs."""
        for (kind, key), answer in self.begun.items():
            if kind in ("run", "reply"):
                self._answers(kind).setdefault(key, answer)

    def _hangs(self) -> frozenset[str]:
        return frozenset(
            key
            for kind, key in self.begun
            if kind in ("read", "access") and key not in self._answers(kind)
        )

    def tree(self) -> Tree:
        """The files, as far as they were asked for."""
        states: dict[str, dict[str, str]] = {"denied": {}, "error": {}}
        texts: dict[str, str] = {}
        for path, read in self.read.items():
            if read.text is not None:
                texts[path] = read.text
            elif read.state in states:
                states[read.state][path] = read.detail or ""
        there = self.there | {path for path, state in self.access.items() if state != "absent"}
        inner = {posixpath.dirname(path) for path in (*texts, *self.links, *self.devices, *there)}
        return Tree(
            texts,
            self.links,
            frozenset(self.devices),
            {path: words for path, words in states["denied"].items() if path not in self.devices},
            {path: words for path, words in states["error"].items() if path not in self.devices},
            self._hangs(),
            frozenset((there - inner) | set(self.groups) | set(self.changed)),
            self.groups,
            {path: state for path, state in self.access.items() if state in ("denied", "error")},
            self.numbers,
            self.changed,
            self.architectures,
        )

"""Where a workflow's file lies, and what can be seen from there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath


@dataclass(frozen=True)
class Place:
    """Where the file lies, where methods are looked for, and what of the machine jobs see."""

    file: FilePath
    folders: Sequence[FilePath]
    work: str | None = None  # None: there is no cluster yet, and what it will see is not known

    @property
    def folder(self) -> FilePath:
        return self.file.parent

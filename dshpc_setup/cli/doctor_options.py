"""What a command line of `dshpc doctor` asks for; read before anything of the checks is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class DoctorOptions:
    """The options of `dshpc doctor` that say what is shown, and how."""

    json: bool = False
    verbose: bool = False
    strict: bool = False
    junit: Path | None = None
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()

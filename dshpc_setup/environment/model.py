"""What a project's `environment/` declares, and what its lock holds."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from typing import Any

FOLDER = "environment"
LOCK = "lock.json"
LOCK_SCHEMA = "dshpc.environment-lock/1"


@dataclass(frozen=True, order=True)
class Requirement:
    """A Python package: "scikit-learn", ("extra", ...), ">=1.5,<2" ("" is any version)."""

    name: str
    extras: tuple[str, ...] = ()
    versions: str = ""

    @property
    def key(self) -> str:
        """The name by which packages are compared (PEP 503)."""
        return re.sub(r"[-_.]+", "-", self.name).lower()

    def __str__(self) -> str:
        extras = f"[{','.join(self.extras)}]" if self.extras else ""
        return f"{self.name}{extras}{self.versions}"


@dataclass(frozen=True)
class Declaration:
    """All that is declared, in order of name."""

    python: tuple[Requirement, ...] = ()
    apt: tuple[str, ...] = ()
    r: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.python or self.apt or self.r)

    def texts(self) -> dict[str, tuple[str, ...]]:
        """Kind -> what is declared, as a lock keeps it to be compared with."""
        python = tuple(sorted(str(Requirement(x.key, x.extras, x.versions)) for x in self.python))
        return {"python": python, "apt": tuple(sorted(self.apt)), "r": tuple(sorted(self.r))}


@dataclass(frozen=True, order=True)
class Wheel:
    """One Python package of a lock, with the file that holds it."""

    name: str
    version: str
    file: str
    sha256: str


@dataclass(frozen=True)
class DebianPackage:
    """One package of Debian; `wanted_by` is "apt" or "r"."""

    name: str
    version: str
    wanted_by: str


@dataclass(frozen=True)
class Lock:
    """`declared`: what it was made from."""

    python: str
    architecture: str
    declared: dict[str, tuple[str, ...]]
    wheels: tuple[Wheel, ...] = ()
    debian: tuple[DebianPackage, ...] = ()

    @property
    def digest(self) -> str:
        """Over what ends up in the image, as its label says it."""
        what = {name: value for name, value in asdict(self).items() if name != "declared"}
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        # `installer` named the pip that 0.1.0 installed the wheels with
        return {"schema": LOCK_SCHEMA, **asdict(self), "installer": None}

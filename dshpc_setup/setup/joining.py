"""What a run does beside its own steps where this machine joins a cluster elsewhere: see the room `join`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from dshpc_setup.machine import Machine


class Joining(Protocol):
    """One join whose proofs have been made; nothing is written yet."""

    @property
    def flags(self) -> Mapping[str, str | None]:
        """Settings that the cluster decides, as if they were given."""
        ...

    @property
    def note(self) -> Mapping[str, Any]:
        """What is kept in the folder of it: project.folder.JOINED."""
        ...

    @property
    def said(self) -> tuple[str, ...]:
        """What was found, a sentence each."""
        ...

    def prepare(self) -> None:
        """The files that the image is made from."""
        ...

    def connect(self, machine: Machine, container: str) -> None:
        """The container is up and waits for the key: it is given it. Raises DshpcError."""
        ...

    def conclude(self) -> None:
        """The node takes jobs."""
        ...

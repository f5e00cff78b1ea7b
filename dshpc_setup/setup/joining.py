"""What a run does beside its own steps where this machine joins a cluster elsewhere: see the room `join`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from dshpc_setup.cluster import verify
from dshpc_setup.engine import containers
from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.machine import Machine
from dshpc_setup.settings import Settings


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

    def conclude(self, machine: Machine) -> tuple[str, ...]:
        """The node takes jobs; what users of it should know, a sentence each."""
        ...


def rejoined(machine: Machine, settings: Settings, joining: Joining) -> bool:
    """Whether the node of an earlier join runs here, and has the key now: with another one it could not even
    be asked what runs there. Raises DshpcError where it does not come up with it."""
    found = containers.inspect(machine, settings.container)
    if found is None or not found.running:
        return False
    joining.connect(machine, settings.container)
    verify.wait_ready(machine, settings.container)
    return True


def refuse_keyless(machine: Machine, settings: Settings) -> None:
    """Raises DshpcError where this machine is a node of a cluster elsewhere, whose key it has no more."""
    if not settings.place.is_joined:
        return
    if containers.volume_labels(machine, f"{settings.prefix}-key") is not None:
        return
    raise DshpcError(
        f"This machine is no longer a node of the cluster {settings.prefix}: it lacks the cluster's key.",
        f"It had joined as {settings.node}, and dshpc destroy has removed the key.",
        (
            Fix("Have a token made, on the controller's machine", "dshpc node token"),
            Fix("Then join again", "configure-environment --join TOKEN", step="after"),
            Fix(
                "Or set up a cluster of its own, in another folder",
                "configure-environment --dir DIR",
                step="alternative",
            ),
        ),
    )

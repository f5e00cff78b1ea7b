"""What a run does beside its own steps where this machine joins a cluster elsewhere: see the room `join`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from dshpc_setup.builtin import rights
from dshpc_setup.cluster import verify
from dshpc_setup.engine import containers
from dshpc_setup.engine_client import BUILTIN, PODMAN
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

    @property
    def one_user(self) -> bool:
        """Whether the controller's container has one user, root, as whom all jobs of the cluster run."""
        ...

    def without_share(self) -> bool:
        """The node keeps to a work folder of its own; whether it would have had the cluster's."""
        ...

    def keep_to(self, owner: int) -> None:
        """The node takes this user's jobs alone."""
        ...

    def prepare(self) -> None:
        """The files that the image is made from."""
        ...

    def connect(self, machine: Machine, container: str) -> None:
        """The container is up and waits for the key: it is given it. One of an earlier join that could not
        take it as it is starts again. Raises DshpcError."""
        ...

    def conclude(self, machine: Machine) -> tuple[str, ...]:
        """The node takes jobs; what users of it should know, a sentence each."""
        ...


def fit_ids(machine: Machine, joining: Joining, kind: str) -> str | None:
    """What follows from the users that a container of this user has here, as a sentence; None for root's.

    Raises DshpcError where jobs of the cluster's users could not run in it.
    """
    user = rights.current_user()
    found = rights.find(machine) if kind == BUILTIN else None
    way = "root" if found is None else rights.need(found, user).way
    if kind == PODMAN and machine.uid != 0:
        way = "mapped"
    if joining.one_user and way != "single":
        raise DshpcError(
            "This machine cannot be a node: all jobs of the cluster run as one user, root.",
            "The controller's user has no range of ids. Here those jobs would be root's.",
            (
                "Give the controller's user a range of ids (/etc/subuid), and set its cluster up again.",
            ),
        )
    if way == "single" and not joining.one_user:
        joining.without_share()
        joining.keep_to(machine.uid)
        steps = rights.fixes(found, user) if found is not None else ()
        number = f"user number {machine.uid}"
        whose = number if user == str(machine.uid) else f"{user} ({number})"
        more = "".join(f" {step.text}: {step.command}. Then join again." for step in steps[:1])
        return (
            f"This node takes the jobs of {whose} alone: this user has no range of ids here, "
            f"so nobody else's job can run as its user. Its work folder is its own.{more}"
        )
    if way != "mapped" or not joining.without_share():
        return None
    return (
        f"The cluster's work folder is seen here, and not used: a container of {user}'s has ids of {user}'s "
        "range for all other users, and their files are not theirs in it. Join as root to use it."
    )


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

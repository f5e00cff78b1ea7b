"""What a machine that joins is given of the controller, and what becomes of it there.

Both are JSON on a pipe between the container and the host's dshpc; none of it lies in a file of the host.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dshpc_setup import codec
from dshpc_setup.container import accounts, daemons, key_set, keys, status, users
from dshpc_setup.documents import foreign
from dshpc_setup.errors import DshpcError, Fix, usage_error
from dshpc_setup.files.storage import read_text, replace_bytes, replace_text

if TYPE_CHECKING:
    from dshpc_setup.machine import Machine
    from dshpc_setup.slurm.paths import Paths

KEY_SCHEMA = "dshpc.join-key/1"
ABOUT_SCHEMA = "dshpc.join-about/1"
_ASK_S = 20.0
_ANEW = "joined-anew"  # in the state volume: another key was taken, and no start has ended with it
_MOST_BYTES = 8 << 20


@dataclass(frozen=True)
class Given:
    """The key of auth/slurm, base64, and the list of users as container/accounts.py writes it."""

    key: str
    users: str = ""


@dataclass(frozen=True)
class About:
    """Slurm's version, "24.11.5", and the number of its user, as they are in a container."""

    slurm: str
    slurm_uid: int


def about(machine: Machine, slurm_uid: int) -> About:
    """Raises DshpcError where slurmd does not say its version."""
    said = machine.run(["slurmd", "-V"], deadline_s=_ASK_S)
    found = re.match(r"slurm(?:-wlm)? ([0-9.]+)", said.stdout)
    if found is None:
        raise DshpcError("slurmd does not say its version.", said.text)
    return About(found[1], slurm_uid)


def give(paths: Paths) -> Given:
    """The controller's; raises DshpcError for a key that is not there or must not be used."""
    keys.refuse_unusable(paths)
    try:
        with open(paths.key, "rb") as file:
            key = base64.b64encode(file.read()).decode()
    except OSError as error:
        raise DshpcError("There is no key yet.", error.strerror or str(error)) from None
    return Given(key, read_text(f"{paths.state}/users") or "")


def given_users(text: str) -> str:
    """The list of users in what `give` gave; raises ValueError."""
    return codec.from_json(Given, foreign.value(text, most_bytes=_MOST_BYTES), KEY_SCHEMA).users


def take(paths: Paths, slurm: tuple[int, int], text: str) -> bool:
    """Key and users in their places; whether another key was there. Raises DshpcError for a damaged text,
    and changes nothing then."""
    try:
        given = codec.from_json(
            Given, foreign.value(text, most_bytes=_MOST_BYTES), KEY_SCHEMA, unknown="refused"
        )
        key = base64.b64decode(given.key, validate=True)
        key_set.parse(key)
    except (ValueError, KeyError, binascii.Error) as error:
        raise usage_error("What was given is no key of a cluster.", type(error).__name__) from None
    told = accounts.from_text(given.users)
    os.makedirs(paths.state, exist_ok=True)
    list_path = f"{paths.state}/users"
    own = accounts.from_text(read_text(list_path) or "")
    new = {user.uid for user in told}
    replace_text(
        list_path, accounts.to_text((*(user for user in own if user.uid not in new), *told))
    )
    users.restore(paths)
    before = None
    with contextlib.suppress(FileNotFoundError), open(paths.key, "rb") as file:
        before = file.read()
    if before not in (None, key):
        replace_text(f"{paths.state}/{_ANEW}", "")
    if before != key:
        os.makedirs(os.path.dirname(paths.key), exist_ok=True)
        replace_bytes(paths.key, key, 0o600, slurm)
    return before not in (None, key)


def refuse_former_key(machine: Machine, paths: Paths, node: str) -> None:
    """Raises DshpcError on a node whose key is not the controller's any more: while that of before is still
    accepted, it would take itself back, and be out a minute later."""
    found = daemons.show_node(machine, node)
    if found is None or not found.has_former_key or os.path.exists(f"{paths.state}/{_ANEW}"):
        return
    raise DshpcError(
        "The cluster's key was changed while this node was away.",
        "It has the key of before, which is refused a minute after a change.",
        join_anew(),
    )


def join_anew() -> tuple[Fix, ...]:
    return (
        Fix("Have a token made, on the controller's machine", "dshpc node token --once"),
        Fix(
            "Then join again, here",
            "configure-environment --yes --no-build --join TOKEN",
            step="after",
        ),
    )


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Where the block fails on such a node, with what else it may be: nobody answers to a former key."""
    try:
        yield
    except DshpcError as error:
        first, *rest = join_anew()
        if first in error.steps:
            raise
        meanwhile = (
            "Where the cluster's key was changed meanwhile, have a token made on its machine"
        )
        first = replace(first, text=meanwhile)
        raise replace(error, steps=(*error.steps, first, *rest)) from None


def settle(paths: Paths) -> None:
    """The key that it has joined again with is in force."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{paths.state}/{_ANEW}")


def take_up(machine: Machine, paths: Paths) -> bool:
    """Another key than before is in force on a node that has joined again, and jobs there go on; False where
    a start of the container is needed for it."""
    if (status.read(paths) or {}).get("phase") != "ready":
        return False
    node, since = (read_text(f"{paths.run}/node") or "").strip(), time.time()
    try:
        if not keys.slurmd_takes_up(machine, paths):
            return False
        # It was taken out while it had the former key: cluster/key.py
        found = daemons.wait_registered(machine, node, since)
        daemons.take_back(machine, node, found, fresh=False)
        settle(paths)
    except DshpcError:
        return False
    return True


def read_stdin() -> str:
    return sys.stdin.read(_MOST_BYTES)

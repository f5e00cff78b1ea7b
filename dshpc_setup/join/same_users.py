"""Names and numbers of the cluster's users, beside those of a machine that joins: files belong to numbers."""

from __future__ import annotations

from collections.abc import Sequence

from dshpc_setup.container import accounts
from dshpc_setup.container.accounts import User
from dshpc_setup.container.joining import given_users
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import Machine
from dshpc_setup.terminal.sanitize import plain

_ASK_S = 20.0
_NOT_ALL = 2  # getent(1): one of the keys is in no database
_MOST = 1000  # keys of one command line


def words(machine: Machine, given: str, host: str) -> tuple[str, ...]:
    """A sentence for each user who is another one here; `given` is what the controller gave with the key."""
    try:
        users = accounts.from_text(given_users(given))
    except (ValueError, DshpcError):
        return ()  # the container has refused that already
    keys = [key for user in users for key in (str(user.uid), user.name)]
    lines: list[str] = []
    for at in range(0, len(keys), _MOST):
        asked = machine.run(["getent", "passwd", "--", *keys[at : at + _MOST]], deadline_s=_ASK_S)
        if asked.code not in (0, _NOT_ALL):
            return (
                f"Whether the cluster's users have the same numbers on {plain(host)} is not known: getent "
                f"says: {plain(asked.text)}. See docs/how-to/other-machines.md.",
            )
        lines += asked.stdout.splitlines()
    return tuple(_words(user, *found, plain(host)) for user, found in conflicts(users, lines))


def conflicts(
    users: Sequence[User], lines: Sequence[str]
) -> list[tuple[User, tuple[int | None, str | None]]]:
    """Users with another number that their name has here, and another name that their number has. Pure."""
    fields = [line.split(":") for line in lines]
    here = [(each[0], int(each[2])) for each in fields if len(each) > 2 and each[2].isdecimal()]
    numbers, names = dict(reversed(here)), {uid: name for name, uid in reversed(here)}
    found = []
    for user in users:
        number, name = numbers.get(user.name), names.get(user.uid)
        other = (None if number == user.uid else number, None if name == user.name else name)
        if other != (None, None):
            found.append((user, other))
    return found


def _words(user: User, number: int | None, name: str | None, host: str) -> str:
    of = plain(user.name)
    told = f"User {of} has the number {user.uid} in the cluster, and on {host} "
    if number is not None:
        told += f"the number {number}"
    if name is not None:
        told += (" and " if number is not None else "") + f"{user.uid} is {plain(name)}"
    because = f": what jobs of {of} write there belongs to {user.uid}"
    if name is not None:
        because += f", and they may read and change the files of {plain(name)}"
    return (
        f"{told}{because}. Give names the same numbers on both machines "
        "(docs/how-to/other-machines.md#users)."
    )

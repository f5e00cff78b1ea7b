"""Names and numbers of the cluster's users, beside those of a machine that joins: files belong to numbers."""

from __future__ import annotations

from dshpc_setup.container import accounts, other_users
from dshpc_setup.container.joining import given_users
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import Machine
from dshpc_setup.terminal.sanitize import plain

_ASK_S = 20.0
_NOT_ALL = 2  # getent(1): one of the keys is in no database
_MOST = 1000  # keys of one command line
_FIRST_UID, _NOBODY = 1000, 65534  # below are those of the system (login.defs)


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
    return tuple(map(other_users.words, other_users.conflicts(users, lines, host)))


def of_this_machine(machine: Machine) -> str:
    """People who have accounts here, as far as they can be listed: lines of a passwd file, without what is in
    the comment field, home and shell."""
    kept, size = [], 0
    for line in machine.run(["getent", "passwd"], deadline_s=_ASK_S).stdout.splitlines():
        name, _, uid = (line.split(":") + ["", ""])[:3]
        if not uid.isdecimal() or not (_FIRST_UID <= int(uid) != _NOBODY):
            continue
        size += len(name.encode()) + len(uid) + 4
        if size > other_users.MOST_BYTES:
            break
        kept.append(f"{name}:x:{uid}")
    return "\n".join(kept)

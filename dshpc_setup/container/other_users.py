"""Users of the cluster who are somebody else on another machine: files belong to numbers, whatever the name.

A machine that joins tells its own users, and the list lies beside what its node offers, for root alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from dshpc_setup.container import accounts
from dshpc_setup.container.accounts import User
from dshpc_setup.errors import usage_error
from dshpc_setup.files.storage import read_text, replace_text
from dshpc_setup.jobs.offer import NODES
from dshpc_setup.observed.model import OtherUser
from dshpc_setup.terminal.sanitize import plain

if TYPE_CHECKING:
    from dshpc_setup.slurm.paths import Paths

_FILE = "users"
_NAME = re.compile(r"[\w.+-]+", re.ASCII)
MOST_BYTES = 512 << 10  # some 25,000 users


def keep(paths: Paths, node: str, lines: str) -> None:
    """The users of that node's machine, as lines of a passwd file, of which names and numbers are kept."""
    folder = paths.at(f"{NODES}/{node}")
    if not _NAME.fullmatch(node) or node.startswith(".") or not os.path.isdir(folder):
        raise usage_error(f"There is no node {plain(node)}.")
    kept = "".join(f"{name}:x:{uid}\n" for name, uid in _pairs(lines.splitlines()))
    replace_text(f"{folder}/{_FILE}", kept, mode=0o600)


def on_other_machines(paths: Paths, users: Sequence[User] | None = None) -> tuple[OtherUser, ...]:
    """Of these users, by default all that are known, who are others there."""
    folder = paths.at(NODES)
    try:
        nodes = sorted(name for name in os.listdir(folder) if _NAME.fullmatch(name))
    except OSError:
        return ()
    lists = {node: text for node in nodes if (text := read_text(f"{folder}/{node}/{_FILE}"))}
    if not lists:
        return ()
    if users is None:
        users = accounts.from_text(read_text(f"{paths.state}/users") or "")
    return tuple(
        each for node, text in lists.items() for each in conflicts(users, text.splitlines(), node)
    )


def conflicts(users: Iterable[User], lines: Sequence[str], host: str) -> Iterator[OtherUser]:
    """Users with another number that their name has there, and another name that their number has. Pure.

    `lines`: of a passwd file.
    """
    there = list(_pairs(lines))
    numbers, names = dict(reversed(there)), {uid: name for name, uid in reversed(there)}
    for user in users:
        number, name = numbers.get(user.name), names.get(user.uid)
        number, name = (
            (None if number == user.uid else number),
            (None if name == user.name else name),
        )
        if number is not None or name is not None:
            yield OtherUser(host, user.name, user.uid, number, name)


def _pairs(lines: Iterable[str]) -> Iterator[tuple[str, int]]:
    for line in lines:
        name, _, rest = line.partition(":")
        uid = rest.split(":")[1:2]
        if name.isprintable() and uid and re.fullmatch(r"[0-9]{1,10}", uid[0]):
            yield name, int(uid[0])


def words(each: OtherUser) -> str:
    """A sentence: what is wrong, and what comes of it."""
    of, host = plain(each.name), plain(each.node)
    told = f"User {of} has the number {each.uid} in the cluster, and on {host} "
    if each.number is not None:
        told += f"the number {each.number}"
    because = f": what jobs of {of} write there belongs to {each.uid}"
    if each.other is not None:
        told += (" and " if each.number is not None else "") + f"{each.uid} is {plain(each.other)}"
        because += f", and they may read and change the files of {plain(each.other)}"
    return (
        f"{told}{because}. Give names the same numbers on both machines "
        "(docs/how-to/other-machines.md#users)."
    )

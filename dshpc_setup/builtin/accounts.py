"""Users of a container, by its own /etc/passwd and /etc/group. Pure."""

from __future__ import annotations

from dataclasses import dataclass

_MOST_ID = (1 << 32) - 2  # the last one means "none"


@dataclass(frozen=True)
class Account:
    """Who runs a program: `groups` are all of the user's, the first one left out."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    name: str
    home: str


def find(who: str, passwd: str, group: str) -> Account | None:
    """NAME, UID, NAME:GROUP or UID:GID (as Docker has them); None for a name that is not known.

    A number that nobody has is a user without a name, whose group is the same number if none is given.
    """
    user, _, of_group = who.partition(":")
    entries = [line.split(":") for line in passwd.splitlines()]
    number = _id(user)
    for entry in entries:
        if len(entry) < 6 or not (
            entry[0] == user or (number is not None and _id(entry[2]) == number)
        ):
            continue
        uid, gid = _id(entry[2]), _id(entry[3])
        if uid is None or gid is None or not entry[0]:
            continue
        if not of_group:
            return Account(uid, gid, groups_of(entry[0], gid, group), entry[0], entry[5] or "/")
        wanted = _group(of_group, group)
        return None if wanted is None else Account(uid, wanted, (), entry[0], entry[5] or "/")
    wanted = _group(of_group, group) if of_group else number
    if number is None or wanted is None:
        return None
    return Account(number, wanted, (), str(number), "/")


def with_one_id(text: str, columns: tuple[int, ...]) -> str:
    """An /etc/passwd or /etc/group in which everybody is root, for a container that has no other id.

    So the user that Slurm's configuration names is the one that its daemons are.
    """
    lines = []
    for line in text.splitlines():
        fields = line.split(":")
        for at in columns:
            if at < len(fields) and _id(fields[at]) is not None:
                fields[at] = "0"
        lines.append(":".join(fields) + "\n")
    return "".join(lines)


def groups_of(name: str, gid: int, group: str) -> tuple[int, ...]:
    """The groups that name the user among their members, in the file's order; not `gid`."""
    found: dict[int, None] = {}
    for line in group.splitlines():
        fields = line.split(":")
        number = _id(fields[2]) if len(fields) > 3 else None
        if number is not None and number != gid and name in fields[3].split(","):
            found[number] = None
    return tuple(found)


def _group(wanted: str, group: str) -> int | None:
    for line in group.splitlines():
        fields = line.split(":")
        if len(fields) > 2 and fields[0] == wanted:
            return _id(fields[2])
    return _id(wanted)


def _id(text: str) -> int | None:
    if not (text.isascii() and text.isdigit() and len(text) < 11):
        return None
    return int(text) if int(text) <= _MOST_ID else None

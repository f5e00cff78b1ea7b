"""What users become in the container: lines of /etc/passwd, /etc/group and of the list that is kept of them.

All of it is text in, text out; users.py reads and writes the files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.slurm.paths import HOMES

ROOTS = f"{HOMES}/root"
_OURS = "dsHPC user"  # the comment field of our passwd entries
_SHELL = "/bin/bash"
_MOST_ID = 2**32 - 2  # the last one means "no id"
_GPU_GROUP = "dshpc-gpu-"  # and the number, where the image has no group of that number


@dataclass(frozen=True)
class User:
    """A user as the host knows him; `home` None for the usual place, a folder of the home volume."""

    uid: int
    gid: int
    name: str
    home: str | None = None


@dataclass(frozen=True)
class Account:
    """The same user as the container knows him: the login name may differ where it was taken."""

    user: User
    login: str
    home: str


@dataclass(frozen=True)
class Accounts:
    """New texts of /etc/passwd and /etc/group."""

    passwd: str
    group: str
    known: tuple[Account, ...]


def checked(uid: str, gid: str, name: str, home: str | None = None) -> User:
    """The user from the texts of a command line; a usage error where one cannot be."""
    for what, text in (("UID", uid), ("GID", gid)):
        if not re.fullmatch(r"[0-9]{1,10}", text) or int(text) > _MOST_ID:
            raise usage_error(f"{what} is {text!r}, but must be a number up to {_MOST_ID}.")
    if int(uid) == 0:
        raise usage_error("UID is 0: root is known already.")
    # a comma parts the members of a group from each other
    bad = "must not hold ','" if "," in name else _unfit(name)
    if bad:
        raise usage_error(f"The user name {name!r} {bad}.")
    if home is not None and (not home.startswith("/") or _unfit(home)):
        raise usage_error(f"The home {home!r} must be an absolute path without ':'.")
    return User(int(uid), int(gid), name, home)


def _unfit(text: str) -> str | None:
    if not text or len(text) > 255:
        return "must have 1 to 255 characters"
    # '+' and '-' at the start have a meaning of their own in passwd, '#' makes a comment
    if text[0] in "+-#" or text != text.strip():
        return "must not begin with '+', '-', '#' or a blank, nor end in a blank"
    if ":" in text or any(ord(char) < 32 or ord(char) == 127 for char in text):
        return "must not hold ':' or control characters"
    return None


def merge(
    passwd: str,
    group: str,
    users: Iterable[User],
    gpu_gids: Iterable[int] = (),
    owners: Mapping[str, int] = MappingProxyType({}),
) -> Accounts:
    """The image's own entries stay as they are, but for root's home; ours are written again, one for each
    user.

    A uid of the image's own is used under the name it has there. Of several uids with one name, the last
    has it as login: on a host each name is one user's, so the others have been deleted there. They, and
    who is called as one of the image's own, get the uid behind the name. All users are made members of
    the groups `gpu_gids`. `owners`: home -> uid of those that are there; nobody is given another's.
    """
    lines = [_at_home(line) for line in passwd.splitlines() if not _is_ours(line)]
    by_uid = {fields[2]: fields for fields in map(_fields, lines) if len(fields) > 5}
    logins = {line.partition(":")[0] for line in lines}
    homes = {ROOTS}
    groups = [line for line in group.splitlines() if not line.startswith(_GPU_GROUP)]
    known, users = [], tuple(users)
    last = {user.name: user.uid for user in users if str(user.uid) not in by_uid}
    login_of = {uid: name for name, uid in last.items() if name not in logins}
    logins |= set(login_of.values())
    for user in users:
        if user.uid not in login_of:
            login_of[user.uid] = _free(user.name, user.uid, logins)
            logins.add(login_of[user.uid])
    for user in users:
        groups = _with_group(groups, user)
        own = by_uid.get(str(user.uid))
        if own is not None:
            known.append(Account(user, own[0], own[5]))
            continue
        login = login_of[user.uid]
        home = user.home or _home(user, homes, owners)
        homes.add(home)
        lines.append(f"{login}:x:{user.uid}:{user.gid}:{_OURS}:{home}:{_SHELL}")
        known.append(Account(user, login, home))
    for gid in gpu_gids:
        groups = _with_members(groups, gid, [each.login for each in known])
    return Accounts(
        "".join(f"{x}\n" for x in lines), "".join(f"{x}\n" for x in groups), tuple(known)
    )


def _at_home(line: str) -> str:
    """Root's home is in the volume, too: what is left in the container's own layer is gone with it."""
    fields = _fields(line)
    return ":".join([*fields[:5], ROOTS, *fields[6:]]) if fields[2:3] == ["0"] else line


def with_root_at(passwd: str, home: str) -> str:
    """Where all users are one, root's home is that user's: Slurm gives a batch job the home of its uid."""
    return passwd.replace(f":{ROOTS}:", f":{home}:")


def _fields(line: str) -> list[str]:
    return line.split(":")


def _is_ours(line: str) -> bool:
    fields = _fields(line)
    return len(fields) == 7 and fields[4] == _OURS


def _with_group(groups: list[str], user: User) -> list[str]:
    taken = {_fields(line)[2]: line for line in groups if line.count(":") >= 3}
    if str(user.gid) in taken:
        return groups
    names = {line.partition(":")[0] for line in groups}
    usual = "group" if user.name.startswith(_GPU_GROUP) else user.name
    return [*groups, f"{_free(usual, user.gid, names)}:x:{user.gid}:"]


def _free(name: str, number: int, taken: set[str]) -> str:
    """The name, or that with the number behind it, as often as it takes."""
    while name in taken:
        name = f"{name}-{number}"
    return name


def _with_members(groups: list[str], gid: int, logins: list[str]) -> list[str]:
    """Under the name that the group has, with the members that it has; else as one of ours."""
    for place, line in enumerate(groups):
        fields = _fields(line)
        if len(fields) == 4 and fields[2] == str(gid):
            members = dict.fromkeys([*filter(None, fields[3].split(",")), *logins])
            return [
                *groups[:place],
                ":".join([*fields[:3], ",".join(members)]),
                *groups[place + 1 :],
            ]
    return [*groups, f"{_GPU_GROUP}{gid}:x:{gid}:{','.join(dict.fromkeys(logins))}"]


def _home(user: User, taken: set[str], owners: Mapping[str, int]) -> str:
    """One that is there and is this user's already, also after another name, else a new one."""
    safe = re.sub(r"[^A-Za-z0-9._@-]", "_", user.name)
    usual = f"{HOMES}/{safe}" if safe.strip(".") else f"{HOMES}/{user.uid}"
    own = sorted(home for home, uid in owners.items() if uid == user.uid)
    for home in (*(home for home in own if home == usual), *own, usual):
        if home not in taken and owners.get(home, user.uid) in (0, user.uid):
            return home
    return f"{usual}-{user.uid}"


def to_text(users: Iterable[User]) -> str:
    """The file of the state volume: lines `uid:gid:home:name`; an empty home is the usual one."""
    return "".join(f"{u.uid}:{u.gid}:{u.home or ''}:{u.name}\n" for u in users)


def from_text(text: str) -> tuple[User, ...]:
    """What `to_text` wrote; a line that is none is an error, for a user may be missing then."""
    users = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line:
            continue
        fields = line.split(":")
        try:
            uid, gid, home, name = fields
            users.append(checked(uid, gid, name, home or None))
        except (ValueError, DshpcError):
            raise DshpcError(
                f"Line {number} of the list of users in the state volume is damaged: {line!r}.",
                "Each line must be uid:gid:home:name.",
                ("Correct or remove that line in /var/lib/dshpc/state/users, then start again.",),
            ) from None
    return tuple(users)

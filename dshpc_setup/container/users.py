"""Users of the host, made known in the container.

A job of a user without a passwd entry fails with "Error generating job credential", and a queued
one is held when the entry is gone after the container was made anew: so they are kept in the state
volume and restored before slurmctld starts.

A job has the groups that /etc/group here gives its user, and none that Docker's `--group-add` gave the
container's first process: so every user is a member of the groups that own the GPUs' device files.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dshpc_setup.container.places import Places
from dshpc_setup.container.storage import read_text, replace_text
from dshpc_setup.errors import DshpcError, usage_error

_OURS = "dsHPC user"  # the comment field of our passwd entries
_SHELL = "/bin/bash"
_MOST_ID = 2**32 - 2  # the last one means "no id"
_GPU_GROUP = "dshpc-gpu-"  # and the number, where the image has no group of that number
_GPU_FILES = {"/dev": r"kfd|dxg|nvidia.*", "/dev/dri": r"renderD\d+", "/dev/nvidia-caps": r".*"}


@dataclass(frozen=True)
class User:
    """A user as the host knows him; `home` None for the usual place."""

    uid: int
    gid: int
    name: str
    home: str | None = None


@dataclass(frozen=True)
class Known:
    """The same user as the container knows him: the login name may differ where it was taken."""

    user: User
    login: str
    home: str


@dataclass(frozen=True)
class Accounts:
    """New texts of /etc/passwd and /etc/group."""

    passwd: str
    group: str
    known: tuple[Known, ...]


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


def merge(passwd: str, group: str, users: Iterable[User], gpu_gids: Iterable[int] = ()) -> Accounts:
    """The image's own entries stay as they are; ours are written anew, one for each user.

    A uid of the image's own is used under the name it has there; a login name that is taken gets
    the uid behind it. All users are made members of the groups `gpu_gids`.
    """
    lines = [line for line in passwd.splitlines() if not _is_ours(line)]
    by_uid = {fields[2]: fields for fields in map(_fields, lines) if len(fields) > 5}
    logins = {line.partition(":")[0] for line in lines}
    homes: set[str] = set()
    groups = [line for line in group.splitlines() if not line.startswith(_GPU_GROUP)]
    known = []
    for user in users:
        groups = _with_group(groups, user)
        own = by_uid.get(str(user.uid))
        if own is not None:
            known.append(Known(user, own[0], own[5]))
            continue
        login = user.name if user.name not in logins else f"{user.name}-{user.uid}"
        home = user.home or _home(user, homes)
        logins.add(login)
        homes.add(home)
        lines.append(f"{login}:x:{user.uid}:{user.gid}:{_OURS}:{home}:{_SHELL}")
        known.append(Known(user, login, home))
    for gid in gpu_gids:
        groups = _with_members(groups, gid, [each.login for each in known])
    return Accounts(
        "".join(f"{x}\n" for x in lines), "".join(f"{x}\n" for x in groups), tuple(known)
    )


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
    name = user.name if user.name not in names else f"{user.name}-{user.gid}"
    return [*groups, f"{name}:x:{user.gid}:"]


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


def gpu_gids(places: Places) -> tuple[int, ...]:
    """The groups of the GPU device files that are here, less root's own."""
    found = set()
    for folder, pattern in _GPU_FILES.items():
        try:
            names = os.listdir(places.at(folder))
        except FileNotFoundError:
            continue
        for name in names:
            path = places.at(f"{folder}/{name}")
            if re.fullmatch(pattern, name) and os.path.exists(path) and not os.path.isdir(path):
                found.add(os.stat(path).st_gid)
    return tuple(sorted(found - {0}))


def _home(user: User, taken: set[str]) -> str:
    safe = re.sub(r"[^A-Za-z0-9._@-]", "_", user.name)
    home = f"/home/{safe}" if safe.strip(".") else f"/home/{user.uid}"
    return home if home not in taken else f"{home}-{user.uid}"


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


def restore(places: Places) -> int:
    """Make all users of the state volume known; how many there are."""
    with _locked(places):
        users = from_text(read_text(_list(places)) or "")
        _apply(places, users)
    return len(users)


def add(places: Places, user: User) -> Known:
    """Make one more user known, now and after every later start."""
    with _locked(places):
        before = from_text(read_text(_list(places)) or "")
        users = (*(other for other in before if other.uid != user.uid), user)
        known = _apply(places, users)
        replace_text(_list(places), to_text(users))
    return known[-1]


def _list(places: Places) -> str:
    return f"{places.state}/users"


def _apply(places: Places, users: Iterable[User]) -> tuple[Known, ...]:
    passwd_path, group_path = places.at("/etc/passwd"), places.at("/etc/group")
    passwd, group = read_text(passwd_path) or "", read_text(group_path) or ""
    accounts = merge(passwd, group, users, gpu_gids(places))
    if accounts.group != group:
        replace_text(group_path, accounts.group)
    if accounts.passwd != passwd:
        replace_text(passwd_path, accounts.passwd)
    for known in accounts.known:
        if known.home.startswith("/home/"):
            _make_home(places.at(known.home), known.user)
        # What `as-user` compares before every command: a line it reads without a process of its own
        replace_text(
            f"{places.run}/users/{known.user.uid}",
            f"{known.user.gid}:{known.login}:{known.home}:{known.user.name}\n",
            sync=False,
        )
    return accounts.known


def _make_home(path: str, user: User) -> None:
    if not os.path.isdir(path):
        os.makedirs(path, mode=0o700)
        os.chown(path, user.uid, user.gid)


@contextmanager
def _locked(places: Places) -> Iterator[None]:
    os.makedirs(f"{places.run}/users", exist_ok=True)
    with open(f"{places.run}/users.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

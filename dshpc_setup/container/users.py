"""Users of the host, made known in the container.

A job of a user without a passwd entry fails with "Error generating job credential", and a queued
one is held when the entry is gone after the container was made anew: so they are kept in the state
volume and restored before slurmctld starts.

Their homes are in a volume of their own: what a job leaves in $HOME stays when the container is made anew.

A job has the groups that /etc/group here gives its user, and none that Docker's `--group-add` gave the
container's first process: so every user is a member of the groups that own the GPUs' device files.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from dshpc_setup import gpu_vendors
from dshpc_setup.container import accounts, ends, own_homes
from dshpc_setup.container.accounts import Account, User
from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.files.storage import open_lock, read_text, replace_text
from dshpc_setup.jobs import rights
from dshpc_setup.machine import Machine
from dshpc_setup.slurm.paths import ACCOUNTS, HOMES, Paths


def gpu_gids(paths: Paths) -> tuple[int, ...]:
    """The groups of the GPU device files that are here, less root's own."""
    found = set()
    files = (pair for each in gpu_vendors.all_of_them() for pair in each.nodes.files.items())
    for folder, pattern in files:
        try:
            names = os.listdir(paths.at(folder))
        except FileNotFoundError:
            continue
        for name in names:
            path = paths.at(f"{folder}/{name}")
            if re.fullmatch(pattern, name) and os.path.exists(path) and not os.path.isdir(path):
                found.add(os.stat(path).st_gid)
    return tuple(sorted(found - {0}))


def restore(paths: Paths) -> int:
    """Make all users of the state volume known; how many there are."""
    with _locked(paths):
        users = accounts.from_text(read_text(_list(paths)) or "")
        if not own_homes.roots(os.environ):
            own_homes.forget_copied(paths)
        _apply(paths, users)
    return len(users)


def refuse_unreadable(paths: Paths) -> None:
    """Raises what `restore` would of a damaged list, and changes nothing."""
    accounts.from_text(read_text(_list(paths)) or "")


def add(paths: Paths, user: User) -> Account:
    """Make one more user known, now and after every later start; with the home that was told of him, unless
    another is told."""
    with _locked(paths):
        before = accounts.from_text(read_text(_list(paths)) or "")
        told = next((other.home for other in before if other.uid == user.uid), None)
        user = replace(user, home=user.home or told)
        users = (*(other for other in before if other.uid != user.uid), user)
        known = _apply(paths, users)
        replace_text(_list(paths), accounts.to_text(users))
    return known[-1]


def kept(paths: Paths) -> tuple[own_homes.Kept, ...]:
    """What the volume has of users, where these have homes of their own here."""
    if not own_homes.roots(os.environ):
        return ()
    return own_homes.all_kept(paths, accounts.from_text(read_text(_list(paths)) or ""))


def copy_kept(machine: Machine, paths: Paths, homes: Mapping[int, str]) -> Iterator[Copied]:
    """Each kept home copied into its user's own (`homes`: uid -> that), who has this one from then on."""
    seen = own_homes.roots(os.environ)
    for each in kept(paths):
        users = accounts.from_text(read_text(_list(paths)) or "")
        user = next(user for user in users if user.uid == each.uid)
        user = accounts.checked(
            str(user.uid), str(user.gid), user.name, homes.get(user.uid) or user.home
        )
        why = own_homes.why_not(paths, user, seen)
        if why != "kept files":
            yield Copied(each, "", why or "")
            continue
        to, error = own_homes.copy(machine, paths, each, user)
        if to:
            add(paths, user)
        yield Copied(each, to, error)


@dataclass(frozen=True)
class Copied:
    """`to`: the folder that it is in as well now; "" where it is not, for this reason."""

    kept: own_homes.Kept
    to: str
    why: str


def add_ground(paths: Paths, work: str, uid: str, gid: str) -> None:
    """Where this user's workspaces lie, made by root; DshpcError where root may not.

    `as-user` compares what is left in `ground` before each submission.
    """
    from dshpc_setup.jobs import workspace_folders

    user = accounts.checked(uid, gid, "user") if uid != "0" else User(0, 0, "root")
    try:
        workspace_folders.prepare(work, user.uid, user.gid)
    except OSError as error:
        raise workspace_folders.not_made(f"{work}/jobs/{user.uid}", work, error) from None
    os.makedirs(f"{paths.run}/ground", exist_ok=True)
    replace_text(f"{paths.run}/ground/{user.uid}", f"{work}\n", sync=False)


def _list(paths: Paths) -> str:
    return f"{paths.state}/users"


def _apply(paths: Paths, users: Iterable[User]) -> tuple[Account, ...]:
    passwd_path, group_path = paths.at("/etc/passwd"), paths.at("/etc/group")
    passwd, group = read_text(passwd_path) or "", read_text(group_path) or ""
    users, seen = tuple(users), own_homes.roots(os.environ)
    told = {user.uid: user.home or "" for user in users}
    fit = (
        user
        if user.home and own_homes.why_not(paths, user, seen) is None
        else replace(user, home=None)
        for user in users
    )
    found = accounts.merge(passwd, group, fit, gpu_gids(paths), _owners(paths))
    if found.known and rights.is_one_id():
        found = replace(found, passwd=accounts.with_root_at(found.passwd, found.known[-1].home))
    if found.group != group:
        replace_text(group_path, found.group)
    if found.passwd != passwd:
        replace_text(passwd_path, found.passwd)
    _share(paths)
    for known in found.known:
        ends.make_folder(paths, known.user.uid, known.user.gid)
        if known.home.startswith(f"{HOMES}/"):
            _make_home(paths, known)
        # What `as-user` compares before every command: lines it reads without a process of its own
        replace_text(
            f"{paths.run}/users/{known.user.uid}",
            f"{known.user.gid}:{known.login}:{known.home}:{known.user.name}\n{told[known.user.uid]}\n",
            sync=False,
        )
    return found.known


def _share(paths: Paths) -> None:
    """With the other nodes, where the cluster has some: they link to these (container/worker.py)."""
    if not os.path.isdir(paths.at(ACCOUNTS)):
        return
    for name in ("group", "passwd"):
        text = read_text(paths.at(f"/etc/{name}")) or ""
        if text != read_text(paths.at(f"{ACCOUNTS}/{name}")):
            replace_text(paths.at(f"{ACCOUNTS}/{name}"), text)


def _owners(paths: Paths) -> dict[str, int]:
    """Whose each folder of the home volume is."""
    try:
        with os.scandir(paths.homes) as found:
            return {
                f"{HOMES}/{item.name}": item.stat(follow_symlinks=False).st_uid for item in found
            }
    except FileNotFoundError:
        return {}


def _make_home(paths: Paths, known: Account) -> None:
    """The user's home, for nobody else to read; and its usual path, where nothing else is there.

    Only root can write in the folder that homes lie in, so what is there and root's was begun by us.
    """
    path, user = paths.at(known.home), known.user
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, mode=0o700)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise _no_home(known, error.strerror or str(error)) from None
    try:
        owner = os.fstat(handle).st_uid
        if owner not in (user.uid, os.geteuid()):
            raise _no_home(known, f"it belongs to the user {owner}")
        if owner != user.uid:
            os.fchown(handle, user.uid, user.gid)
    finally:
        os.close(handle)
    usual = paths.at(f"/home/{os.path.basename(known.home)}")
    above = os.path.dirname(usual)
    if os.path.isdir(above) and not os.path.ismount(above) and not os.path.lexists(usual):
        os.symlink(known.home, usual)  # never into a folder of the machine's, which a mount is


def _no_home(known: Account, why: str) -> DshpcError:
    return DshpcError(
        f"{known.home} cannot be the home of {known.user.name}: {why}.",
        "It is in the volume of the users' homes, where only root writes.",
        (
            Fix("See what is there", f"dshpc exec --root -- ls -la {HOMES}", step="look"),
            "Then move it away.",
        ),
    )


@contextmanager
def _locked(paths: Paths) -> Iterator[None]:
    os.makedirs(f"{paths.run}/users", exist_ok=True)
    with open_lock(f"{paths.run}/users.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

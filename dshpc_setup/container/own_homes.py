"""Users' own homes, as the machine has them: who gets his here, and what was kept for him before.

A user gets it where it is seen here and his. What the cluster's volume keeps for him is copied into it
first, into a folder of its own, so that nothing that a job has left in $HOME is out of sight. The volume
itself keeps all of it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from dshpc_setup.container.accounts import User
from dshpc_setup.files.storage import read_text, replace_text
from dshpc_setup.machine import Machine
from dshpc_setup.settings.places import lies_in
from dshpc_setup.slurm.paths import HOME_ROOTS, HOMES, Paths

Why = Literal["elsewhere", "missing", "not his", "kept files"]
_COPY_S = 1800.0
_MOST = 1_000_000  # files that are counted
# As the user: what is in his folder of the volume ($1), into a new folder of his home ($2). Sockets and
# what else can be copied nowhere are left out by tar, which says so and ends well
_COPY = """set -euo pipefail
new=$2/.dshpc-home.partial to=$2/dshpc-home number=2
trap 'rm -rf -- "$new"' EXIT
rm -rf -- "$new"
mkdir -m 700 -- "$new"
tar -C "$1" -cSf - . | tar -C "$new" -xpf -
while [ -e "$to" ] || [ -L "$to" ]; do to=$2/dshpc-home-$number; number=$((number + 1)); done
mv -T -n -- "$new" "$to"
printf '%s' "$to"
"""


@dataclass(frozen=True)
class Kept:
    """What the volume has of a user, and has not been copied into his own home."""

    uid: int
    name: str
    folder: str
    files: int
    bytes: int


def roots(env: Mapping[str, str]) -> tuple[str, ...]:
    """The folders above users' own homes that are seen here; none where homes are kept."""
    return tuple(each for each in env.get(HOME_ROOTS, "").split(":") if each.startswith("/"))


def why_not(paths: Paths, user: User, seen: Collection[str]) -> Why | None:
    """Why a user does not get the home that the host tells of him; None where he does."""
    home = os.path.normpath(user.home or "/")
    if not any(lies_in(home, each) and home != each for each in seen):
        return "elsewhere"
    try:
        found = os.stat(paths.at(home))
    except OSError:
        return "missing"
    if found.st_uid != user.uid:
        return "not his"
    return "kept files" if kept_of(paths, user) is not None else None


def words(why: Why, user: User) -> str:
    """For the user, once."""
    because = {
        "elsewhere": f"your home {user.home} is not in a folder that the cluster sees",
        "missing": f"your home {user.home} is not there on the cluster's node",
        "not his": f"your home {user.home} is another user's as the cluster sees it",
        "kept files": "the cluster keeps files of yours, which configure-environment copies into your home",
    }[why]
    return f"dshpc: $HOME of jobs is a folder that the cluster keeps for you: {because}."


def kept_of(paths: Paths, user: User) -> Kept | None:
    """None where nothing is kept of that user, or all of it was copied."""
    if user.uid in _copied(paths):
        return None
    try:
        with os.scandir(paths.homes) as found:
            mine = sorted(
                each.name
                for each in found
                if each.is_dir(follow_symlinks=False)
                and each.stat(follow_symlinks=False).st_uid == user.uid
            )
    except FileNotFoundError:
        return None
    for name in mine:
        if os.listdir(f"{paths.homes}/{name}"):
            files, size = _counted(f"{paths.homes}/{name}")
            return Kept(user.uid, user.name, f"{HOMES}/{name}", files, size)
    return None


def all_kept(paths: Paths, users: Iterable[User]) -> tuple[Kept, ...]:
    return tuple(kept for user in users if (kept := kept_of(paths, user)) is not None)


def copy(machine: Machine, paths: Paths, kept: Kept, user: User) -> tuple[str, str]:
    """The folder that it lies in now, and why it does not ("" where it does); done as that user."""
    argv = ["setpriv", "--reuid", str(user.uid), "--regid", str(user.gid), "--clear-groups"]
    command = ["bash", "-c", _COPY, "bash", paths.at(kept.folder), paths.at(user.home or "")]
    done = machine.run([*argv, *command], deadline_s=_COPY_S)
    if not done.ok:
        return "", done.stderr.strip() or f"it ended with {done.code} ({done.state})"
    replace_text(_list(paths), "".join(f"{uid}\n" for uid in {*_copied(paths), user.uid}))
    return done.stdout.strip(), ""


def forget_copied(paths: Paths) -> None:
    """Homes are kept from now on: what is left there is to be copied again, should they be the host's."""
    if os.path.exists(_list(paths)):
        os.unlink(_list(paths))


def _list(paths: Paths) -> str:
    return f"{paths.state}/homes-copied"


def _copied(paths: Paths) -> set[int]:
    return {int(line) for line in (read_text(_list(paths)) or "").split() if line.isdecimal()}


def _counted(top: str) -> tuple[int, int]:
    """Files below a folder, links included, and their bytes; no link is followed."""
    files = size = 0
    for _, folders, names, at in os.fwalk(top, follow_symlinks=False):
        for name in (*names, *folders):
            try:
                found = os.stat(name, dir_fd=at, follow_symlinks=False)
            except OSError:
                continue
            if not stat.S_ISDIR(found.st_mode):
                files, size = files + 1, size + found.st_size
        if files > _MOST:
            break
    return files, size

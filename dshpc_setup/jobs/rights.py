"""Root as the user of sudo for a moment: what it opens then, that user may read.

A path says nothing of what will be opened by it, and who may write in a folder decides what lies there.
Imports are counted where a job is submitted.
"""

from __future__ import annotations

import contextlib
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_GROUPS = "/proc/self/setgroups"  # "deny" where a user namespace has one id: user_namespaces(7)


def is_one_id() -> bool:
    """Whether all users are one here: the built-in engine, for a user without a range of ids."""
    try:
        with open(_GROUPS, encoding="ascii") as file:
            return file.read() == "deny\n"
    except OSError:
        return False


@contextlib.contextmanager
def of_user(owner: tuple[int, int] | None) -> Iterator[None]:
    """With the rights of that (uid, gid), where we are root for somebody else; raises OSError where
    they cannot be taken, and then nothing is done as root instead."""
    if owner is None or owner[0] == 0 or os.geteuid() != 0:
        yield
        return
    groups, group = os.getgroups(), os.getegid()
    try:
        os.setgroups(_groups(*owner))
        os.setegid(owner[1])
        os.seteuid(owner[0])
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        if os.getgroups() != groups:
            os.setgroups(groups)


def _groups(uid: int, gid: int) -> list[int]:
    import pwd

    try:
        return os.getgrouplist(pwd.getpwuid(uid).pw_name, gid)
    except KeyError:
        return [gid]

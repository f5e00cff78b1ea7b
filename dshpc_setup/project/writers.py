"""Who can write a path besides its owner: its mode, its group, what it lies on. Imports are counted."""

from __future__ import annotations

import os
import stat


def user_name(uid: int) -> str:
    if uid == 0:
        return "root"
    login = login_of(uid)
    return f"the user {login}" if login else f"user {uid}"


def login_of(uid: int) -> str | None:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


def others_write(path: str, seen: os.stat_result) -> bool:
    if seen.st_mode & stat.S_IWOTH:
        return not _is_one_users(seen)
    return bool(seen.st_mode & stat.S_IWGRP) and not _is_private(path, seen)


def _is_private(path: str, seen: os.stat_result) -> bool:
    """Whether the group is its owner's own and has nobody else in it: Debian and Fedora make one for
    each user, with a umask of 002.

    With an access list the group's bits stand for everybody named there.
    """
    import grp
    import pwd

    try:
        owner, group = pwd.getpwuid(seen.st_uid), grp.getgrgid(seen.st_gid)
    except KeyError:
        return False
    if owner.pw_gid != seen.st_gid or group.gr_name != owner.pw_name:
        return False
    return not set(group.gr_mem) - {owner.pw_name} and not _has_access_list(path)


def _has_access_list(path: str) -> bool:
    if not hasattr(os, "getxattr"):
        return False
    try:
        os.getxattr(path, "system.posix_acl_access", follow_symlinks=False)
    except OSError:
        return False
    return True


def _is_one_users(seen: os.stat_result) -> bool:
    """Whether it is a Windows drive in WSL: everything there has one owner and the mode 777, and
    whoever works in that distribution does it as the same Windows user."""
    try:
        with open("/proc/sys/kernel/osrelease", encoding="utf-8", errors="replace") as file:
            if "microsoft" not in file.read().lower():
                return False
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return False
    device = f"{os.major(seen.st_dev)}:{os.minor(seen.st_dev)}"
    return any(_is_drive(line) for line in lines if line.split(" ", 3)[2] == device)


def _is_drive(line: str) -> bool:
    """Of /proc/self/mountinfo: "... - 9p C:\\134 rw,...,aname=drvfs;path=C:\\..." or of type drvfs."""
    kind, _, options = line.partition(" - ")[2].partition(" ")
    return kind == "drvfs" or (kind in ("9p", "virtiofs") and "drvfs" in options)


def is_outside(uid: int) -> bool:
    """Whether it stands for owners outside of our user namespace, as root is to a rootless container.

    Folders further up only: nothing is read from them.
    """
    try:
        with open("/proc/sys/kernel/overflowuid", encoding="utf-8") as file:
            if int(file.read()) != uid:
                return False
        with open("/proc/self/uid_map", encoding="utf-8") as file:
            return file.read().split() != ["0", "0", "4294967295"]
    except (OSError, ValueError):
        return False


def group_name(gid: int) -> str:
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)

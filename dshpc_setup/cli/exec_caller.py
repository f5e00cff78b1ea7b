"""Who calls, from which folder, and which of his variables go along. Imports are counted, as in exec.py."""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False  # importing typing would cost as much as all of the rest
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# What the image's ncurses-base describes: another name would leave an editor without a terminal.
_TERMS = ("xterm", "xterm-256color", "screen", "screen-256color", "tmux", "tmux-256color", "linux",
          "vt100", "vt220", "rxvt")  # fmt: skip


def seen_at(runtime: Mapping[str, Any], here: str | None) -> str | None:
    """The folder `here` (a real path) as jobs see it: in the work folder, a home or one of `mounts`."""
    for folder in (str(runtime["work"]), *runtime.get("homes", ()), *runtime.get("mounts", ())):
        found = inside(folder, here)
        if found is not None:
            return found
    return None


def own_home(runtime: Mapping[str, Any], uid: int) -> str | None:
    """The user's home on this machine, where the cluster sees it; None where it keeps one for him."""
    homes = runtime.get("homes", ())
    if not homes:
        return None
    import pwd

    try:
        home = pwd.getpwuid(uid).pw_dir.rstrip("/")
    except KeyError:
        return None
    return home if any(home.startswith(f"{each}/") for each in homes) else None


def inside(work: str, here: str | None) -> str | None:
    """The folder `here` (a real path) as the container has it, None where it is not in `work`.

    `work` is mounted under its own spelling, which may lead through symbolic links.
    """
    if here is None:
        return None
    real = os.path.realpath(work)
    if here == real:
        return work
    under = "/" if real == "/" else real + "/"
    return f"{work.rstrip('/')}/{here[len(under) :]}" if here.startswith(under) else None


def calling_user(environ: Mapping[str, str]) -> tuple[int, int, str]:
    """(uid, gid, name) as engine.privilege.caller has it: under sudo the one who called sudo."""
    import pwd

    uid, gid = os.geteuid(), os.getegid()
    sudo_uid, sudo_gid = environ.get("SUDO_UID", ""), environ.get("SUDO_GID", "")
    under_sudo = uid == 0 and _is_number(sudo_uid) and int(sudo_uid) > 0
    if under_sudo:
        uid = int(sudo_uid)
    try:
        entry = pwd.getpwuid(uid)
        name, own_gid = entry.pw_name, entry.pw_gid
    except KeyError:
        name, own_gid = f"user{uid}", uid
    if under_sudo:
        gid = int(sudo_gid) if _is_number(sudo_gid) else own_gid
    return uid, gid, name


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 10


def passed(environ: Mapping[str, str]) -> list[str]:
    """Names of the variables that DSHPC_PASS_ENV lists: `NAME` or `BEGINNING*`, by commas."""
    wanted = [item.strip() for item in environ.get("DSHPC_PASS_ENV", "").split(",")]
    whole = {item for item in wanted if item and not item.endswith("*")}
    starts = tuple(item[:-1] for item in wanted if item.endswith("*"))
    return sorted(name for name in environ if name in whole or (starts and name.startswith(starts)))


def for_people(environ: Mapping[str, str]) -> list[str]:
    """Variables for what speaks to people inside: our clock, and how our command is called from here."""
    found = [f"DSHPC_UTC_OFFSET_S={time.localtime().tm_gmtoff}"]
    here = current_folder() or "/"
    if environ.get("DSHPC_COMMAND") and os.fsencode(here).decode(errors="ignore") == here:
        found += ["DSHPC_COMMAND", f"DSHPC_HERE={here}"]
        found += ["DSHPC_ON_PATH"] if environ.get("DSHPC_ON_PATH") else []
    return found


def terminals() -> tuple[bool, bool, bool]:
    return os.isatty(0), os.isatty(1), os.isatty(2)


def of_terminal(environ: Mapping[str, str]) -> list[str]:
    """What the one inside begins with: our type where the image knows it, and our size if we have one."""
    found = ["TERM"] if environ.get("TERM") in _TERMS else []
    try:
        size = os.get_terminal_size(0)
    except OSError:  # it was closed just now
        return found
    if size.lines and size.columns:
        found.append(f"DSHPC_TERMINAL_SIZE={size.lines} {size.columns}")
    return found


def current_folder() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:  # removed under our feet
        return None

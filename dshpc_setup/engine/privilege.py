"""Who called us, and how to become root for the few commands that need it.

Nothing here re-executes the program: it runs as whoever started it, and single commands go through
sudo. See docs/decisions/0002-engine-and-root.md.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import CommandResult, Machine
from dshpc_setup.machine.no_answer import answered

RootWay = Literal["already", "sudo", "sudo-asks", "no"]

_ASK_S = 10.0  # a directory service behind getent or sudo may be slow, or gone
_AGAIN_S = 60.0  # where the answer decides, and did not come
_LEAST_S = 60.0  # what runs as root changes something: it is not ended for being slow
_SUDO_DENIES = re.compile(r"not in the sudoers|not allowed to (?:execute|run)|may not run sudo")


@dataclass(frozen=True)
class Caller:
    """The person at the keyboard: under sudo the one who called sudo, not root."""

    uid: int
    gid: int
    name: str
    home: str
    via_sudo: bool = False


def caller(machine: Machine) -> Caller:
    """The calling user; `SUDO_UID` counts only for root, and only where it is a number.

    The passwd database decides the name and the home; a uid that it does not know is called
    `user<uid>`, the same at every call.
    """
    env = machine.env
    sudo_uid = env.get("SUDO_UID", "")
    if machine.uid == 0 and re.fullmatch(r"\d{1,10}", sudo_uid) and int(sudo_uid) > 0:
        uid = int(sudo_uid)
        entry = _passwd_entry(machine, uid)
        gid_text = env.get("SUDO_GID", "")
        known_gid = int(gid_text) if re.fullmatch(r"\d{1,10}", gid_text) else None
        if entry is not None:
            gid = known_gid if known_gid is not None else entry.gid
            return Caller(uid, gid, entry.name, entry.home, via_sudo=True)
        return Caller(uid, known_gid if known_gid is not None else uid, f"user{uid}", "/", True)
    entry = _passwd_entry(machine, machine.uid)
    if entry is not None:
        return entry
    home = env.get("HOME", "/")
    gid = _own_gid(machine)
    return Caller(machine.uid, gid, f"user{machine.uid}", home if home.startswith("/") else "/")


def user(machine: Machine, uid: int) -> Caller | None:
    """Another user of this machine; None for a uid that nobody has."""
    return _passwd_entry(machine, uid)


def _passwd_entry(machine: Machine, uid: int) -> Caller | None:
    """Name, group and home of a uid: getent (directory services too), the file, macOS's `id -P`."""
    asked = machine.run(["getent", "passwd", str(uid)], deadline_s=_ASK_S)
    if asked.state == "timeout" and (known := parse_passwd(_passwd(machine), uid)):
        return known
    if asked.state == "timeout":  # a user of a directory: his name is in no file
        again = machine.run(["getent", "passwd", str(uid)], deadline_s=_AGAIN_S)
        asked = answered(again, f"which user {uid} is")
    if asked.ok:
        text = asked.stdout
    elif machine.system[0] == "Darwin":
        # name:password:uid:gid:class:change:expire:gecos:home:shell (id(1) of macOS and the BSDs)
        fields = machine.run(["id", "-P", str(uid)], deadline_s=_ASK_S).stdout.strip().split(":")
        text = ":".join([*fields[:4], *fields[7:]]) if len(fields) == 10 else ""
    else:
        text = _passwd(machine)
    return parse_passwd(text, uid)


def _passwd(machine: Machine) -> str:
    return machine.read("/etc/passwd").text or ""


def parse_passwd(text: str, uid: int) -> Caller | None:
    """The first passwd(5) line of that uid; lines that are none are passed over."""
    for line in text.splitlines():
        fields = line.split(":")
        if len(fields) != 7 or not fields[0] or not fields[3].isdecimal():
            continue
        if fields[2].isdecimal() and int(fields[2]) == uid:
            home = fields[5] if fields[5].startswith("/") else "/"
            return Caller(uid, int(fields[3]), fields[0], home)
    return None


def _own_gid(machine: Machine) -> int:
    asked = machine.run(["id", "-g"], deadline_s=_ASK_S)
    text = asked.stdout.strip()
    return int(text) if asked.ok and text.isdecimal() else machine.uid


def can_be_root(machine: Machine, interactive: bool) -> RootWay:
    """How root is to be had: `already`, `sudo` (no password), `sudo-asks` (a terminal), `no`.

    Raises DshpcError (INCOMPLETE) where sudo does not answer.
    """
    if machine.uid == 0:
        return "already"
    if machine.which("sudo") is None:
        return "no"
    asked = machine.run(["sudo", "-n", "true"], deadline_s=_ASK_S)
    if asked.state == "timeout":  # a directory service behind it, or a busy machine
        asked = machine.run(["sudo", "-n", "true"], deadline_s=_AGAIN_S)
    if answered(asked, "whether sudo lets your user become root").ok:
        return "sudo"
    return "sudo-asks" if interactive else "no"


def as_root(
    machine: Machine,
    argv: Sequence[str],
    *,
    interactive: bool,
    env: Mapping[str, str] | None = None,
    by_hand: Sequence[Sequence[str]] = (),
) -> list[str]:
    """The argv that runs `argv` as root, with `env` set for it.

    sudo clears the environment, hence the `env` program. Raises where root is not to be had, with
    `by_hand` (default: `argv`) as the list of commands for the user, or for whoever is root there.
    """
    with_env = [*(["env", *(f"{key}={value}" for key, value in env.items())] if env else []), *argv]
    match can_be_root(machine, interactive):
        case "already":
            return with_env
        case "sudo":
            return ["sudo", "-n", *with_env]
        case "sudo-asks":
            return ["sudo", *with_env]
        case "no":
            raise needs_root(machine, by_hand or [argv])


def run_as_root(
    machine: Machine,
    argv: Sequence[str],
    *,
    interactive: bool,
    deadline_s: float,
    env: Mapping[str, str] | None = None,
    by_hand: Sequence[Sequence[str]] = (),
    on_line: Callable[[str], None] | None = None,
) -> CommandResult:
    """Run one command as root; raises `DshpcError` where root is not to be had.

    What sudo started cannot be killed by us, so the deadline goes along as `timeout`.
    """
    timed, deadline_s = list(argv), max(deadline_s, _LEAST_S)
    if machine.uid != 0 and machine.which("timeout"):
        timed = ["timeout", "-k", "10", str(max(1, int(deadline_s))), *argv]
    full = as_root(machine, timed, interactive=interactive, env=env, by_hand=by_hand or [argv])
    done = machine.run(full, deadline_s=deadline_s + 15, on_line=on_line)
    if machine.uid == 0 or done.ok:
        return done
    if _SUDO_DENIES.search(done.text):
        brief = "sudo does not let your user run this as root"
        raise DshpcError(brief, done.text, steps(by_hand or [argv]))
    if done.code == 124:  # timeout(1) says so
        return CommandResult(done.argv, "timeout", None, done.stdout, done.stderr, done.ms)
    return done


def needs_root(machine: Machine, commands: Sequence[Sequence[str]]) -> DshpcError:
    """The error for a machine where we are not root and cannot become it."""
    if machine.which("sudo") is None:
        why = "You are not root, and there is no sudo on this machine."
    else:
        why = "You are not root, and sudo asks for a password, which needs a terminal."
    todo = ("Or have somebody who is root run these; then run this again.",)
    return DshpcError("This step needs root", why, (*steps(commands), *todo))


def steps(commands: Sequence[Sequence[str]], *, sudo: bool = True) -> tuple[str, ...]:
    """Commands as lines to copy, each to be run as root."""
    return tuple(("sudo " if sudo else "") + shlex.join(command) for command in commands)

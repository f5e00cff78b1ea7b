"""Which way to a container this user has: found by trying each in a process of its own."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from dshpc_setup.builtin import kernel
from dshpc_setup.builtin.ids import LEAST_IDS, Ids, become_root, first_range, largest_range
from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.machine import Machine, Say

Reason = Literal[
    "limit",  # user.max_user_namespaces is 0, or as many are in use
    "clone",  # kernel.unprivileged_userns_clone is 0 (Debian before 11, Arch's hardened kernel)
    "apparmor",  # kernel.apparmor_restrict_unprivileged_userns is 1 (Ubuntu 23.10 and later)
    "seccomp",  # a filter of a container that we run in refuses the call
    "kernel",  # the kernel is built without user namespaces
    "refused",  # another rule of this machine's
    "unanswered",  # the trial did not end in time
]
Lack = Literal["program", "subuid", "subgid", "range", "refused"]
"""Why there is no range of ids: newuidmap or newgidmap is missing, no line for the user in /etc/subuid or
/etc/subgid, a range below 65536, or the programs refused it."""
Step = Literal["user", "mounts"]


@dataclass(frozen=True)
class Rights:
    """What was found. `ids` is None where there is no way, and `code` says why then.

    `lack` says why the way is not `mapped`, where it is `single`. `evidence` are raw facts: a step and the
    kernel's number, settings of the kernel.
    """

    ids: Ids | None
    code: Reason | None = None
    lack: Lack | None = None
    evidence: tuple[str, ...] = ()


class Settings(NamedTuple):
    """What decides why a namespace was refused; None: the file is not there."""

    limit: int | None = None  # /proc/sys/user/max_user_namespaces
    clone: int | None = None  # /proc/sys/kernel/unprivileged_userns_clone
    apparmor: int | None = None  # /proc/sys/kernel/apparmor_restrict_unprivileged_userns
    filtered: bool = False  # this process is under seccomp
    known: bool = True  # the kernel has user namespaces at all


def find(machine: Machine, deadline_s: float = 5.0) -> Rights:
    """The best way of `root`, `mapped` and `single` that works; never raises for one that does not."""
    evidence: list[str] = []
    if machine.uid == 0 and has_all_ids(machine.read("/proc/self/uid_map").text or ""):
        tried = _try(machine, Ids("root"), deadline_s)
        if tried is None:
            return Rights(Ids("root"))
        evidence.append(_told(Ids("root"), tried))
    lack: Lack | None
    ids, lack = ranges(machine)
    if ids is not None:
        tried = _try(machine, ids, deadline_s)
        if tried is None:
            return Rights(ids, evidence=tuple(evidence))
        evidence.append(_told(ids, tried))
        lack = "refused"
    tried = _try(machine, Ids("single"), deadline_s)
    if tried is None:
        return Rights(Ids("single"), lack=lack, evidence=tuple(evidence))
    evidence.append(_told(Ids("single"), tried))
    settings = read_settings(machine)
    evidence += [
        f"{name}={value}" for name, value in settings._asdict().items() if value is not None
    ]
    return Rights(None, why_refused(tried, settings), lack, tuple(evidence))


def has_all_ids(uid_map: str) -> bool:
    """Whether a system has the ids that it needs: root of a namespace may be alone there. Pure."""
    covered = 0
    lines = [line.split() for line in uid_map.splitlines()]
    for first, _, count in sorted((int(one), two, int(three)) for one, two, three in lines):
        if first <= covered:
            covered = max(covered, first + count)
    return covered >= LEAST_IDS


def ranges(machine: Machine) -> tuple[Ids | None, Lack | None]:
    """The user's ranges of ids where there are both and the programs that give them; else what is missing."""
    import pwd

    uid = machine.uid
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    if not (machine.which("newuidmap") and machine.which("newgidmap")):
        return None, "program"
    found: list[int] = []
    for path, lack in (("/etc/subuid", "subuid"), ("/etc/subgid", "subgid")):
        text = machine.read(path).text or ""
        first = first_range(text, name, uid)
        if first is None:
            missing: Lack = "range" if largest_range(text, name, uid) else _lack(lack)
            return None, missing
        found.append(first)
    return Ids("mapped", found[0], found[1]), None


def _lack(name: str) -> Lack:
    return next(each for each in get_args(Lack) if each == name)


class Refusal(NamedTuple):
    """At which step the kernel refused, and with which number; None: it did not answer in time."""

    step: Step
    number: int | None


def _try(machine: Machine, ids: Ids, deadline_s: float) -> Refusal | None:
    """None where all went well."""

    def question(say: Say) -> None:
        say(("at", "user"))
        try:
            become_root(machine, ids)
            say(("at", "mounts"))
            kernel.unshare(kernel.NEWNS | kernel.NEWPID | kernel.NEWUTS | kernel.NEWIPC)
            kernel.mount("none", "/", flags=kernel.RECURSIVE | kernel.PRIVATE)
        except OSError as error:
            say(("refused", error.errno or 0))
        else:
            say(("done", 0))

    ended = machine.apart({"namespaces": question}, deadline_s=deadline_s)["namespaces"]
    step: Step = "user"
    for kind, value in ended.items:
        if kind == "done":
            return None
        if kind == "at":
            step = "mounts" if value == "mounts" else "user"
        else:
            return Refusal(step, int(value))
    return Refusal(step, None)


def _told(ids: Ids, refusal: Refusal) -> str:
    number = refusal.number
    how = "no answer" if number is None else errno.errorcode.get(number, str(number))
    return f"{ids.way}: {refusal.step}: {how}"


def read_settings(machine: Machine) -> Settings:
    """As the kernel tells them."""
    status = machine.read("/proc/self/status").text or ""
    seccomp = [line.split()[1:] for line in status.splitlines() if line.startswith("Seccomp:")]
    return Settings(
        _number(machine, "/proc/sys/user/max_user_namespaces"),
        _number(machine, "/proc/sys/kernel/unprivileged_userns_clone"),
        _number(machine, "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
        seccomp[:1] not in ([], [["0"]]),
        machine.exists("/proc/self/ns/user"),
    )


def _number(machine: Machine, path: str) -> int | None:
    text = (machine.read(path).text or "").strip()
    return int(text) if text.isascii() and text.isdigit() else None


def why_refused(refusal: Refusal, settings: Settings) -> Reason:
    """Pure. Each reason from what only it brings: its number and its setting."""
    if refusal.number is None:
        return "unanswered"
    if not settings.known or refusal.number in (errno.EINVAL, errno.ENOSYS):
        return "kernel"
    if settings.limit == 0 or refusal.number in (errno.ENOSPC, errno.EUSERS):
        return "limit"
    if settings.clone == 0:
        return "clone"
    if settings.apparmor:
        return "apparmor"
    if settings.filtered:
        return "seccomp"
    return "refused"


_WHY: dict[Reason, str] = {
    "limit": "user.max_user_namespaces allows no more user namespaces.",
    "clone": "kernel.unprivileged_userns_clone is 0: only root makes user namespaces.",
    "apparmor": "AppArmor takes the rights from user namespaces that it has no profile for.",
    "seccomp": "A filter of system calls refuses it: this is a container that may not start others.",
    "kernel": "The kernel has no user namespaces.",
    "refused": "The kernel refused it.",
    "unanswered": "The kernel did not answer in time.",
}


def in_words(reason: Reason) -> str:
    """A sentence."""
    return _WHY[reason]


_KEEP = "sudo tee /etc/sysctl.d/60-dshpc.conf"


def fixes(rights: Rights, user: str) -> tuple[Fix, ...]:
    """What root can do, for the way that is missing; empty where nothing is."""
    if rights.ids is None and rights.code is not None:
        return _reason_fixes(rights.code)
    if rights.lack == "program":
        return (Fix("Install newuidmap", "sudo apt-get install uidmap"),)
    if rights.lack in ("subuid", "subgid", "range"):
        command = f"sudo usermod --add-subuids 200000-{199999 + LEAST_IDS} --add-subgids "
        return (
            Fix("Give the user a range of ids", f"{command}200000-{199999 + LEAST_IDS} {user}"),
        )
    return ()


def _reason_fixes(reason: Reason) -> tuple[Fix, ...]:
    match reason:
        case "limit":
            return (_sysctl("user.max_user_namespaces", 15000),)
        case "clone":
            return (_sysctl("kernel.unprivileged_userns_clone", 1),)
        case "apparmor":
            return (_sysctl("kernel.apparmor_restrict_unprivileged_userns", 0),)
        case "seccomp":
            return (Fix("Run this outside the container, or with another filter of system calls"),)
        case "kernel":
            return (Fix("Start a kernel with CONFIG_USER_NS, or use Docker"),)
        case "refused" | "unanswered":
            return (Fix("Use Docker, or run this as root"),)


def _sysctl(name: str, value: int) -> Fix:
    return Fix(
        "Allow user namespaces, now and after each start of the machine",
        f"echo {name}={value} | {_KEEP} && sudo sysctl --system",
    )


def need(rights: Rights, user: str) -> Ids:
    """The ids of the way that was found; DshpcError where there is none."""
    if rights.ids is not None:
        return rights.ids
    why = in_words(rights.code or "refused")
    raise DshpcError(
        "This user cannot start a container without Docker.",
        "\n".join((why, *rights.evidence)),
        fixes(rights, user),
    )


def current_user() -> str:
    """The name of the user that runs this, or the number where there is none."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())

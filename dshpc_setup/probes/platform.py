"""Which kind of machine this is: system, distribution, WSL, container, SELinux."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from dshpc_setup.facts import Platform, PlatformKind
from dshpc_setup.machine import Machine
from dshpc_setup.probes.look import Found, Look

_COMMAND_S = 3.0


def probe(machine: Machine, deadline_s: float) -> Found[Platform]:
    """The platform; always `present`, since a kernel always has a name."""
    del deadline_s  # a few small files; a command of macOS has its own
    look = Look(machine)
    system, release, arch = machine.system
    if system == "Darwin":
        result = machine.run(["sw_vers", "-productVersion"], deadline_s=_COMMAND_S)
        version = result.stdout.strip() or None if result.ok else None
        look.saw("platform", "present", "uname, sw_vers")
        fact = Platform("macos", os_id="macos", os_version=version, kernel=release, arch=arch)
        return look.found(fact)
    text = look.text("/etc/os-release") or look.text("/usr/lib/os-release")
    os_release = parse_os_release(text or "")
    fact = Platform(
        kind=kind_of(release, _wsl_marks(machine)),
        in_container=in_container(machine),
        os_id=os_release.get("ID") or None,
        os_version=os_release.get("VERSION_ID") or None,
        os_like=tuple(os_release.get("ID_LIKE", "").split()),
        kernel=release,
        arch=arch,
        selinux=_selinux(look),
    )
    look.saw("platform", "present", "uname, /etc/os-release")
    return look.found(fact)


def in_container(machine: Machine) -> bool:
    """Whether an engine made our root: Docker and Podman leave a file, others a variable."""
    return (
        machine.exists("/.dockerenv")
        or machine.exists("/run/.containerenv")
        or bool(machine.env.get("container"))
    )


def kind_of(release: str, wsl_marks: bool) -> PlatformKind:
    """From the kernel's release: 5.15.153.1-microsoft-standard-WSL2, 4.4.0-19041-Microsoft.

    A kernel of the user's own under WSL2 has any name; `wsl_marks` tells it.
    """
    lower = release.lower()
    if lower.endswith("-microsoft") and lower.startswith("4.4."):
        return "wsl1"
    if "microsoft" in lower or "wsl2" in lower or wsl_marks:
        return "wsl2"
    return "linux"


def _wsl_marks(machine: Machine) -> bool:
    return machine.exists("/dev/dxg") and (
        machine.exists("/run/WSL") or machine.exists("/usr/lib/wsl/lib")
    )


def _selinux(look: Look) -> Literal["enforcing", "permissive", "disabled"] | None:
    enforce = look.text("/sys/fs/selinux/enforce")
    if enforce is not None:
        return "enforcing" if enforce == "1" else "permissive"
    # Only where SELinux is installed is its absence from the kernel a "disabled".
    return "disabled" if look.machine.exists("/etc/selinux/config") else None


def parse_os_release(text: str) -> Mapping[str, str]:
    """KEY=value lines, quotes taken off; what is no such line is passed over."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = re.fullmatch(r"\s*([A-Z][A-Z0-9_]*)=(.*)", line)
        if match is None:
            continue
        value = match[2].strip()
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
            value = re.sub(r"\\(.)", r"\1", value[1:-1])
        found[match[1]] = value
    return found

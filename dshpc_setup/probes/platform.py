"""Which kind of machine this is: system, distribution, WSL, container, virtual machine, SELinux."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from dshpc_setup.facts import Platform, PlatformKind, State
from dshpc_setup.machine import Machine
from dshpc_setup.probes import container, virtual
from dshpc_setup.probes.trace import Found, Trace

_COMMAND_S = 3.0
_CAP_SYS_RESOURCE = 24  # its bit, linux/capability.h
_KERNEL = "kernel release"


def probe(machine: Machine, deadline_s: float) -> Found[Platform]:
    """The platform; always `present`, since a kernel always has a name."""
    look = Trace(machine, deadline_s)
    system, release, arch = machine.system
    if system == "Darwin":
        return look.found(_macos(look, release, arch))
    marks = _wsl_marks(machine)
    kind = kind_of(release, bool(marks))
    _conclude_kind(look, kind, release, marks)
    signs = container.signs(look) if kind != "wsl1" else []
    _conclude_container(look, signs)
    os_release = _os_release(look)
    fact = Platform(
        kind=kind,
        in_container=bool(signs),
        container=signs[0].engine if signs else None,
        virtual_machine=virtual.probe(look, kind),
        os_id=os_release.get("ID") or None,
        os_version=os_release.get("VERSION_ID") or None,
        os_like=tuple(os_release.get("ID_LIKE", "").split()),
        kernel=release or None,
        arch=arch or None,
        selinux=_selinux(look),
        raises_limits=_raises_limits(look),
        # Of a machine that only starts a container, its own /tmp is no job's
        tmp_disk_mib=machine.disk_mib("/tmp") if signs else None,
    )
    detail = None if release else "nothing names the kernel"
    look.saw("platform", "present", "uname", detail)
    return look.found(fact)


def _macos(look: Trace, release: str, arch: str) -> Platform:
    result = look.machine.run(["sw_vers", "-productVersion"], deadline_s=look.tool_s(_COMMAND_S))
    version = result.stdout.strip() or None if result.ok else None
    processor = "an Intel processor" if arch == "x86_64" else "Apple Silicon"
    look.concluded(
        "platform.kind",
        "macos",
        ("uname", f"Darwin {release} on {arch}: {processor}"),
        instead=[("linux", "the kernel is Darwin"), ("wsl2", "that is a kind of Linux")],
    )
    look.saw("platform", "present", "uname, sw_vers")
    return Platform(
        "macos",
        virtual_machine=virtual.probe(look, "macos"),
        os_id="macos",
        os_version=version,
        kernel=release or None,
        arch=arch or None,
    )


def _os_release(look: Trace) -> Mapping[str, str]:
    states = []
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        read = look.machine.read(path)
        found = parse_os_release(read.text or "")
        if found:
            look.saw("distribution", "present", path)
            return found
        states.append(read.state)
    state: State = "denied" if "denied" in states else "error" if "present" in states else "absent"
    look.saw("distribution", state, "/etc/os-release", "the distribution is not known")
    return {}


def in_container(machine: Machine) -> bool:
    """Whether an engine made our root."""
    return bool(container.signs(Trace(machine)))


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


def _wsl_marks(machine: Machine) -> tuple[str, ...]:
    """The files that are there in WSL 2 alone, whatever its kernel is called."""
    if not machine.exists("/dev/dxg"):
        return ()
    folders = [path for path in ("/run/WSL", "/usr/lib/wsl/lib") if machine.exists(path)]
    return ("/dev/dxg", *folders) if folders else ()


def _conclude_kind(look: Trace, kind: PlatformKind, release: str, marks: tuple[str, ...]) -> None:
    told = release or "not known"
    because = [(_KERNEL, told)]
    because += [(path, "it is there, as in WSL 2 alone") for path in marks]
    no_files = "no /dev/dxg beside /run/WSL or /usr/lib/wsl/lib"
    why_not = {
        "macos": "the kernel is Linux",
        "wsl1": f"{_KERNEL} {told} is no 4.4 of Microsoft's",
        "wsl2": f"{_KERNEL} {told} names neither Microsoft nor WSL 2, and there is {no_files}",
        "linux": f"{_KERNEL} {told} is Microsoft's",
    }
    if kind == "wsl1":
        why_not["wsl2"] = f"WSL 2 has a kernel 4.19 or later, and this is {told}"
    if kind == "wsl2" and marks:
        why_not["linux"] = f"{' and '.join(marks)} are there in WSL alone"
    instead = [(other, why) for other, why in why_not.items() if other != kind]
    look.concluded("platform.kind", kind, *because, instead=instead)


def _conclude_container(look: Trace, signs: list[container.Sign]) -> None:
    if not signs:
        why = "none is here: no engine's file, variable, control group or layers"
        look.concluded("platform.container", "none", ("the signs of a container", why))
        return
    chosen = signs[0]
    others = {sign.engine: sign for sign in signs[1:] if sign.engine != chosen.engine}
    look.concluded(
        "platform.container",
        chosen.engine,
        *((sign.source, sign.says) for sign in signs if sign.engine == chosen.engine),
        instead=[
            (sign.engine, f"{sign.source}: {sign.says}; {chosen.source} tells more")
            for sign in others.values()
        ],
    )


def _raises_limits(look: Trace) -> bool | None:
    """By the bounding set of the first process, which all others have theirs from: capabilities(7)."""
    status = look.text("/proc/1/status") or ""
    found = re.search(r"^CapBnd:\s*([0-9a-f]{1,16})$", status, re.M)
    return None if found is None else bool(int(found[1], 16) >> _CAP_SYS_RESOURCE & 1)


def _selinux(look: Trace) -> Literal["enforcing", "permissive", "disabled"] | None:
    enforce = look.text("/sys/fs/selinux/enforce")
    if enforce in ("0", "1"):
        return "enforcing" if enforce == "1" else "permissive"
    # Only where SELinux is installed is its absence from the kernel a "disabled".
    return "disabled" if enforce is None and look.machine.exists("/etc/selinux/config") else None


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

"""What the other machine is, before anything goes there: asked by one script of plain sh."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from dshpc_setup import resources
from dshpc_setup.adding.connection import Connection
from dshpc_setup.adding.host import Host
from dshpc_setup.errors import DshpcError, Exit, Fix
from dshpc_setup.terminal.sanitize import plain

_ASK_S = 60.0
NEEDED_MIB = 2048  # program, image as a file, and unpacked
CARRIED = ".carried"  # what we keep in the folder there
_MARK = "dshpc-look:"
_MOST_LINE = 1000
_MANAGERS = ("apt-get", "dnf", "microdnf", "yum", "zypper", "pacman", "apk")
_TOOLS = ("tar", "gzip", "setsid")
# What stands in commands that a person types, or in ours
_SHAPES = {
    "manager": re.compile("|".join(_MANAGERS)),
    "engine": re.compile("builtin|podman"),
    "node": re.compile(r"[a-z][a-z0-9-]{0,62}"),
}
# launch.sh stands before it, and brings the search for a Python
_SCRIPT = r"""
say() { printf 'dshpc-look: %s %s\n' "$1" "$2"; }
PATH=$PATH:/usr/sbin:/sbin
dshpc_find_python </dev/null
say system "$(uname -s)"
say arch "$(uname -m)"
say host "$(uname -n)"
say uid "$(id -u)"
! sudo -n true </dev/null 2>/dev/null || say sudo yes
say libc "$(getconf GNU_LIBC_VERSION 2>/dev/null)"
[ -z "$dshpc_python" ] || say python "${dshpc_answer% *}"
say refused "$dshpc_refused"
for manager in MANAGERS; do
    ! command -v "$manager" >/dev/null || { say manager "$manager"; break; }
done
for tool in TOOLS; do
    command -v "$tool" >/dev/null || say lacks "$tool"
done
at=$folder
while [ ! -e "$at" ] && [ "$at" != / ]; do at=$(dirname "$at"); done
# The image may be unpacked below the home, wherever the folder is
say free "$(df -Pk "$HOME" "$at" 2>/dev/null | awk 'NR > 1 { print $4 }' | sort -n | head -n 1)"
for device in /sys/bus/pci/devices/*; do
    case $(cat "$device/class" 2>/dev/null) in
        0x03* | 0x12*) say card "$(cat "$device/vendor" 2>/dev/null)" ;;
    esac
done
if [ ! -e "$folder" ]; then say folder absent
elif [ -d "$folder/.carried" ] && [ -O "$folder" ]; then say folder ours
else say folder other
fi
say program "$(cat "$folder/.carried/program" 2>/dev/null)"
say image "$(cat "$folder/.carried/image" 2>/dev/null)"
[ ! -e "$folder/.dshpc/joined.json" ] || say joined yes
say node "$(sed -n 's/.*"node": *"\([a-z0-9-]*\)".*/\1/p' "$folder/.dshpc/joined.json" 2>/dev/null)"
say engine "$(sed -n 's/.*"engine": *"\([a-z]*\)".*/\1/p' "$folder/.dshpc/runtime.json" 2>/dev/null)"
# An engine that hangs is none
answers() { command -v "$1" >/dev/null && timeout 10 "$@" </dev/null >/dev/null 2>&1; }
! answers docker version || say docker yes
! answers podman version || say podman yes
say end yes
""".replace("MANAGERS", " ".join(_MANAGERS)).replace("TOOLS", " ".join(_TOOLS))


@dataclass(frozen=True)
class Found:
    """Each by the word that the script gives it; "" where it gives none. `cards`: PCI ids of the vendors of
    its GPUs; `free_mib` is None where it is not known."""

    told: dict[str, str] = field(default_factory=dict)
    cards: frozenset[int] = frozenset()
    lacks: tuple[str, ...] = ()

    def __getitem__(self, key: str) -> str:
        return self.told.get(key, "")

    @property
    def free_mib(self) -> int | None:
        return int(self["free"]) >> 10 if self["free"].isdecimal() else None

    @property
    def is_root(self) -> bool:
        """Whether it becomes root without anybody who types."""
        return self["uid"] == "0" or self["sudo"] == "yes"

    @property
    def is_new(self) -> bool:
        return self["folder"] == "absent"

    def words(self) -> str:
        """In one line."""
        python = f"Python {self['python']}" if self["python"] else "no Python yet"
        free = f", {self.free_mib / 1024:.0f} GiB free" if self.free_mib is not None else ""
        rights = "root" if self["uid"] == "0" else "sudo" if self["sudo"] else "no root"
        return plain(f"{self['arch']}, {python}, {rights}{free}")


def look(there: Connection) -> Found:
    """Raises DshpcError where it does not answer as a machine of Unix's does."""
    launch = (resources.share() / "scripts/launch.sh").read_text("utf-8")
    script = f"folder={there.host.shell_folder}\ndshpc_command=look\n{launch}{_SCRIPT}"
    done = there.run("sh -s", deadline_s=_ASK_S, stdin=script)
    found = parse(done.stdout)
    if found["end"] != "yes":
        raise DshpcError(
            f"{there.host.name} does not answer as a machine with a shell does.",
            done.text[-_MOST_LINE:],
            (there.host.look("See what it says", "uname", "-a"),),
            Exit.INCOMPLETE if done.state == "timeout" else Exit.ERROR,
        )
    return found


def parse(text: str) -> Found:
    """Of all that a login there may print, our lines."""
    told: dict[str, str] = {}
    cards, lacks = set[int](), list[str]()
    for line in text.splitlines():
        mark, _, rest = line.partition(" ")
        key, _, value = rest[:_MOST_LINE].partition(" ")
        if mark != _MARK:
            continue
        if key == "card" and re.fullmatch(r"0x[0-9a-f]{4}", value):
            cards.add(int(value, 16))
        elif key == "lacks":
            lacks += [value] if value in _TOOLS else []
        elif key not in _SHAPES or _SHAPES[key].fullmatch(value):
            told.setdefault(key, value.strip())
    return Found(told, frozenset(cards), tuple(lacks))


def refuse(found: Found, host: Host) -> None:
    """Raises DshpcError where nothing would come of it."""
    if found["system"] != "Linux":
        raise DshpcError(
            f"{host.name} is no Linux machine: its system is {plain(found['system'])}.",
            "Slurm's nodes run on Linux.",
        )
    if found["folder"] == "other":
        raise DshpcError(
            f"The folder {host.shown_folder} of {host.name} is not of our making.",
            "Nothing was changed.",
            ("Name another one: dshpc node add --folder NAME HOST",),
        )
    if found.lacks:
        missing = " ".join(found.lacks)
        raise DshpcError(
            f"{host.name} has no {missing}.",
            "Nothing was changed.",
            (Fix("Install it there", f"sudo {found['manager'] or 'apt-get'} install {missing}"),),
        )
    if found.free_mib is not None and found.free_mib < NEEDED_MIB:
        raise DshpcError(
            f"{host.name} has too little space: {found.free_mib} MiB are free for the folder or the home.",
            f"Program and image need {NEEDED_MIB} MiB. Nothing was changed.",
            (
                host.look("See what takes it", "df", "-h"),
                "Or name a folder on another file system: dshpc node add --folder /DIR HOST",
            ),
        )
    if not found["python"] and not (found["manager"] and found.is_root):
        why = f"Found: {plain(found['refused'])}." if found["refused"] else ""
        package = "sudo apt-get install python3 python3-venv"
        raise DshpcError(
            f"{host.name} has no Python 3.10 or later, and this user cannot install one there.",
            f"{why} Nothing was changed.".strip(),
            (
                Fix("Install it there", package if found["manager"] in ("", "apt-get")
                    else f"sudo {found['manager']} install python3"),
                "Or come as root, or as a user who has sudo without a password: dshpc node add root@HOST",
            ),
        )  # fmt: skip

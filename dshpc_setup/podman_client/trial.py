"""Does Podman work here? Its version, its ids, and a container of the cluster's kind that ends at once."""

from __future__ import annotations

import io
import re
import secrets
import struct
import tarfile
from dataclasses import dataclass

from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.machine import CommandResult, Machine
from dshpc_setup.podman_client import door, words
from dshpc_setup.podman_client.about import LEAST_IDS, About
from dshpc_setup.versions import at_least

SINCE = "4.3"
_ASK_S = 20.0
_MADE_S = 60.0
_PATH = "/ended"
# Programs of a few bytes that end with 0: what is tried needs no image, and none can be fetched
_CODE = {
    "x86_64": (62, bytes.fromhex("31ffb83c0000000f05")),  # exit(0)
    "aarch64": (183, bytes.fromhex("000080d2a80b80d2010000d4")),
}
_OTHERWISE = "Or use another engine: --engine builtin needs no Podman and no root; --engine docker"


@dataclass(frozen=True)
class _Known:
    """What a refusal means: a pattern of Podman's words, ours, and what to do."""

    sign: str
    means: str
    todo: tuple[str, ...]


_KNOWN = (
    _Known(
        r"newuidmap|newgidmap|subuid|subgid|no subuid ranges|insufficient UIDs",
        "Podman has no range of user ids for you.",
        (
            "Have the package uidmap installed, and a range given to you: "
            'sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 "$USER"',
            "Then: podman system migrate",
        ),
    ),
    _Known(
        r"/dev/net/tun",
        "Podman's network for users cannot open /dev/net/tun.",
        ("Let users open it, as Linux usually does: sudo chmod 666 /dev/net/tun",),
    ),
    _Known(
        r"(?:slirp4netns|pasta|passt)\W[^\n]*(?:not found|no such file)|could not find (?:slirp4netns|pasta)",
        "The program of Podman's network for users is missing.",
        ("Install it: sudo apt-get install slirp4netns (Podman 5: passt)",),
    ),
    _Known(
        r"cgroups in hybrid mode not supported",
        "The runtime crun refuses control groups of both versions at once.",
        (
            "Start this machine with version 2 alone: the kernel's option systemd.unified_cgroup_hierarchy=1",
            "Or install runc, and name it in ~/.config/containers/containers.conf (root: "
            '/etc/containers/containers.conf): under [engine], runtime = "runc"',
        ),
    ),
    _Known(
        r"no such file or directory[^\n]*(?:cni|netavark)|netavark[^\n]*not found|failed to find plugin",
        "The programs of Podman's network are missing.",
        ("Install them: sudo apt-get install containernetworking-plugins (Podman 5: netavark)",),
    ),
    _Known(
        r"user namespaces|clone: Operation not permitted|unshare[^\n]*not permitted",
        "The kernel refuses this user a namespace of his own.",
        ("See what forbids it: sysctl user.max_user_namespaces kernel.unprivileged_userns_clone",),
    ),
)


def why_not(machine: Machine, *, start: bool = True) -> DshpcError | None:
    """Why no cluster can run on this machine's Podman; None where one can.

    `machine`: as it is, and not through a door. Without `start` no container is started to find out.
    """
    if machine.which(door.PODMAN) is None:
        return DshpcError(
            "Podman is not installed.",
            "The program podman is not in PATH.",
            ("Install it: sudo apt-get install podman (or dnf, zypper, pacman)", _OTHERWISE),
        )
    found, done = door.ask(machine, _ASK_S)
    if found is None:
        return _explained("Podman does not answer.", done)
    return _unfit(found) or (_tried(machine, found) if start else None)


def _unfit(found: About) -> DshpcError | None:
    if not at_least(found.version, SINCE):
        return DshpcError(
            f"Podman {found.version} is too old.",
            f"{SINCE} is the first that dsHPC knows to work.",
            (f"Install Podman {SINCE} or newer.", _OTHERWISE),
        )
    if found.remote:
        return DshpcError(
            "The podman command speaks to a Podman elsewhere.",
            "Folders of this machine are mounted into the container: it has to run here.",
            ("Take the variable CONTAINER_HOST away: unset CONTAINER_HOST", _OTHERWISE),
        )
    if found.rootless and min(found.uids, found.gids) < LEAST_IDS:
        (known, *_) = _KNOWN
        return DshpcError(
            known.means,
            f"A container may have {min(found.uids, found.gids)} ids, and Slurm's users take {LEAST_IDS}.",
            (*known.todo, _OTHERWISE),
        )
    return None


def _tried(machine: Machine, found: About) -> DshpcError | None:
    """A container with the ids, the limits and the network of the cluster's."""
    name = f"dshpc-trial-{secrets.token_hex(4)}"
    ref = f"localhost/{name}:1"
    program = smallest_program(machine.system[2])
    if program is None:
        return None
    made = machine.run([door.PODMAN, "import", "-", ref], deadline_s=_MADE_S, stdin=_tar(program))
    if not made.ok:
        return _explained("Podman cannot make an image.", made)
    try:
        argv = ["run", "--rm", "--pull", "never", "--name", name, "--entrypoint", _PATH, ref]
        asked = words.asked(argv, door.here(machine, found))
        done = machine.run([door.PODMAN, *asked], deadline_s=_MADE_S)
        if not done.ok:
            machine.run([door.PODMAN, "rm", "--force", name], deadline_s=_ASK_S)
            return _explained("Podman cannot start a container here.", done)
    finally:
        machine.run([door.PODMAN, "rmi", "--force", ref], deadline_s=_ASK_S)
    return None


def _explained(brief: str, done: CommandResult) -> DshpcError:
    if done.state == "timeout":
        said = f"{' '.join(done.argv[:2])} did not answer in time."
        return DshpcError(brief, said, ("Run this again.", _OTHERWISE), Exit.INCOMPLETE)
    known = next((each for each in _KNOWN if re.search(each.sign, done.text, re.I)), None)
    if known is None:
        return DshpcError(brief, done.text, ("See: podman info", _OTHERWISE))
    return DshpcError(brief, f"{known.means}\n{done.text}", (*known.todo, _OTHERWISE))


def smallest_program(processor: str) -> bytes | None:
    """An ELF file that does nothing and ends with 0; None for a processor whose code is not known here."""
    if processor not in _CODE:
        return None
    number, code = _CODE[processor]
    start, header, segment = 0x400000, 64, 56
    at = header + segment
    size = at + len(code)
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    return (
        ident
        + struct.pack(
            "<HHIQQQIHHHHHH", 2, number, 1, start + at, header, 0, 0, header, segment, 1, 0, 0, 0
        )
        + struct.pack("<IIQQQQQQ", 1, 5, 0, start, start, size, size, 0x1000)
        + code
    )


def _tar(program: bytes) -> bytes:
    to = io.BytesIO()
    with tarfile.open(fileobj=to, mode="w") as archive:
        for folder in ("proc", "sys", "dev", "etc", "run", "tmp"):
            member = tarfile.TarInfo(folder)
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(member)
        member = tarfile.TarInfo(_PATH[1:])
        member.size, member.mode = len(program), 0o755
        archive.addfile(member, io.BytesIO(program))
    return to.getvalue()

"""Folders of the machine that are seen in the container under the same path: which can be none. Pure."""

from __future__ import annotations

import re
import unicodedata

READ_ONLY = ":ro"

# Mounting a folder there would hide what the container itself lives on: these alone, ...
_NOT_THERE = ("/", "/home", "/opt", "/root", "/tmp", "/var", "/var/cache", "/var/lib", "/var/log")
# ... and these with all below them, but for those that no system lives in
_NOT_UNDER = (
    "/bin",
    "/boot",
    "/config",
    "/dev",
    "/etc",
    "/opt/dshpc",
    "/proc",
    "/run",
    "/sbin",
    "/sys",
    "/usr",
    "/var/lib/dshpc",
    "/var/lock",
    "/var/run",
    "/var/spool",
)
# What engines keep of all containers, their keys among it
_ENGINES = ("/var/lib/containerd", "/var/lib/containers", "/var/lib/docker")
_LIBRARIES = re.compile(r"/lib(?:\d+|x32|o32)?(?:/|$)")
_YET_ALLOWED = ("/run/media/", "/run/user/")


def hides_the_system(path: str) -> bool:
    """Whether the container could not live with that path covered."""
    if path in _NOT_THERE or _LIBRARIES.match(path):
        return True
    return any(lies_in(path, at) for at in _NOT_UNDER) and not path.startswith(_YET_ALLOWED)


def is_an_engines(path: str) -> bool:
    return any(lies_in(path, at) for at in _ENGINES)


def unfit_for_mount(path: str) -> bool:
    """Whether no line of a compose file can say it: engines part a mount by ':', YAML holds no control
    character and no byte that is no text."""
    return ":" in path or any(unicodedata.category(char) in ("Cc", "Cs") for char in path)


def lies_in(path: str, folder: str) -> bool:
    """Whether a path is that folder or below it; both without '..'."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def folder_of(mount: str) -> str:
    """The folder of a mount: "/scratch" of "/scratch:ro"."""
    return mount.removesuffix(READ_ONLY)


def mount(text: str) -> str:
    """A mount as it was written, without slashes that say nothing; ValueError, whose words continue
    "mounts, item 1 is '...', "."""
    folder = folder_of(text)
    if not folder.startswith("/"):
        raise ValueError("which is no absolute path")
    if ".." in folder.split("/"):
        raise ValueError("which holds '..': name the folder that is meant")
    plain = "/" + "/".join(part for part in folder.split("/") if part not in ("", "."))
    if unfit_for_mount(plain):
        raise ValueError(
            "which holds ':' or a control character: a folder, and :ro behind it for reading only"
        )
    if plain == "/home":
        raise ValueError("which the setting home is for: home: host")
    if hides_the_system(plain):
        raise ValueError("which would hide the system of the container")
    if is_an_engines(plain):
        raise ValueError("where an engine keeps its containers")
    return plain + text[len(folder) :]

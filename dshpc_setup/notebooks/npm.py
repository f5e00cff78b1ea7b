"""Packages of npm's registry as a lock names them: which of them a processor needs, and what is in them.

No program of npm's runs, and no script of a package.
"""

from __future__ import annotations

import io
import os
import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from dshpc_setup.documents import foreign

REGISTRY = "https://registry.npmjs.org/"
LOCK = "npm-shrinkwrap.json"
_MODULES = "node_modules/"
_OTHER_C = ("musl",)  # the image has glibc
# A folder of programs for one kind of machine: linux-x64, win32-arm64
_PLATFORM = re.compile(r"(darwin|win32|freebsd|openbsd|android|linux|linuxmusl)-[a-z0-9_-]+")
_MOST_BYTES = 1 << 30  # of all that is in a package


@dataclass(frozen=True)
class Archive:
    """`folder`: where its files go, below that of the program; "" is that one itself."""

    folder: str
    url: str
    integrity: str


def first(text: str, cpu: str) -> tuple[Archive, ...]:
    """Those of a list of ours, which bring the locks of the others; `cpu` as npm has it: x64, arm64."""
    return tuple(
        Archive(each["folder"], each["url"], each["integrity"])
        for each in foreign.value(text)
        if each.get("cpu", cpu) == cpu
    )


def locked(text: str, below: str, cpu: str, without: re.Pattern[str]) -> tuple[Archive, ...]:
    """What a lock of npm's (its third form) has for Linux with that processor, but for the packages whose
    names are of `without`. ValueError for a lock of another form, or one that leads elsewhere."""
    value = foreign.value(text)
    try:
        if value["lockfileVersion"] != 3:
            raise ValueError("it is a lock of another form")
        found = tuple(_chosen(value["packages"], below, cpu, without))
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"it is no lock of npm's: {error!r}") from None
    return found


def _chosen(
    packages: Mapping[str, Any], below: str, cpu: str, without: re.Pattern[str]
) -> Iterator[Archive]:
    for path, package in packages.items():
        names = path.split(_MODULES)[1:]
        if not names or package.get("dev") or not _is_for(package, cpu):
            continue
        if any(without.fullmatch(name.rstrip("/")) for name in names):
            continue
        folder = PurePosixPath(below) / path
        if ".." in folder.parts or folder.is_absolute():
            raise ValueError(f"it leads elsewhere: {path}")
        url = str(package["resolved"])
        if not url.startswith(REGISTRY):
            raise ValueError(f"{path} is not in npm's registry: {url}")
        yield Archive(str(folder), url, str(package["integrity"]))


def _is_for(package: Mapping[str, Any], cpu: str) -> bool:
    systems, processors = package.get("os", ["linux"]), package.get("cpu", [cpu])
    return "linux" in systems and cpu in processors and package.get("libc") != list(_OTHER_C)


def unpack(data: bytes, into: Path, cpu: str) -> None:
    """Its files below the folder; not those for other machines, nor what a debugger alone reads.

    ValueError for one that would write elsewhere, or has more than a package has.
    """
    left = _MOST_BYTES
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        for member in archive:
            if not member.isfile():
                continue
            parts = PurePosixPath(member.name).parts[1:]
            if not parts or ".." in parts:
                raise ValueError(f"it leads elsewhere: {member.name}")
            left -= member.size
            if left < 0:
                raise ValueError("it is larger than a package is")
            file = archive.extractfile(member)
            if file is None or not _is_wanted(parts, cpu):
                continue
            path = into.joinpath(*parts)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.read())
            os.chmod(path, 0o755 if member.mode & 0o111 else 0o644)


def _is_wanted(parts: tuple[str, ...], cpu: str) -> bool:
    if parts[-1].endswith(".map"):
        return False
    return not any(_PLATFORM.fullmatch(part) and part != f"linux-{cpu}" for part in parts[:-1])

"""The scripts that make pages live: packages of npm's registry, never committed, each checked by its hash.

browser_files.json lists them. The archives lie in the wheel, else in the user's cache, where they are fetched
once; they are checked each time, and served from memory. Pages do without them.
"""

from __future__ import annotations

import io
import os
import tarfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dshpc_setup import resources
from dshpc_setup.documents import foreign
from dshpc_setup.machine import Machine, web

FOLDER = "browser"
_LIST = resources.package() / "dashboard" / "browser_files.json"
_MOST_BYTES = 1 << 20  # of a file in them
_SILENT_S = 10.0


@dataclass(frozen=True)
class Package:
    """A package of npm's registry; `files`: name that it is served by -> member of the archive."""

    name: str
    version: str
    license: str
    url: str
    integrity: str
    files: Mapping[str, str]

    @property
    def archive(self) -> str:
        return f"{self.name}-{self.version}.tgz"


def packages() -> tuple[Package, ...]:
    return tuple(Package(**each) for each in foreign.value(_LIST.read_text(encoding="utf-8")))


class Scripts:
    """What there is of them: all, or none."""

    def __init__(self, listed: tuple[Package, ...], folders: tuple[Path, ...]) -> None:
        self._listed, self._folders = listed, folders
        self.files: Mapping[str, bytes] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.files)

    def read(self) -> bool:
        """Whether all are there; an archive that is not what is listed counts as missing."""
        found: dict[str, bytes] = {}
        for package in self._listed:
            for folder in self._folders:
                try:
                    data = (folder / package.archive).read_bytes()
                except OSError:
                    continue
                if web.is_whole(data, package.integrity):
                    found |= dict(_members(data, package))
                    break
            else:
                return False
        self.files = found
        return True

    def fetch(self, machine: Machine) -> None:
        """Into the last of the folders; without an answer, or a place, nothing is changed."""
        from dshpc_setup.debian.sources import route

        folder = self._folders[-1]
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            return
        wanted = [web.File(each.url, str(folder / each.archive)) for each in self._listed]
        web.fetch(wanted, route(machine), lambda _: None, threads=2, silent_s=_SILENT_S)
        self.read()


def of_machine(machine: Machine) -> Scripts:
    """Those that are there; what is missing is fetched meanwhile, and in the pages from then on."""
    scripts = Scripts(packages(), (resources.share() / FOLDER, cache(machine.env)))
    if not scripts.read():
        threading.Thread(target=scripts.fetch, args=(machine,), daemon=True).start()
    return scripts


def cache(env: Mapping[str, str]) -> Path:
    top = env.get("XDG_CACHE_HOME") or os.path.join(env.get("HOME") or "/root", ".cache")
    return Path(top) / "dshpc" / FOLDER


def _members(data: bytes, package: Package) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        for name, member in package.files.items():
            file = archive.extractfile(member)
            if file is not None:
                yield name, file.read(_MOST_BYTES)

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
TERMINAL = "terminal"  # a kind of page
_LIST = resources.package() / "dashboard" / "browser_files.json"
_MOST_BYTES = 1 << 20  # of a file in them
_SILENT_S = 10.0


@dataclass(frozen=True)
class Package:
    """A package of npm's registry; `files`: name that it is served by -> member of the archive; `page`: the
    kind of page that needs it, where not all do."""

    name: str
    version: str
    license: str
    url: str
    integrity: str
    files: Mapping[str, str]
    page: str = ""

    @property
    def archive(self) -> str:
        return f"{self.name.lstrip('@').replace('/', '-')}-{self.version}.tgz"


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


@dataclass(frozen=True)
class Browser:
    """The scripts of all pages, and those that a terminal needs besides."""

    pages: Scripts
    terminal: Scripts

    def file(self, name: str) -> bytes | None:
        return self.pages.files.get(name) or self.terminal.files.get(name)


def of_machine(machine: Machine) -> Browser:
    """Those that are there; what is missing is fetched meanwhile, and in the pages from then on."""
    folders = resources.share() / FOLDER, cache(machine.env)
    listed = packages()
    pages = Scripts(tuple(each for each in listed if not each.page), folders)
    terminal = Scripts(tuple(each for each in listed if each.page == TERMINAL), folders)
    missing = [] if pages.read() else [pages]

    def complete() -> None:
        if not terminal.read():  # large, and the first page does without
            missing.append(terminal)
        for each in missing:
            each.fetch(machine)

    threading.Thread(target=complete, daemon=True).start()
    return Browser(pages, terminal)


def cache(env: Mapping[str, str]) -> Path:
    top = env.get("XDG_CACHE_HOME") or os.path.join(env.get("HOME") or "/root", ".cache")
    return Path(top) / "dshpc" / FOLDER


def _members(data: bytes, package: Package) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        for name, member in package.files.items():
            file = archive.extractfile(member)
            if file is not None:
                yield name, file.read(_MOST_BYTES)

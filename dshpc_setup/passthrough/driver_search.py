"""The files of one vendor's driver, looked for where people and toolkits left word of them.

In this order: a CDI specification, the loader's index, folders, LD_LIBRARY_PATH.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from dshpc_setup.facts import CdiSpec, HostFacts, Vendor
from dshpc_setup.gpu_vendors import Descriptor
from dshpc_setup.machine import Machine
from dshpc_setup.probes import cdi, loader

_PROGRAMS = "/usr/bin"
_MOST_LINKS = 40


# Of a path that stands in "source:target:ro"
_PLAIN = re.compile(r"/[\w./+@~-]{1,4000}", re.ASCII)


@dataclass(frozen=True)
class File:
    """A file, or on WSL a folder, and its place in the container; `by` names what told of it."""

    source: str
    target: str
    by: str  # "/etc/cdi/nvidia.yaml", "/etc/ld.so.cache", a folder, "PATH"
    vendor: Vendor | None = None  # None: of each


@dataclass(frozen=True)
class Lack:
    """What is missing, without which no GPU of the vendor computes in a container.

    `name` is a library, or for `other-driver` the kernel driver whose files are not known here. The
    library lies at `place` where it was found, and is of the driver `version`, while `running` runs.
    """

    kind: Literal["absent", "version-mismatch", "unreadable", "other-driver"]
    vendor: Vendor
    name: str
    place: str | None = None
    version: str | None = None
    running: str | None = None

    @property
    def code(self) -> str:
        """ "no-libcuda", "version-mismatch"."""
        return f"no-{self.name.partition('.')[0]}" if self.kind == "absent" else self.kind


@dataclass(frozen=True)
class _Place:
    """A library or a program where it really lies."""

    source: str
    by: str


class Search:
    """For the files of one vendor's driver, done as it is made."""

    def __init__(self, machine: Machine, facts: HostFacts, vendor: Descriptor) -> None:
        self._machine = machine
        self._vendor = vendor.name
        self._wanted = vendor.driver_files
        self._arch = machine.system[2]
        self._found: dict[str, _Place] = {}
        self._refused: dict[str, Lack] = {}
        self._others: tuple[str, ...] = ()
        if self._wanted is None:
            return
        gpus = [gpu for gpu in facts.gpus.devices if gpu.vendor == vendor.name]
        drivers = dict.fromkeys(gpu.driver for gpu in gpus if gpu.driver is not None)
        self._others = tuple(each for each in drivers if each not in self._wanted.modules)
        self._version = self._running() or next(
            filter(None, (gpu.driver_version for gpu in gpus)), None
        )
        specs = [spec for spec in facts.engine.cdi_specs if vendor.named_in(spec.kind)]
        self._specified = {spec.path: _mounted(machine, spec) for spec in specs}
        self._index = machine.read(loader.INDEX).text or ""
        self._folders = tuple(self._all_folders(self._wanted.folders))
        if not self._others:
            for library in self._wanted.libraries:
                self._library(library)

    def _running(self) -> str | None:
        """The version of the driver that is loaded, as the kernel tells it."""
        assert self._wanted is not None
        for path, pattern in self._wanted.versions.items():
            text = (self._machine.read(path).text or "").strip()
            if found := re.search(pattern, text[:10_000], re.ASCII | re.MULTILINE):
                return found[1]
        return None

    # -- what came of it --

    def lacks(self) -> Iterator[Lack]:
        if self._wanted is None:
            return
        yield from (Lack("other-driver", self._vendor, name) for name in self._others)
        for name in self._wanted.needed if not self._others else ():
            if name not in self._found:
                yield self._refused.get(name, Lack("absent", self._vendor, name))

    def files(self) -> Iterator[File]:
        """Libraries first. A name is taken once: two libraries may have the same file."""
        if self._wanted is None or self._others:
            return
        folder = f"/usr/lib/{loader.MULTIARCH.get(self._arch, '')}".rstrip("/")
        for name, place in self._found.items():
            own = posixpath.basename(place.source)
            names = [own if name.endswith(".*") else name]
            names += [own] if own.startswith(name.partition(".so")[0]) else []
            names += [further for further, of in self._wanted.also.items() if of == name]
            for each in dict.fromkeys(names):
                yield File(place.source, f"{folder}/{each}", place.by, self._vendor)
        for program in self._wanted.programs:
            place_of = self._program(program)
            if place_of is not None:
                yield File(place_of.source, f"{_PROGRAMS}/{program}", place_of.by, self._vendor)

    # -- libraries --

    def _library(self, name: str) -> None:
        names = self._names(name)
        for path, by in self._places(names):
            source = self._real(path)
            if self._is_ours(name, source):
                self._found[name] = _Place(source, by)
                return

    def _names(self, name: str) -> tuple[str, ...]:
        """The file's own name first, where it is known: a link to it may be an older driver's."""
        stem = name[: name.index(".so") + 3]
        own = () if self._version is None else (f"{stem}.{self._version}",)
        return own if name.endswith(".*") else (*own, name)

    def _places(self, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        """Paths that may be the library, and what tells of them."""
        for spec, files in self._specified.items():
            yield from ((file, spec) for file in files if posixpath.basename(file) in names)
        yield from ((path, loader.INDEX) for path in loader.indexed(self._index, names))
        for folder in self._folders:
            yield from ((f"{folder}/{name}", folder) for name in names)

    def _all_folders(self, more: Iterable[str]) -> Iterator[str]:
        multiarch = loader.MULTIARCH.get(self._arch, "")
        usual = [each for each in loader.folders(self._arch) if each.startswith("/usr/")]
        given = self._machine.env.get("LD_LIBRARY_PATH", "").split(":")
        for folder in (*usual, *more, *(each.rstrip("/") for each in given)):
            path = folder.replace("{multiarch}", multiarch)
            above, last = posixpath.split(path)
            if "*" in last:
                for name in fnmatch.filter(self._machine.listdir(above), last):
                    yield f"{above}/{name}"
            elif path.startswith("/"):
                yield path

    def _is_ours(self, name: str, source: str) -> bool:
        """Whether it is the running driver's and for this processor; why not is kept, if it matters."""
        assert self._wanted is not None
        binary = self._machine.binary(source)
        if binary.state == "denied":
            self._refused.setdefault(name, Lack("unreadable", self._vendor, name, source))
            return False
        if not self._for_us(source):
            return False
        told = re.search(self._wanted.numbered, posixpath.basename(source), re.ASCII)
        if told is None or self._version in (None, told[1]):
            self._version = self._version or (told[1] if told else None)
            return True
        other = Lack("version-mismatch", self._vendor, name, source, told[1], self._version)
        self._refused.setdefault(name, other)
        return False

    def _for_us(self, source: str) -> bool:
        binary = self._machine.binary(source)
        ours = binary.state == "present" and binary.architecture in (None, self._arch)
        return ours and _PLAIN.fullmatch(source) is not None

    def _real(self, path: str) -> str:
        """Links followed, but for those of folders on the way."""
        for _ in range(_MOST_LINKS):
            target = self._machine.readlink(path)
            if target is None:
                break
            path = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        return path

    # -- programs --

    def _program(self, name: str) -> _Place | None:
        """The program itself, which a script of the same name may start."""
        for path, by in self._programs(name):
            source = self._real(path)
            if self._for_us(source):
                return _Place(source, by)
        return None

    def _programs(self, name: str) -> Iterator[tuple[str, str]]:
        for spec, files in self._specified.items():
            yield from ((file, spec) for file in files if posixpath.basename(file) == name)
        sources = (posixpath.dirname(place.source) for place in self._found.values())
        for folder in dict.fromkeys(sources):
            above = posixpath.dirname(folder)
            for beside in (f"{above}/bin", f"{posixpath.dirname(above)}/bin", folder):
                yield f"{beside}/{name}", folder
        for path in self._in_path(name):
            yield path, "PATH"

    def _in_path(self, name: str) -> Iterator[str]:
        first = self._machine.which(name)
        if first is not None:
            yield first
        for folder in self._machine.env.get("PATH", "").split(":"):
            if folder.startswith("/"):
                yield f"{folder.rstrip('/')}/{name}"


def _mounted(machine: Machine, spec: CdiSpec) -> tuple[str, ...]:
    """The files of the host that a specification mounts; what its hooks do is left to others."""
    return cdi.parse(spec.path, machine.read(spec.path).text or "").files

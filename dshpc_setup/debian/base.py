"""A root filesystem made from nothing but a mirror: lists, packages, files, and dpkg's own work."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dshpc_setup.builtin import trees
from dshpc_setup.builtin.ids import Ids
from dshpc_setup.debian import inside, sources, unpack
from dshpc_setup.debian.faults import DebianError, in_words
from dshpc_setup.debian.index import Index, Package, closure
from dshpc_setup.debian.inside import Script
from dshpc_setup.errors import DshpcError
from dshpc_setup.files import atomic, locks
from dshpc_setup.machine import Machine

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_DEBS = "/tmp/dshpc-debs"  # not where apt keeps them: its package has a folder there
_OPTIONS = "dshpc-made"
_CORE = ("base-passwd", "base-files", "dpkg", "libc6", "perl-base", "mawk")
"""In this order before all others, as debootstrap does it: what scripts of packages rely on."""
_ENVIRONMENT = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LC_ALL": "C.UTF-8",
    "DEBIAN_FRONTEND": "noninteractive",
    "DEBCONF_NONINTERACTIVE_SEEN": "true",
}


@dataclass(frozen=True)
class Made:
    """What was made. `packages`: (name, version), by name. `fetched_bytes`: 0 where all was in the cache.

    The seconds: for lists and packages, for what Python unpacks, and for dpkg.
    """

    folder: str
    packages: tuple[tuple[str, str], ...]
    fetched_bytes: int
    fetch_s: float
    unpack_s: float
    configure_s: float


def make_base(
    machine: Machine,
    mirror: str,
    suite: str,
    ids: Ids,
    destination: Path,
    *,
    extra: Sequence[str] = (),
    optional: Sequence[str] = (),
    components: Sequence[str] = ("main",),
    security: str | None = None,
    pinned: Mapping[str, str] | None = None,
    options: str = "",
    progress: Callable[[str], None] = lambda _: None,
    keys: Path | None = None,
    deadline_s: float = 900.0,
) -> Made:
    """Debian as a root filesystem at `destination`, which must not be there, for containers with these ids.

    All essential and required packages, apt, ca-certificates, `extra` (names), and what these need; nothing
    that is only recommended; of `optional` what the archive has for this processor; of `pinned` (name ->
    version) these very versions. `options`: of dpkg, such as what it is not to unpack. `mirror` is an address
    such as http://deb.debian.org/debian, `security` that of the security updates for it; `components` are the
    parts of both ("contrib" has NVML's plugin). Each list
    is signed by a key of Debian's (`keys`: of another keyring), each package is the one that the list names.
    Takes no program of the machine, but newuidmap and newgidmap for the way `mapped`.

    Raises DshpcError, and leaves nothing half done: what a killed run has left beside `destination` is
    removed by the next one. What was fetched stays in the user's cache.
    """
    try:
        return _made(
            machine,
            _Wanted(
                ids,
                destination,
                tuple(extra),
                tuple(optional),
                Archive(mirror, suite, tuple(components), security, keys),
                pinned or {},
                options,
            ),
            progress,
            machine.clock() + deadline_s,
        )
    except DebianError as error:
        raise in_words(error) from None
    except OSError as error:
        raise atomic.write_error(error, destination) from None


@dataclass(frozen=True)
class Archive:
    """An archive of Debian's: as `make_base` has it."""

    mirror: str
    suite: str
    components: tuple[str, ...] = ("main",)
    security: str | None = None
    keys: Path | None = None

    @property
    def sources(self) -> list[sources.Source]:
        both = [(self.mirror, self.suite)]
        if self.security is not None:
            both.append((self.security, f"{self.suite}-security"))
        return [sources.source(*each, part) for each in both for part in self.components]


def offered(
    machine: Machine, archive: Archive, names: Iterable[str], deadline_s: float = 600.0
) -> dict[str, str]:
    """Name -> version of what the archive offers; a name that it lacks is left out. Raises DshpcError."""
    until = machine.clock() + deadline_s
    try:
        with sources.locked(machine, deadline_s) as debs:
            way = sources.route(machine)
            left = max(1.0, until - machine.clock())
            index = sources.index(
                machine, debs, archive.sources, _arch(machine), way, left, archive.keys
            )
        found = {name: index.get(name) for name in names}
    except DebianError as error:
        raise in_words(error) from None
    return {name: each.version for name, each in found.items() if each is not None}


def _arch(machine: Machine) -> str:
    arch = _ARCHITECTURES.get(machine.system[2])
    if arch is None:
        raise DebianError("no-index", machine.system[2])
    return arch


@dataclass(frozen=True)
class _Wanted:
    ids: Ids
    destination: Path
    extra: tuple[str, ...]
    optional: tuple[str, ...]
    archive: Archive
    pinned: Mapping[str, str]
    options: str


def _made(machine: Machine, wanted: _Wanted, progress: Callable[[str], None], until: float) -> Made:
    def left() -> float:
        return max(1.0, until - machine.clock())

    from_ = wanted.archive.sources
    arch = _arch(machine)
    with _place(machine, wanted, left()) as root, sources.locked(machine, left()) as debs:
        began = machine.clock()
        progress("Debian: reading the lists of packages")
        way = sources.route(machine)
        index = sources.index(machine, debs, from_, arch, way, left(), wanted.archive.keys)
        base = closure(index, index.base())
        need_pinned(index, wanted.pinned)
        here = (name for name in wanted.optional if index.get(name) is not None)
        every = closure(index, (*index.base(), *wanted.extra, *wanted.pinned, *here))
        size = sum(each.size for each in every) >> 20
        progress(f"Debian: fetching {len(every)} packages ({size} MiB)")
        came = sources.debs(machine, debs, from_, every, way, left(), progress)
        fetched = machine.clock()
        progress("Debian: unpacking the base")
        files = [sources.place(debs, each) for each in closure(index, index.essential())]
        unpack.lay_out(machine, root, wanted.ids, files, left())
        unpacked = machine.clock()
        progress(f"Debian: setting up {len(every)} packages")
        script = Script(
            text(base, every, from_, debs, wanted.options), _ENVIRONMENT, {str(debs): _DEBS}
        )
        log = _log(wanted.destination)
        code = inside.run(machine, root, wanted.ids, script, log, left())
        if code != 0:
            raise DebianError("configure", inside.tail(log))
        os.rename(root, wanted.destination)
        atomic.sync_folder(wanted.destination.parent)
        return Made(
            str(wanted.destination),
            tuple(sorted((each.name, each.version) for each in every)),
            came,
            fetched - began,
            unpacked - fetched,
            machine.clock() - unpacked,
        )


def need_pinned(index: Index, pinned: Mapping[str, str]) -> None:
    """DebianError for one that the archive has in another version, or not at all. Pure."""
    for name, version in pinned.items():
        found = index.get(name)
        if found is None or found.version != version:
            now = "no such package" if found is None else found.version
            raise DebianError("pinned", f"{name}: {version} is locked, the archive has {now}.")


@contextmanager
def _place(machine: Machine, wanted: _Wanted, deadline_s: float) -> Iterator[Path]:
    """A folder beside the destination, to be moved there: of what it is at the end nothing stays."""
    final = wanted.destination
    atomic.make_folder(final.parent, mode=0o700)
    new = final.with_name(f".{final.name}.new")
    with locks.held(final.with_name(f".{final.name}.lock"), deadline_s) as ours:
        if not ours:
            raise DebianError("deadline", f"Another run is making {final}.")
        if os.path.lexists(final):
            raise DshpcError(
                f"{final} is there already.", "", ("Remove it, or name another folder.",)
            )
        if os.statvfs(final.parent).f_flag & os.ST_NOEXEC:
            raise DebianError("noexec", str(final.parent))
        trees.remove(machine, wanted.ids, new)
        os.mkdir(new, 0o755)
        try:
            yield new
        finally:
            _log(final).unlink(missing_ok=True)
            trees.remove(machine, wanted.ids, new)


def _log(final: Path) -> Path:
    return final.with_name(f".{final.name}.log")


def text(
    base: Sequence[Package],
    every: Sequence[Package],
    from_: Sequence[sources.Source],
    debs: Path,
    options: str = "",
) -> str:
    """What dpkg is to do, as a script of sh's: as the second stage of debootstrap does it. Pure.

    `every`: with the packages of the base. `options`: lines of dpkg's configuration for it.
    """
    core = [each for name in _CORE for each in base if each.name == name]
    rest = [each for each in every if each not in base]

    def paths(packages: Sequence[Package]) -> str:
        return " ".join(f"{_DEBS}/{sources.place(debs, each).name}" for each in packages)

    dpkg = "dpkg --force-depends --force-unsafe-io --force-confold"
    lines = [
        "set -eu",
        "cd /",
        "mkdir -p /var/lib/dpkg/info /var/lib/dpkg/updates",
        ": >/var/lib/dpkg/status",
        ": >/var/lib/dpkg/available",
        "printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d",
        "chmod 755 /usr/sbin/policy-rc.d",
        "mkdir -p /etc/dpkg/dpkg.cfg.d",
        f"cat >/etc/dpkg/dpkg.cfg.d/{_OPTIONS} <<'END'\n{options}END",
        *_feigned([each for each in base if each.name == "dpkg"]),
        *(f"{dpkg} --install {paths([each])}" for each in core),
        f"{dpkg} --unpack {paths([each for each in base if each not in core])}",
        f"{dpkg} --force-configure-any --configure --pending",
    ]
    if rest:
        lines.append(f"{dpkg} --unpack {paths(rest)}")
    lines += [
        "dpkg --force-unsafe-io --force-confold --configure -a",
        f"rm -f /usr/sbin/policy-rc.d /etc/dpkg/dpkg.cfg.d/{_OPTIONS}",
        "[ ! -e /etc/machine-id ] || : >/etc/machine-id",  # of the systems that are made of it
        "mkdir -p /etc/apt/sources.list.d",
        "cat >/etc/apt/sources.list.d/debian.sources <<'END'",
        "\n\n".join(
            f"Types: deb\nURIs: {each.url}\nSuites: {each.suite}\nComponents: {each.component}\n"
            "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg"
            for each in from_
        ),
        "END",
        "audit=$(dpkg --audit)",
        '[ -z "$audit" ] || { echo "$audit"; exit 1; }',
    ]
    return "\n".join(lines) + "\n"


def _feigned(packages: Sequence[Package]) -> Iterator[str]:
    """dpkg believes that these are there: it installs nothing without one of itself."""
    for each in packages:
        yield (
            f"printf 'Package: {each.name}\\nVersion: {each.version}\\nMaintainer: unknown\\n"
            f"Status: install ok installed\\n\\n' >>/var/lib/dpkg/status"
        )
        yield f": >/var/lib/dpkg/info/{each.name}.list"

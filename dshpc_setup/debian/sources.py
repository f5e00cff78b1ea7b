"""Lists and packages brought into the user's cache: each verified, and fetched once."""

from __future__ import annotations

import contextlib
import hashlib
import lzma
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import quote, urlsplit

from dshpc_setup.builtin import cache, kernel
from dshpc_setup.debian import release, signature
from dshpc_setup.debian.faults import DebianError
from dshpc_setup.debian.index import Index, Package
from dshpc_setup.engine.site import apt_settings, gather_site
from dshpc_setup.files import atomic, locks
from dshpc_setup.machine import Machine, Say
from dshpc_setup.machine.web import Fetched, File, Route, fetch

_MOST_LIST_BYTES = 512 << 20
_KEPT_S = 30 * 24 * 3600.0
# What this room puts into the cache
_KNOWN = re.compile(r"[0-9a-f]{64}\.(deb|packages\.xz)|[0-9a-f]{16}\.InRelease")
_HASH = re.compile(r"\b[0-9a-f]{64}\b")
_APT_PROXY = re.compile(r"Acquire::(https?)::Proxy", re.IGNORECASE)


@dataclass(frozen=True)
class Source:
    """An archive's address without a "/" at its end, a suite of it, and of that a component."""

    url: str
    suite: str
    component: str = "main"


def cache_folder(env: Mapping[str, str]) -> Path:
    """`dshpc/debs` in the user's cache."""
    return cache.folder(env) / "debs"


def source(url: str, suite: str, component: str = "main") -> Source:
    """DebianError for an address with a password, which would end up in the system, and for what is none."""
    try:
        parts = urlsplit(url)
        fit = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        fit = False
    if not fit or re.search(r"\s", url):
        raise DebianError("mirror", url if "@" not in url else "")
    return Source(url.rstrip("/"), suite, component)


def route(machine: Machine) -> Route:
    """How this site reaches a mirror: the environment's proxies, apt's own before them; its certificates."""
    site = gather_site(machine)
    proxies = {
        name.removesuffix("_PROXY").lower(): value
        for name, value in site.proxies.items()
        if name != "FTP_PROXY"
    }
    for key, value in apt_settings(machine):
        found = _APT_PROXY.fullmatch(key)
        if found is not None:
            proxies[found[1].lower()] = "" if value == "DIRECT" else value
            if value == "DIRECT":
                proxies.pop("all", None)
    return Route(proxies, site.ca_pem)


@contextlib.contextmanager
def locked(machine: Machine, deadline_s: float) -> Iterator[Path]:
    """The cache folder, for us alone; what killed runs have left is gone. DebianError at the deadline."""
    folder = cache_folder(machine.env)
    atomic.make_folder(folder, mode=0o700)
    with locks.held(folder / "lock", deadline_s) as ours:
        if not ours:
            raise DebianError("deadline", f"{folder} was locked by another run.")
        for left in folder.glob("*.part"):
            left.unlink(missing_ok=True)
        yield folder


def fetched(
    machine: Machine,
    files: Sequence[File],
    way: Route,
    deadline_s: float,
    silent_s: float = 30.0,
    on_file: Callable[[Fetched], object] | None = None,
) -> int:
    """All of them, in a process of their own; how many bytes came. `on_file`: given each. DebianError."""
    if not files:
        return 0

    above = os.getpid()

    def question(say: Say) -> None:
        kernel.die_with_parent(signal.SIGKILL)
        if os.getppid() == above:
            fetch(files, way, say, silent_s=silent_s)

    ended = machine.apart({"fetch": question}, deadline_s=deadline_s, on_item=on_file)["fetch"]
    done = [each for each in ended.items if isinstance(each, Fetched)]
    for each in done:
        if each.trouble is not None:
            raise DebianError(each.trouble, each.detail)
    if ended.state != "present" or len(done) != len(files):
        names = {each.url for each in files} - {each.url for each in done}
        late = f"{len(names)} of {len(files)} files are missing: {', '.join(sorted(names)[:3])}"
        raise DebianError("deadline" if ended.state == "timeout" else "unreachable", late)
    return sum(each.bytes_ for each in done)


def index(
    machine: Machine,
    folder: Path,
    sources: Sequence[Source],
    arch: str,
    way: Route,
    deadline_s: float,
    keys: Path | None = None,
) -> Index:
    """What these archives have for that processor. DebianError where one is not Debian's, or out of date."""
    until = machine.clock() + deadline_s
    heads = {
        (each.url, each.suite): File(
            f"{each.url}/dists/{each.suite}/InRelease", str(folder / _name(each))
        )
        for each in sources
    }
    fetched(machine, list(heads.values()), way, deadline_s)
    now = datetime.now(timezone.utc)
    releases = {
        (url, suite): release.check(
            signature.verified(machine, Path(head.path).read_bytes(), keys), suite, now
        )
        for (url, suite), head in heads.items()
    }
    lists = []
    for each in sources:
        found = releases[each.url, each.suite]
        path, listed = release.packages_file(found, arch, each.component)
        if found.by_hash:
            path = release.by_hash(path, listed)
        place = folder / f"{listed.sha256}.packages.xz"
        url = f"{each.url}/dists/{each.suite}/{path}"
        lists.append(File(url, str(place), listed.sha256, listed.size))
    fetched(
        machine,
        list({each.path: each for each in lists}.values()),
        way,
        max(1.0, until - machine.clock()),
    )
    return Index(*(_unpacked(Path(each.path)) for each in lists))


def _name(each: Source) -> str:
    return hashlib.sha256(f"{each.url} {each.suite}".encode()).hexdigest()[:16] + ".InRelease"


def _unpacked(path: Path) -> str:
    try:
        with lzma.open(path) as file:
            found = file.read(_MOST_LIST_BYTES)
    except (lzma.LZMAError, EOFError) as error:
        raise DebianError("index", str(error)) from None
    return found.decode("utf-8", errors="replace")


def debs(
    machine: Machine,
    folder: Path,
    sources: Sequence[Source],
    packages: Sequence[Package],
    way: Route,
    deadline_s: float,
    progress: Callable[[str], None] = lambda _: None,
) -> int:
    """The packages as `place` has them; how many bytes came."""
    files = [
        File(
            f"{sources[each.origin].url}/{quote(each.filename, safe='/+~:')}",
            str(place(folder, each)),
            each.sha256,
            each.size,
        )
        for each in packages
    ]
    sizes = {each.url: each.size or 0 for each in files}
    whole, there = sum(sizes.values()), [0]

    def on_file(done: Fetched) -> None:
        there[0] += sizes.get(done.url, 0)
        progress(f"Debian: fetched {there[0] >> 20} of {whole >> 20} MiB")

    came = fetched(machine, files, way, deadline_s, on_file=on_file)
    now = time.time()
    for each in files:  # when it was used last: see `prune`
        os.utime(each.path, (now, now))
    return came


def prune(env: Mapping[str, str]) -> int:
    """What nobody will ask for goes out of the cache: how many bytes. Nothing where a run uses it now.

    A package goes that no list names which an archive had when it was asked last, or that no image was made
    with for a month; so does an archive that was not asked for as long, and a list that none has any more.
    """
    folder = cache_folder(env)
    gone = 0
    unreadable = (OSError, lzma.LZMAError, EOFError)  # the image is made, whatever lies here
    with contextlib.suppress(*unreadable), locks.held(folder / "lock") as ours:
        if not ours:
            return 0
        oldest = time.time() - _KEPT_S
        ages = {path: path.stat() for path in folder.iterdir() if _KNOWN.fullmatch(path.name)}
        heads = [path for path in ages if path.suffix == ".InRelease"]
        asked = [path for path in heads if ages[path].st_mtime >= oldest]
        named = set().union(*(_HASH.findall(path.read_text(errors="replace")) for path in asked))
        lists = [path for path in ages if path.suffix == ".xz"]
        kept = [path for path in lists if path.name.partition(".")[0] in named]
        debs = [path for path in ages if path.suffix == ".deb"]
        recent = [path for path in debs if ages[path].st_mtime >= oldest]
        listed = _listed(kept) if recent else set()
        stay = {*asked, *kept, *(path for path in recent if path.stem in listed)}
        for path in ages.keys() - stay:
            path.unlink(missing_ok=True)
            gone += ages[path].st_size
    return gone


def _listed(lists: Sequence[Path]) -> set[str]:
    """The hashes of all packages in these lists."""
    found: set[str] = set()
    for path in lists:
        with lzma.open(path, "rt", errors="replace") as text:
            found.update(line[8:].strip() for line in text if line.startswith("SHA256: "))
    return found


def place(folder: Path, package: Package) -> Path:
    """Where a package lies: by its content, so that no mirror can put one in the place of another."""
    return folder / f"{package.sha256}.deb"

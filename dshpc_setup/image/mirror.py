"""Which Debian package mirror the image is made from: the user's, the host's own, or none known.

The formats are those of sources.list(5): one line an entry, or deb822 stanzas in `*.sources`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from dshpc_setup.errors import usage_error
from dshpc_setup.machine import Machine

RELEASE = "trixie"  # the first Debian whose Slurm knows auth/slurm and a disabled cgroup plugin

_FOLDER = "/etc/apt/sources.list.d"
# Files that Debian's installer and image makers write: what stands there is the main archive.
_MAIN_FILES = ("/etc/apt/sources.list", f"{_FOLDER}/debian.sources")
_LINE = re.compile(r"^deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<rest>.*)$")


@dataclass(frozen=True)
class Entry:
    """One binary source: an archive address and one of its suites."""

    uri: str
    suite: str
    components: tuple[str, ...]
    signed_by: str = ""
    file: str = ""


@dataclass(frozen=True)
class Mirror:
    """Addresses without a trailing slash; `security` is None where no security archive is known."""

    main: str
    updates: bool = False
    security: str | None = None


def parse_list(text: str, file: str = "") -> tuple[Entry, ...]:
    """Entries of a one-line-style file; comments, deb-src and what is no entry are skipped."""
    found = []
    for line in text.splitlines():
        match = _LINE.match(line.split("#", 1)[0].strip())
        if match is None or not match["rest"].split():
            continue
        suite, *components = match["rest"].split()
        signed = re.search(r"signed-by=(\S+)", match["options"] or "", re.IGNORECASE)
        found.append(
            Entry(match["uri"], suite, tuple(components), signed[1] if signed else "", file)
        )
    return tuple(found)


def parse_deb822(text: str, file: str = "") -> tuple[Entry, ...]:
    """Entries of a `*.sources` file; disabled stanzas and deb-src are skipped."""
    found: list[Entry] = []
    for stanza in re.split(r"\n\s*\n", text.replace("\r\n", "\n")):
        fields = _fields(stanza)
        if fields.get("enabled", "yes").strip().lower() in ("no", "false", "0", "off"):
            continue
        if "deb" not in fields.get("types", "").split():
            continue
        components = tuple(fields.get("components", "").split())
        signed = fields.get("signed-by", "").strip()
        found.extend(
            Entry(uri, suite, components, signed, file)
            for uri in fields.get("uris", "").split()
            for suite in fields.get("suites", "").split()
        )
    return tuple(found)


def _fields(stanza: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    name = ""
    for line in stanza.splitlines():
        if line.startswith("#"):
            continue
        if line[:1] in (" ", "\t") and name:
            fields[name] += "\n" + line.strip()
        elif ":" in line:
            name, _, value = line.partition(":")
            name = name.strip().lower()
            fields[name] = value.strip()
    return fields


def choose(entries: Iterable[Entry]) -> Mirror | None:
    """The Debian archive among a Debian host's sources, which may name other vendors' too."""
    usable = [entry for entry in entries if "main" in entry.components and _reachable(entry.uri)]
    plain = [entry for entry in usable if "-" not in entry.suite and "/" not in entry.suite]
    if not plain:
        return None
    best = max(plain, key=_likeness)  # the first of equals: the order of the files is the user's
    if _likeness(best) == 0:
        return None
    main = best.uri.rstrip("/")
    security = [
        entry.uri.rstrip("/")
        for entry in usable
        if entry.suite.endswith("-security") or entry.suite.endswith("/updates")
    ]
    return Mirror(
        main,
        updates=any(
            entry.uri.rstrip("/") == main and entry.suite.endswith("-updates") for entry in usable
        ),
        security=security[0] if security else None,
    )


def _likeness(entry: Entry) -> int:
    """How much an entry looks like Debian's own archive; 0: not at all."""
    return (
        4 * ("debian-archive" in entry.signed_by)
        + 2 * (entry.file in _MAIN_FILES)
        + (urlsplit(entry.uri).path.rstrip("/").endswith("/debian"))
    )


def _reachable(uri: str) -> bool:
    """A plain web address: other kinds (cdrom, file, mirror lists) do not exist in a container."""
    parts = urlsplit(uri)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc


def of_host(machine: Machine, os_id: str | None) -> Mirror | None:
    """The host's own mirror where it is Debian itself; a derivative's holds other packages."""
    if os_id != "debian":
        return None
    files = ["/etc/apt/sources.list"]
    files += [f"{_FOLDER}/{name}" for name in machine.listdir(_FOLDER)]
    entries: list[Entry] = []
    for file in files:
        if not file.endswith((".list", ".sources")):
            continue
        text = machine.read(file).text or ""
        entries += (parse_deb822 if file.endswith(".sources") else parse_list)(text, file)
    return choose(entries)


def mirror_for(machine: Machine, os_id: str | None, setting: str) -> Mirror | None:
    """What the user chose, else the host's own, else None: the tools' own default."""
    if not setting:
        return of_host(machine, os_id)
    if not _reachable(setting):
        raise usage_error(
            "The package mirror is not a plain http:// or https:// address.",
            "An address with a user name or password in it would end up in the image.",
            "Give --apt-mirror an address such as http://mirror.example.org/debian.",
        )
    return Mirror(setting.rstrip("/"))

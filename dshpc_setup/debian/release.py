"""What an archive of packages says of itself (`InRelease`, once its signature is verified). Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from dshpc_setup.debian.faults import DebianError
from dshpc_setup.debian.index import fields

_AHEAD = timedelta(hours=24)  # a clock that was never set is off by more
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Listed:
    """A file of the archive's: SHA-256 in hexadecimal, and its length."""

    sha256: str
    size: int


@dataclass(frozen=True)
class Release:
    """`files`: path below the suite's folder -> what it must be."""

    suite: str
    codename: str
    date: datetime | None
    valid_until: datetime | None
    by_hash: bool
    files: Mapping[str, Listed] = field(default_factory=dict)


def parse(text: str) -> Release:
    """Of the signed text; a date or a line of a file that cannot be read is passed over."""
    told = fields(text)
    files = {}
    for line in told.get("sha256", "").splitlines():
        words = line.split()
        if (
            len(words) == 3
            and _HASH.fullmatch(words[0])
            and words[1].isascii()
            and words[1].isdigit()
        ):
            files[words[2]] = Listed(words[0], int(words[1]))
    return Release(
        told.get("suite", ""),
        told.get("codename", ""),
        _date(told.get("date", "")),
        _date(told.get("valid-until", "")),
        told.get("acquire-by-hash", "").lower() == "yes",
        files,
    )


def _date(text: str) -> datetime | None:
    import email.utils  # twenty milliseconds

    try:
        found = email.utils.parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)


def check(text: str, wanted: str, now: datetime) -> Release:
    """The release, where it is of that suite (by either name) and in force at that moment; DebianError.

    Debian's stable suite never expires; a suite that says until when it holds is believed.
    """
    found = parse(text)
    if wanted not in (found.suite, found.codename):
        raise DebianError("suite", f"It is of {found.codename or 'none'}, and {wanted} is wanted.")
    if found.date is None or found.date > now + _AHEAD:
        raise DebianError("future", f"Its date is {found.date or 'unknown'}; here it is {now}.")
    late = "valid-until" in fields(text)
    if late and (found.valid_until is None or found.valid_until < now):
        raise DebianError("expired", f"It held until {found.valid_until or 'unknown'}.")
    return found


def packages_file(release: Release, arch: str, component: str = "main") -> tuple[str, Listed]:
    """The path and the content of the list of packages; DebianError where there is none."""
    path = f"{component}/binary-{arch}/Packages.xz"
    listed = release.files.get(path)
    if listed is None:
        raise DebianError("no-index", path)
    return path, listed


def by_hash(path: str, listed: Listed) -> str:
    """The name under which a file stays where it is while the archive changes."""
    return f"{path.rpartition('/')[0]}/by-hash/SHA256/{listed.sha256}"

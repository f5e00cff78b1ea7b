"""Why uv ended as it did: its words (of 0.13), in one table. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from dshpc_setup.engine.build_failures import redacted, tail
from dshpc_setup.environment import target
from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.machine import CommandResult

_LOCK_AGAIN = Fix("Lock again", "dshpc env lock")


class Why(Enum):
    SLOW = "slow"
    DISK_FULL = "disk full"
    CACHE = "cache"
    HASH = "hash"
    CERTIFICATE = "certificate"
    LOGIN = "login"
    UNREACHABLE = "unreachable"
    NO_WHEEL = "no wheel"
    NO_PACKAGE = "no package"
    CONFLICT = "conflict"
    NO_VERSION = "no version"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class _Told:
    brief: str
    steps: tuple[str | Fix, ...]


# The first that matches counts: an index that refuses us ends in "was not found", too.
_SIGNS: tuple[tuple[str, Why], ...] = (
    (r"No space left on device|Disk quota exceeded", Why.DISK_FULL),
    (r"Failed to initialize cache", Why.CACHE),
    (r"Hash mismatch for", Why.HASH),
    (r"invalid peer certificate|certificate verify failed", Why.CERTIFICATE),
    (
        r"proxy authorization required|valid authentication credentials|\b(?:401|403|407) [A-Z]",
        Why.LOGIN,
    ),
    (
        r"dns error|client error \(Connect\)|timed out|network timeout|connection closed"
        r"|connection reset|error sending request|HTTP status server error",
        Why.UNREACHABLE,
    ),
    (r"you require \S+ and \S", Why.CONFLICT),
    (r"no wheels with a matching|no usable wheels|Wheels are required for", Why.NO_WHEEL),
    (r"was not found in the package registry|was not found in the provided", Why.NO_PACKAGE),
    (r"\bdepends? on\b", Why.CONFLICT),
    (r"there (?:is|are) no versions? of|is available and you require", Why.NO_VERSION),
    (r"No solution found", Why.CONFLICT),
)
_WORDS = {
    Why.SLOW: _Told(
        "Fetching Python packages did not finish in time",
        (
            "Check how fast the package index answers, then run again: uv keeps complete downloads "
            "in its cache.",
        ),
    ),
    Why.DISK_FULL: _Told("The disk is full", ("Free space, then run the same command again.",)),
    Why.CACHE: _Told(
        "uv cannot write its cache",
        ("Name a folder that you can write to, and run again: export UV_CACHE_DIR=DIR",),
    ),
    Why.HASH: _Told(
        "A Python package is not the one that was locked",
        (
            "The index has another file under that name. Find out why before you trust it.",
            _LOCK_AGAIN,
        ),
    ),
    Why.CERTIFICATE: _Told(
        "The certificate of the Python package index is not trusted here",
        (
            "Behind a proxy that inspects TLS, add its certificate to this machine's store "
            "(update-ca-certificates), or name the file: export SSL_CERT_FILE=FILE",
        ),
    ),
    Why.LOGIN: _Told(
        "The Python package index, or the proxy before it, refuses the login",
        (
            "Put the login into the address (HTTPS_PROXY, PIP_INDEX_URL), or into ~/.netrc.",
            "Check that the address is that of an index: PIP_INDEX_URL, or index-url of pip.conf.",
        ),
    ),
    Why.UNREACHABLE: _Told(
        "The Python package index could not be reached",
        (
            "Check the network and the proxy settings (HTTPS_PROXY).",
            "To use a mirror of your site, set PIP_INDEX_URL=URL, or index-url in pip.conf.",
        ),
    ),
    Why.NO_WHEEL: _Told(
        f"A Python package has no wheel for Python {target.PYTHON} on this processor",
        (
            "Choose another version, or leave it out: nothing is built from source here.",
            "Where Debian packages it: dshpc env add --apt python3-NAME",
        ),
    ),
    Why.NO_PACKAGE: _Told(
        "There is no such Python package on the index",
        ("Correct its name.", Fix("See what is declared", "dshpc env show", step="look")),
    ),
    Why.NO_VERSION: _Told(
        "No version of a Python package fits the declaration",
        ("Correct its version.", Fix("See what is declared", "dshpc env show", step="look")),
    ),
    Why.CONFLICT: _Told(
        "The declared Python packages contradict each other",
        ("Loosen one of the versions above.", Fix("Then lock", "dshpc env lock", step="after")),
    ),
    Why.UNKNOWN: _Told("uv could not fetch the packages", ("See its message above.",)),
}  # fmt: skip


def why(done: CommandResult) -> Why:
    """The reason; `UNKNOWN` for words that the table does not know."""
    if done.state == "timeout":
        return Why.SLOW
    return next((found for sign, found in _SIGNS if re.search(sign, done.text)), Why.UNKNOWN)


def error(done: CommandResult, secrets: tuple[str, ...]) -> DshpcError:
    """The same for people, with uv's own words."""
    told = _WORDS[why(done)]
    return DshpcError(f"{told.brief}.", redacted(tail(done.text), secrets), told.steps)

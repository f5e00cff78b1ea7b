"""Why uv ended as it did: its words (of 0.13), in one table. Pure."""

from __future__ import annotations

import re
from enum import Enum

from dshpc_setup.engine.build_failures import redacted, tail
from dshpc_setup.environment import target
from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.machine import CommandResult


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
    NO_VERSION = "no version"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"


_SHOW = Fix("See what is declared", "dshpc env show", step="look")
_LOCK_AGAIN = Fix("Lock again", "dshpc env lock")
# uv's proof that requirements exclude each other may name a missing wheel or version as a detail
_NOT_TWO = r"(?s)\A(?!.*you require \S+ and \S)"

# The first whose sign matches counts: an index that refuses us ends in "was not found", too.
_REASONS: tuple[tuple[Why, str, str, tuple[str | Fix, ...]], ...] = (
    (Why.DISK_FULL, r"No space left on device|Disk quota exceeded",
     "The disk is full",
     ("Free space, then run the same command again.",)),
    (Why.CACHE, r"Failed to initialize cache",
     "uv cannot write its cache",
     ("Name a folder that you can write to, and run again: export UV_CACHE_DIR=DIR",)),
    (Why.HASH, r"Hash mismatch for",
     "A Python package is not the one that was locked",
     ("The index has another file under that name. Find out why before you trust it.", _LOCK_AGAIN)),
    (Why.CERTIFICATE, r"invalid peer certificate|certificate verify failed",
     "The certificate of the Python package index is not trusted here",
     ("Behind a proxy that inspects TLS, add its certificate to this machine's store "
      "(update-ca-certificates), or name the file: export SSL_CERT_FILE=FILE",)),
    (Why.LOGIN, r"proxy authorization required|valid authentication credentials|\b40[137] [A-Z]",
     "The Python package index, or the proxy before it, refuses the login",
     ("Put the login into the address (HTTPS_PROXY, PIP_INDEX_URL), or into ~/.netrc.",
      "Check that the address is that of an index: PIP_INDEX_URL, or index-url of pip.conf.")),
    (Why.UNREACHABLE, r"error sending request|timed out|network timeout|HTTP status server error"
     r"|connection (?:closed|reset)",
     "The Python package index could not be reached",
     ("Check the network and the proxy settings (HTTPS_PROXY).",
      "To use a mirror of your site, set PIP_INDEX_URL=URL, or index-url in pip.conf.")),
    (Why.NO_PACKAGE, r"was not found in the p",  # package registry, provided package locations
     "There is no such Python package on the index",
     ("Correct its name.", _SHOW)),
    (Why.NO_WHEEL, rf"{_NOT_TWO}.*(?:no wheels with a matching|no usable wheels)",
     f"A Python package has no wheel for Python {target.PYTHON} on this processor",
     ("Choose another version, or leave it out: nothing is built from source here.",
      "Where Debian packages it: dshpc env add --apt python3-NAME")),
    (Why.NO_VERSION, rf"{_NOT_TWO}(?!.*\bdepends on\b)"
     r".*(?:there (?:is|are) no versions? of|is available and you require)",
     "No version of a Python package fits the declaration",
     ("Correct its version.", _SHOW)),
    (Why.CONFLICT, r"No solution found",
     "The declared Python packages contradict each other",
     ("Loosen one of the versions above.", _LOCK_AGAIN)),
    (Why.UNKNOWN, r"",
     "uv could not fetch the packages",
     ("See its message above.",)),
    (Why.SLOW, r"",
     "Fetching Python packages did not finish in time",
     ("Check how fast the package index answers, then run again: uv keeps complete downloads "
      "in its cache.",)),
)  # fmt: skip


def why(done: CommandResult) -> Why:
    """The reason; `UNKNOWN` for words that the table does not know."""
    if done.state == "timeout":
        return Why.SLOW
    return next(found for found, sign, _, _ in _REASONS if re.search(sign, done.text))


def error(done: CommandResult, secrets: tuple[str, ...], *, of_cluster: bool = True) -> DshpcError:
    """The same for people, with uv's own words. `of_cluster`: whether `dshpc env` tells what is declared."""
    reason = why(done)
    brief, steps = next((brief, steps) for found, _, brief, steps in _REASONS if found is reason)
    if not of_cluster:
        steps = tuple(step for step in steps if step not in (_SHOW, _LOCK_AGAIN))
    return DshpcError(f"{brief}.", redacted(tail(done.text), secrets), steps)

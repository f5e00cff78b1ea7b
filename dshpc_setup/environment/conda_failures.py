"""Why an environment of conda's packages could not be made, and what to do: py-rattler's words (of 0.28), in
one table. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from dshpc_setup.engine.build_failures import redacted, tail
from dshpc_setup.errors import DshpcError, Fix, usage_error
from dshpc_setup.machine import CommandResult


class Why(Enum):
    SPEC = "spec"
    CHANNEL = "channel"
    CONFLICT = "conflict"
    DISK_FULL = "disk full"
    CERTIFICATE = "certificate"
    LOGIN = "login"
    NO_CHANNEL = "no channel"
    UNREACHABLE = "unreachable"
    DAMAGED = "damaged"
    SLOW = "slow"
    UNKNOWN = "unknown"


_INSTEAD = (
    "Without conda's channels: write the Python packages into requirements.txt in another folder, or run the "
    "job in an image (dshpc run --image)."
)
_MIRROR = (
    "Where this site has a mirror: export CONDA_CHANNEL_ALIAS=URL, or channel_alias in ~/.condarc."
)

# The worker's fault, what py-rattler says, and what that is. The first that matches counts.
_REASONS: tuple[tuple[Why, str, str], ...] = (
    (Why.SPEC, r"spec", r""),
    (Why.CHANNEL, r"channel", r""),
    (Why.CONFLICT, r"conflict", r""),
    (Why.SLOW, r"slow", r""),
    (Why.DISK_FULL, r".*", r"No space left on device|Disk quota exceeded|os error (?:28|122)\b"),
    (Why.CERTIFICATE, r".*", r"invalid peer certificate|UnknownIssuer|certificate verify failed"),
    (Why.LOGIN, r".*", r"\b40[137]\b|proxy auth"),
    (Why.NO_CHANNEL, r"network", r"\b404\b|not found|No such file"),
    (Why.DAMAGED, r"install", r"(?i)hash mismatch|sha256|md5|corrupt"),
    (Why.UNREACHABLE, r".*", r"(?i)error sending request|error trying to connect|dns error|timed? ?out"),
    (Why.UNREACHABLE, r"network", r""),
    (Why.UNKNOWN, r".*", r""),
)  # fmt: skip

_WORDS: Mapping[Why, tuple[str, tuple[str | Fix, ...]]] = {
    Why.SPEC: ("A package in environment.yml is not written as conda has it",
               ("Write a name, with a version where needed: numpy, numpy=2.1, \"numpy>=2,<3\".",)),
    Why.CHANNEL: ("A channel in environment.yml is no name or address",
                  ("Write a name (conda-forge) or an address (https://HOST/CHANNEL).",)),
    Why.CONFLICT: ("The packages in environment.yml cannot be had together",
                   ("Loosen a version, correct a name, or name the channel that has it.",)),
    Why.DISK_FULL: ("The disk is full", (Fix("See what is full", "df -h", step="look"),)),
    Why.CERTIFICATE: ("The certificate of a channel is not trusted here",
                      ("Behind a proxy that inspects TLS, add its certificate to this machine's store "
                       "(update-ca-certificates), or name the file: export SSL_CERT_FILE=FILE",)),
    Why.LOGIN: ("A channel, or the proxy before it, refuses the login",
                ("Put the login into the proxy's address (HTTPS_PROXY), or the channel's into ~/.netrc.",)),
    Why.NO_CHANNEL: ("There is no such channel", ("Correct its name in environment.yml.", _MIRROR)),
    Why.UNREACHABLE: ("A channel of conda's could not be reached",
                      ("Check the network and the proxy settings (HTTPS_PROXY).", _MIRROR, _INSTEAD)),
    Why.DAMAGED: ("A package of conda's is not what its channel says",
                  ("Run the same command again. If it stays so, the channel or its mirror is damaged.",)),
    Why.SLOW: ("Choosing or fetching conda's packages did not finish in time",
               ("Name versions, which leaves less to choose from, and run the same command again: packages "
                "that have come are kept.",
                "Check the network and the proxy settings (HTTPS_PROXY): a channel may not answer.",
                _MIRROR)),
    Why.UNKNOWN: ("conda's packages could not be installed", ("See the message above.", _INSTEAD)),
}  # fmt: skip


def why(done: CommandResult, found: Mapping[str, Any]) -> Why:
    if done.state == "timeout":
        return Why.SLOW
    fault, said = str(found.get("fault", "")), str(found.get("said", done.text))
    return next(
        reason for reason, of, sign in _REASONS if re.fullmatch(of, fault) and re.search(sign, said)
    )


def error(done: CommandResult, found: Mapping[str, Any], channels: Sequence[str]) -> DshpcError:
    """The same for people, with py-rattler's own words."""
    brief, steps = _WORDS[why(done, found)]
    said = str(found.get("said") or done.text)
    tokens = [match[1] for each in channels if (match := re.search(r"/t/([^/]+)/", each))]
    return DshpcError(f"{brief}.", redacted(tail(said), tokens), steps)


def without_python() -> DshpcError:
    return usage_error(
        "environment.yml names packages of pip, and no Python for them.", "",
        "Name one under dependencies: python=3.13",
    )  # fmt: skip

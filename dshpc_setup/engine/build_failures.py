"""What a builder's output means: the progress while it runs, the reason when it fails. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

TAIL_LINES = 25
REMOVED = "removed"  # the reason that goes by itself

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def tail(text: str, lines: int = TAIL_LINES) -> str:
    """The last lines that say something, without the builder's colours."""
    plain = _COLOUR.sub("", text)
    return "\n".join([line.rstrip() for line in plain.splitlines() if line.strip()][-lines:])


def redacted(text: str, secrets: Sequence[str] = ()) -> str:
    """The text without the secrets given, and without the login part of any address."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return re.sub(r"(?<=//)[^/@\s\"']+@", "***@", text)


class Progress:
    """Turns a builder's lines into what goes on, in short: "step 3 of 9: unpacking slurmd"."""

    def __init__(self) -> None:
        self._step = ""
        self._total = 0

    def line(self, text: str) -> str | None:
        """What to show after this line, None where it says nothing new."""
        step = _STEP.search(text)
        if step:
            number, total = int(step["number"]), int(step["total"])
            # BuildKit counts each stage by itself; the last one, a copy, is shorter
            self._total = max(self._total, total)
            self._step = f"step {number} of {total}" if total == self._total else "last stage"
            return self._step
        for pattern, verb in _DOING:
            found = pattern.search(text)
            if found:
                return f"{self._step or 'building'}: {verb} {found['what']}"
        return None


# The old builder: "Step 3/9 : RUN ..."; BuildKit: "#7 [build 3/9] RUN ..." or "#7 [3/9] RUN ...".
_STEP = re.compile(r"^(?:Step (?=\d)|#\d+ \[(?:\S+ +)?\s*)(?P<number>\d+)/(?P<total>\d+)(?: :|\])")
_DOING = (
    (re.compile(r"\bGet:\d+ \S+ \S+ \S+ (?P<what>[a-z0-9][a-z0-9+.-]+) "), "fetching"),
    (re.compile(r"\bUnpacking (?P<what>[a-z0-9][a-z0-9+.-]+)"), "unpacking"),
    (re.compile(r"\bSetting up (?P<what>[a-z0-9][a-z0-9+.-]+)"), "setting up"),
)


@dataclass(frozen=True)
class Reason:
    """Why a build failed, in a few words, and what to do about it."""

    name: str
    brief: str
    steps: tuple[str, ...]


_AGAIN = "Run the same command again: what is already built is kept."

# The first that matches counts: more telling ones stand before more general ones.
_REASONS: tuple[tuple[str, Reason], ...] = (
    (
        r"no space left on device|enough free space|write error.*space",
        Reason(
            "disk-full",
            "the disk is full",
            (
                "Free space where Docker keeps its data (`docker info` names the Docker Root Dir); "
                "`docker system df` shows what takes it.",
                _AGAIN,
            ),
        ),
    ),
    (
        r"certificate|SSL connection|self[- ]signed|x509",
        Reason(
            "certificate",
            "a server's certificate was not accepted",
            (
                "Behind a proxy that inspects TLS, its certificate must be among the ones this "
                "machine trusts: install it there, or point SSL_CERT_FILE to a bundle holding it.",
                _AGAIN,
            ),
        ),
    ),
    (
        r"signal: killed|exit code:? 137|non-zero code: 137|cannot allocate memory|out of memory",
        Reason(
            "memory",
            "the machine ran out of memory",
            ("Close something, or give the Docker engine's machine more memory.", _AGAIN),
        ),
    ),
    (
        r"is not signed|NO_PUBKEY|signatures? (?:couldn't|could not) be verified|BADSIG|EXPKEYSIG",
        Reason(
            "signature",
            "the package mirror's signature could not be verified",
            ("Use a complete mirror of Debian: --apt-mirror URL.",),
        ),
    ),
    (
        r"is not valid yet|Release file .*expired|Valid-Until",
        Reason(
            "date",
            "the package mirror's index has the wrong date",
            (
                "Set this machine's clock. For a mirror of a fixed date, put "
                'Acquire::Check-Valid-Until "false"; into the host\'s apt settings.',
            ),
        ),
    ),
    (
        r"407 +proxy|proxy authentication",
        Reason(
            "proxy",
            "the proxy asks for a login",
            ("Put the login into HTTP_PROXY and HTTPS_PROXY, or into apt's proxy settings.",),
        ),
    ),
    (
        r"Temporary failure resolving|Could not resolve|no such host|Name or service not known",
        Reason(
            "dns",
            "a name could not be resolved inside the build",
            (
                "See whether names resolve in containers at all (the engine's DNS settings, "
                "/etc/docker/daemon.json), and whether a proxy is needed (HTTP_PROXY).",
                _AGAIN,
            ),
        ),
    ),
    (
        r"Unable to connect|Could not connect|Connection (?:timed out|refused|failed)"
        r"|Network is unreachable|No route to host",
        Reason(
            "network",
            "the package mirror could not be reached from inside the build",
            (
                "Check the network and the proxy settings (HTTP_PROXY, HTTPS_PROXY); "
                "--apt-mirror URL names another mirror.",
                _AGAIN,
            ),
        ),
    ),
    (
        r"Version '[^']+' for '[^']+' was not found",
        Reason(
            "locked-version",
            "the package mirror has another version of a locked package by now",
            ("Lock again: dshpc env lock", _AGAIN),
        ),
    ),
    (
        r"Unable to locate package|has no installation candidate|Unable to correct problems"
        r"|404 +Not Found|unmet dependencies",
        Reason(
            "package",
            "the package mirror lacks a package",
            (
                "The image needs Debian trixie's packages, complete and up to date: "
                "--apt-mirror URL names another mirror.",
                "With a base image of your own (--base-image), see that it is Debian trixie.",
            ),
        ),
    ),
    (
        # Step images that another build, or a prune, removed while this one was about to use them
        r"(?:unable to find image|unknown parent image ID|no such image:) [\"']?sha256:",
        Reason(
            REMOVED,
            "an image that it builds on was removed meanwhile",
            ("See whether something removes images beside it (`docker image prune`).", _AGAIN),
        ),
    ),
    (
        r"pull access denied|manifest unknown|failed to resolve source metadata"
        r"|failed to do request",
        Reason(
            "base",
            "the base image could not be found by the builder",
            (_AGAIN, "See `docker images` for the base image, and --base-image."),
        ),
    ),
)

_DAEMON = re.compile(
    r"Cannot connect to the Docker daemon|error during connect|unexpected EOF|: EOF\b"
    r"|connection reset by peer|transport is closing|closing transport|broken pipe"
    r"|graceful_stop|is the docker daemon running",
    re.IGNORECASE,
)
_DAEMON_DIED = Reason(
    "daemon",
    "the Docker engine stopped in the middle of it",
    (
        "Start it again (`systemctl start docker`), and see its log (`journalctl -u docker`) "
        "for why it ended.",
        _AGAIN,
    ),
)
_UNKNOWN = Reason("unknown", "a step of it failed", ("See the lines above for the step.", _AGAIN))


def reason(text: str) -> Reason:
    """Why a build with this output failed; the last lines count."""
    last = tail(text, 60)
    # The engine's death is told by the client in its very last words; a step may say the like.
    if _DAEMON.search(tail(text, 3)):
        return _DAEMON_DIED
    for pattern, found in _REASONS:
        if re.search(pattern, last, re.IGNORECASE):
            return found
    return _UNKNOWN

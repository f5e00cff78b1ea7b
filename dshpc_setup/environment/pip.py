"""pip on the host, told to fetch wheels for the image. It builds nothing and installs nothing."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dshpc_setup.engine.build_failures import redacted, tail
from dshpc_setup.engine.site import SiteFiles
from dshpc_setup.environment import target
from dshpc_setup.environment.model import Requirement
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import CommandResult, Machine
from dshpc_setup.machine.silence import no_answer

_ASK_S = 120.0  # its import takes seconds where the disk is cold
_FETCH_S = 6 * 3600.0  # PyTorch's 3 GB on a slow line; where nothing comes, pip gives up by itself
_OLD = 3  # what our program ends with where this pip cannot be told its target

# `pip download --platform` chooses files by the target, and yet evaluates environment markers of the
# machine that it runs on: a Mac would leave out what torch needs on Linux.
_PROGRAM = """
import json, sys
from pip._vendor.packaging import markers
target = json.loads(sys.argv.pop(1))
markers.default_environment = lambda: dict(target)
if markers.Marker("python_full_version == '0.1'").evaluate() or not markers.Marker(
    "python_full_version == '%s'" % target["python_full_version"]
).evaluate():
    sys.exit(3)
from pip._internal.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@dataclass(frozen=True)
class Pip:
    """A Python that has pip, and what it needs from this site."""

    python: str
    architecture: str
    env: Mapping[str, str]
    secrets: tuple[str, ...] = ()


def find(machine: Machine, architecture: str, site: SiteFiles, scratch: Path) -> Pip:
    """The host's pip. `scratch`: an empty folder, in which it is run and the certificates lie."""
    env = {"PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1",
           "PIP_NO_INPUT": "1", "LC_ALL": "C"}  # fmt: skip
    if site.ca_pem and not any(map(machine.env.get, ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"))):
        bundle = scratch.with_name(f"{scratch.name}-ca.pem")
        bundle.write_text(site.ca_pem, encoding="utf-8")
        env["REQUESTS_CA_BUNDLE"] = str(bundle)  # gives way to what pip itself is configured to
    late: CommandResult | None = None
    for python in dict.fromkeys((sys.executable, "python3", "/usr/bin/python3")):
        # Python imports from the folder that it is started in, and we may stand where jobs write
        imports = [python, "-c", "import pip._vendor.packaging"]
        asked = machine.run(imports, deadline_s=_ASK_S, cwd=str(scratch))
        if asked.ok:
            return Pip(python, architecture, env, site.secrets)
        late = asked if asked.state == "timeout" else late
    if late is not None:
        raise no_answer(late, "whether it has pip")
    raise DshpcError(
        "Locking and fetching Python packages needs pip on this machine, and there is none.",
        "Looked for it in the Python of dsHPC itself, and in python3.",
        ("Install it (Debian, Ubuntu: apt install python3-pip; others: python3 -m ensurepip).",),
    )


def argv(pip: Pip, into: Path, wanted: Iterable[Requirement]) -> list[str]:
    """The call that fetches the packages and all that they need; no word of them is an option."""
    return [*_fetching(pip, into), "--", *map(str, wanted)]


def argv_locked(pip: Pip, into: Path, file: Path) -> list[str]:
    """The call that fetches what a file with hashes names, and nothing else."""
    return [*_fetching(pip, into), "--no-deps", "--require-hashes", "--requirement", str(file)]


def _fetching(pip: Pip, into: Path) -> list[str]:
    told = json.dumps(target.markers(pip.architecture), sort_keys=True)
    return [
        *(pip.python, "-c", _PROGRAM, told, "download", "--progress-bar=off"),
        *target.options(pip.architecture),
        *("--dest", str(into)),
    ]


def fetch(
    machine: Machine,
    pip: Pip,
    call: Sequence[str],
    cwd: Path,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Run one of these calls; raises DshpcError with the reason in plain words."""

    def show(line: str) -> None:
        found = re.match(r"\s*(Collecting|Downloading) (\S+)(?: (\([0-9.]+ [kMG]?B\)))?", line)
        if found:
            size = f" {found[3]}" if found[3] else ""
            say(f"packages: {found[1].lower()} {found[2].rpartition('/')[2]}{size}")

    done = machine.run(call, deadline_s=_FETCH_S, env=pip.env, cwd=str(cwd), on_line=show)
    if done.ok:
        return
    if done.code == _OLD:
        raise DshpcError(
            f"The pip of {pip.python} cannot be told for which machine it chooses packages.",
            redacted(tail(done.text), pip.secrets),
            (f"Bring it up to date: {pip.python} -m pip install --upgrade pip",),
        )
    error = failure(done, pip)
    missing = re.search(r"No matching distribution found for ([A-Za-z0-9._-]+)", done.text)
    if missing and _reason(done) is _NO_SUCH_PACKAGE:
        raise _missing(machine, pip, missing[1], error, cwd)
    raise error


def _missing(machine: Machine, pip: Pip, name: str, error: DshpcError, cwd: Path) -> DshpcError:
    """No such package, or no wheel: the index knows which."""
    asked = [pip.python, "-m", "pip", "index", "versions", "--", name]
    known = machine.run(asked, deadline_s=_ASK_S, env=pip.env, cwd=str(cwd))
    if known.state == "timeout":
        return error
    if not known.ok:
        return replace(error, brief=f"There is no Python package {name} on the index.")
    listed = re.search(r"^Available versions: (.{1,120})", known.stdout, re.MULTILINE)
    return DshpcError(
        f"No version of {name} that fits the declaration has a wheel for Python "
        f"{target.PYTHON} on {pip.architecture}.",
        f"{error.details}\nOn the index, with wheels or without: {listed[1] if listed else name}",
        (
            "Choose another version, or leave it out: nothing is built from source here.",
            "Where Debian packages it: dshpc env add --apt python3-NAME",
        ),
    )


# Lines of pip about what goes well
_ROUTINE = re.compile(
    r"\s*(Looking in|Processing|Collecting|Downloading|Using cached|Saved|Obtaining|INFO:"
    r"|WARNING: Location)"
)

_RETRY = re.compile(r"WARNING: Retrying \(")

_NO_SUCH_PACKAGE = (
    r"No matching distribution found",
    "There is no Python package that fits",
    ("Correct its name or its version.", "See what is declared: dshpc env show"),
)
# The first that matches counts: a network that fails ends in "No matching distribution" as well.
_REASONS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        r"CERTIFICATE_VERIFY_FAILED|SSLError|SSLCertVerificationError",
        "The certificate of the Python package index is not trusted here",
        (
            "A proxy that looks into TLS needs its certificate in this machine's store "
            "(update-ca-certificates), or pip told of it: PIP_CERT=FILE.",
        ),
    ),
    (
        r"Name or service not known|Temporary failure in name resolution|getaddrinfo failed"
        r"|NameResolutionError|Failed to establish a new connection|Max retries exceeded"
        r"|Network is unreachable|ReadTimeout|Connection refused|ProxyError|ConnectTimeout",
        "The Python package index could not be reached",
        (
            "Check the network and the proxy settings (HTTPS_PROXY).",
            "A mirror of your site is named to pip: PIP_INDEX_URL=URL, or its pip.conf.",
        ),
    ),
    (
        r"No space left on device",
        "The disk is full",
        ("Make room, then run the same command again.",),
    ),
    (
        r"DO NOT MATCH THE HASHES|Hashes are required",
        "A Python package is not the one that was locked",
        (
            "The index has another file under that name. See why before you trust it.",
            "Lock anew: dshpc env lock",
        ),
    ),
    (
        r"ResolutionImpossible|conflicting dependencies",
        "The Python packages that are declared contradict each other",
        ("Loosen one of the versions above, then: dshpc env lock",),
    ),
    _NO_SUCH_PACKAGE,
)


def failure(done: CommandResult, pip: Pip) -> DshpcError:
    """Why pip ended as it did."""
    told = _once([line for line in done.text.splitlines() if not _ROUTINE.match(line)])
    text = redacted(tail("\n".join(told)), pip.secrets)
    if done.state == "timeout":
        return DshpcError(
            f"Fetching Python packages was not done within {_FETCH_S / 3600:.0f} hours.",
            text,
            (
                "See how fast the package index answers, then run again: pip keeps in its cache what "
                "has come whole.",
            ),
        )
    reason = _reason(done)
    if reason is None:
        return DshpcError("pip could not fetch the packages.", text, ("See its words above.",))
    _, brief, steps = reason
    return DshpcError(f"{brief}.", text, steps)


def _reason(done: CommandResult) -> tuple[str, str, tuple[str, ...]] | None:
    """The first of the reasons that pip's words fit; None for another, and where it hung."""
    if done.state == "timeout":
        return None
    return next((reason for reason in _REASONS if re.search(reason[0], done.text)), None)


def _once(lines: Sequence[str]) -> list[str]:
    """pip says why at each of its retries: the last one is enough, without the objects of its code."""
    retries = [at for at, line in enumerate(lines) if _RETRY.search(line)]
    kept = [line for at, line in enumerate(lines) if at not in retries[:-1]]
    return [re.sub(r"<[\w.]+ object at 0x[0-9a-f]+>: ", "", line) for line in kept]

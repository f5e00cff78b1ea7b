"""Docker, its compose tool and builder; the vendors' container toolkits are in toolkit.py."""

from __future__ import annotations

from dataclasses import replace

from dshpc_setup import remedies
from dshpc_setup.diagnose import toolkit
from dshpc_setup.diagnose.common import answered
from dshpc_setup.diagnose.engine_state import CHECKS as STATE
from dshpc_setup.diagnose.engine_state import COMMAND, others
from dshpc_setup.diagnose.model import (
    Check,
    CheckInput,
    Verdict,
    fault,
    fine,
    not_here,
    note,
    unknown,
    warning,
)
from dshpc_setup.diagnose.proof import from_proof
from dshpc_setup.diagnose.ways import foreseen, tested
from dshpc_setup.errors import DshpcError, Fix, configure
from dshpc_setup.passthrough import findings
from dshpc_setup.render.gpu_stanza import gpu_stanza
from dshpc_setup.versions import at_least, numbers

OLDEST = "20.10"  # the first Docker with cgroup v2 and cgroup namespaces (docker/docs, pull request 11042)
_BUILDX_SINCE = "23.0"  # docker build is buildx from there on (docker/cli, pull request 3314)
_WARN_MIB, _FAULT_MIB = 5 * 1024, 1024  # an image of a cluster takes some GiB
_FEW_INODES = 10_000


def _compose(known: CheckInput) -> Verdict:
    compose = known.facts.engine.compose
    if compose is not None:
        return fine(f"{' '.join(compose.argv)} {compose.version}")
    if known.facts.engine.state == "unsupported":
        return not_here("The engine is outside of this container.")
    if late := known.facts.late("compose"):
        return unknown(
            "Compose did not answer in time; whether it is installed is not known.",
            *map(answered, late),
        )
    return fault(
        "Neither compose v2 nor v1 is installed.",
        *(answered(item) for item in known.facts.evidence if item.probe == "compose"),
        fix=(
            configure("Set it up, which installs it"),
            *remedies.compose_v2(known.facts),
        ),
    )


def _compose_for_gpus(known: CheckInput) -> Verdict:
    """Whether this compose can write down the way by which the GPUs come."""
    compose = known.facts.engine.compose
    found = tested(known) or foreseen(known)
    if compose is None or found is None or not found.works:
        return from_proof(findings.COMPOSE_TOO_OLD)(known)
    try:
        gpu_stanza(found.handover, compose.version)
    except DshpcError as error:
        return fault(f"{error.brief} {error.details}", fix=remedies.compose_v2(known.facts))
    return fine(compose.version)


def _compose_v1(known: CheckInput) -> Verdict:
    composes = known.facts.engine.composes
    if not composes or any(item.major > 1 for item in composes):
        return fine(*(item.version for item in composes))
    return _as_told(
        "Compose is of version 1",
        "Compose v1 works, and has had no updates since July 2023.",
        f"{' '.join(composes[0].argv)} {composes[0].version}",
        fix=remedies.compose_v2(known.facts),
    )


def _buildx(known: CheckInput) -> Verdict:
    engine = known.facts.engine
    if engine.buildx is not None or engine.kind == "podman":
        return fine(*filter(None, (engine.buildx,)))
    if not at_least(engine.server_version, _BUILDX_SINCE):
        return fine("the client builds by itself")
    if late := known.facts.late("buildx"):
        return unknown("buildx did not answer in time.", *map(answered, late))
    return _as_told(
        "buildx is missing",
        "The plugin buildx is not installed. A docker client of 23.0 or newer builds images with its old "
        "builder then: that works, and Docker means to remove it.",
        fix=(Fix("Install buildx (the package docker-buildx or docker-buildx-plugin)"),),
    )


def _age(known: CheckInput) -> Verdict:
    engine = known.facts.engine
    version = engine.server_version
    if (
        engine.kind in ("podman", "builtin")
        or numbers(version) is None
        or at_least(version, OLDEST)
    ):
        return fine(*filter(None, (version,)))
    return warning(
        f"Docker {version} is older than {OLDEST}, the first that has cgroup v2 and cgroup namespaces: "
        "what Slurm wants of the container may not be there, and no security update is made any more.",
        fix=remedies.newer_docker(known.facts, OLDEST),
    )


def _chosen(known: CheckInput) -> Verdict:
    """Which of several engines is spoken with, and by whose word."""
    engine = known.facts.engine
    if engine.by_command:  # which the project's settings name
        return fine("podman")
    unchosen = others(known)
    context = engine.context if engine.context not in (None, "default") else None
    told = known.endpoint or context
    if told is None and not unchosen:
        return fine(*filter(None, (engine.host,)))
    where = known.endpoint or engine.host or "an endpoint that is not known"
    by = f"the docker context {context}" if context else "DOCKER_HOST or a docker context"
    cause = (
        f"All of dshpc speaks with the engine at {where}, which {by} names."
        if told is not None
        else f"There is another engine than the one at {where}, which was asked."
    )
    see = Fix(
        "See which engines your client knows, and which it uses", "docker context ls", step="look"
    )
    return _as_told(
        "Another engine is chosen" if told else "Another engine is here",
        cause,
        *unchosen,
        fix=(see,),
    )


def _as_told(title: str, cause: str, *evidence: str, fix: tuple[Fix, ...] = ()) -> Verdict:
    """A note whose title says what was met, not what would be better."""
    return replace(note(cause, *evidence, fix=fix), title=title)


def _disk(known: CheckInput) -> Verdict:
    disk = next((item for item in known.observed.disks if item.what == "engine"), None)
    if disk is None:
        return unknown("The disk on which the engine keeps its data was not looked at.")
    left = f"{disk.free_mib / 1024:.1f} of {disk.size_mib / 1024:.1f} GiB are free at {disk.path}"
    few = disk.free_inodes is not None and disk.free_inodes < _FEW_INODES
    seen = (left, *((f"{disk.free_inodes} more files can be made there",) if few else ()))
    fix = remedies.free_space(known.facts)
    if disk.free_mib < _FAULT_MIB:
        return fault(
            "No space is left for images and containers: builds and starts fail with "
            '"no space left on device".',
            *seen,
            fix=fix,
        )
    if disk.free_mib < _WARN_MIB:
        return warning("It will be full soon: an image takes some GiB.", *seen, fix=fix)
    if not few:
        return fine(*seen)
    cause = (
        "It has room, but hardly a file more can be made there: its inodes are used up. An image has "
        'thousands of files, and Docker calls this "no space left on device" too.'
    )
    return warning(cause, *seen, fix=fix)


_NEEDED = ("DSH-DK-001",)

CHECKS: tuple[Check, ...] = (
    *STATE,
    Check("DSH-DK-082", "engine", "One engine is here, and nothing points elsewhere",
          "Another engine is chosen", _chosen),
    Check("DSH-DK-083", "engine", "The engine is new enough", "The Docker engine is too old", _age,
          needs=_NEEDED),
    Check("DSH-DK-081", "engine", "The engine's disk has room", "The engine's disk is nearly full",
          _disk),
    Check(findings.DISK_FULL, "engine", "The engine can write to its disk",
          findings.TITLES[findings.DISK_FULL], from_proof(findings.DISK_FULL),
          needs=_NEEDED, because=("DSH-DK-081",)),
    Check("DSH-DK-002", "engine", "Docker Compose is there", "Docker Compose is missing", _compose,
          needs=(*_NEEDED, COMMAND)),
    Check("DSH-DK-084", "engine", "Compose is of version 2", "Compose is of version 1", _compose_v1,
          needs=("DSH-DK-002",)),
    Check(findings.COMPOSE_TOO_OLD, "engine", "Compose can hand over the GPUs",
          findings.TITLES[findings.COMPOSE_TOO_OLD], _compose_for_gpus,
          needs=("DSH-DK-002",)),
    Check("DSH-DK-085", "engine", "Images are built with BuildKit", "buildx is missing", _buildx,
          needs=(*_NEEDED, COMMAND)),
    *toolkit.CHECKS,
)  # fmt: skip

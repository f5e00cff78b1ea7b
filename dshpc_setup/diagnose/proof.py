"""Checks whose words are those of the test-run: one maker for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from dshpc_setup import gpu_vendors
from dshpc_setup.diagnose.model import (
    CheckInput,
    Verdict,
    fault,
    fine,
    not_here,
    note,
    unknown,
    warning,
)
from dshpc_setup.diagnose.ways import foreseen, is_likely, tested, why_none
from dshpc_setup.errors import Fix
from dshpc_setup.facts import Engine
from dshpc_setup.passthrough import Attempt, Passthrough, findings

if TYPE_CHECKING:
    from dshpc_setup.passthrough.driver_files import DriverFiles

_LACKS: Mapping[str, str] = {
    "absent": "not found",
    "version-mismatch": "{lack.place} is of driver {lack.version}, and {lack.running} runs",
    "unreadable": "{lack.place} may not be read",
    "other-driver": "a driver whose files are not known",
}
_LINES = 6  # of what the engine said: the whole text stands in the project's folder

_AGAIN = Fix("Then test again", "dshpc passthrough", step="after")
_ANOTHER_IMAGE = Fix(
    "Choose an image of Debian or Ubuntu as base_image in dshpc.yaml, or none: the default is one"
)
NEXT: Mapping[str, tuple[Fix, ...]] = {
    findings.OTHER_GPUS: (Fix("See which GPUs there are", "dshpc gpus", step="look"), _AGAIN),
    findings.MORE_GPUS: (Fix("See which GPUs there are", "dshpc gpus", step="look"), _AGAIN),
    findings.UNKNOWN_GPU: (Fix("See which GPUs there are", "dshpc gpus", step="look"), _AGAIN),
    findings.NODE_DOES_NOT_OPEN: (
        Fix("See what the kernel says of it", "sudo dmesg | tail -n 50", step="look"),
    ),
    findings.NO_NODE: (
        Fix(
            "See which device nodes there are", "ls -l /dev/dri /dev/kfd /dev/nvidia*", step="look"
        ),
    ),
    findings.NO_MOUNT_SOURCE: (
        Fix(
            "See how to find its package, and put that file back",
            f"dshpc explain {findings.NO_MOUNT_SOURCE}",
            step="look",
        ),
        _AGAIN,
    ),
    findings.IMAGE_WITHOUT_SHELL: (_ANOTHER_IMAGE,),
    findings.IMAGE_WITHOUT_GLIBC: (_ANOTHER_IMAGE,),
    findings.DESKTOP_CDI: (Fix("Test whether --gpus, its own way, works", "dshpc passthrough"),),
}
"""What to do next where the test-run itself knows of no step."""

Look = Callable[[CheckInput], Verdict]


def from_proof(identity: str) -> Look:
    """What the test-run of this machine as it is now says of one finding.

    A mechanism that was refused for this cause is a fault where none works, else worth knowing; so is
    one that cannot be had, unless another one was tried and is to be fixed first.
    """

    def look(known: CheckInput) -> Verdict:
        if (nothing := why_none(known)) is not None:
            return not_here(_sentence(nothing))
        found = tested(known)
        if found is None:
            return unknown("GPUs in containers were not tested on this machine as it is now.")
        return _told(found, identity) or fine()

    return look


def from_files(identity: str) -> Look:
    """The same where the built-in engine binds the driver's files: its own search tells it as well."""
    by_test, by_search = from_proof(identity), from_facts(identity)

    def look(known: CheckInput) -> Verdict:
        if known.driver_files is None:
            return by_test(known)
        found = by_search(known)
        if found.state == "skipped":
            return found
        return replace(found, evidence=(*found.evidence, *searched(known.driver_files)))

    return look


def searched(found: DriverFiles) -> tuple[str, ...]:
    """Which of a driver's files were found, by what, and which were not."""
    lacks = [f"{lack.name}: {_LACKS[lack.kind].format(lack=lack)}" for lack in found.missing]
    nodes = [f"{node.path}: {node.state}" for node in found.nodes if node.state != "present"]
    return (*lacks, *nodes, *(f"{file.source}, by {file.by}" for file in found.files))


def from_facts(identity: str) -> Look:
    """The same where the facts of the machine can tell it as well: these are taken without a test-run."""
    by_test = from_proof(identity)

    def look(known: CheckInput) -> Verdict:
        found = foreseen(known) if tested(known) is None else None
        if found is None:
            return by_test(known)
        row = _row(found, identity)
        if row is None:
            return fine()
        verdict = _of_row(found, row)
        read = _read(known.facts.engine)
        likely = is_likely(identity, known.facts, found)
        if likely and (found.works or verdict.state == "error"):
            return warning(verdict.cause, *read, fix=row.fix)
        return replace(verdict, evidence=read) if verdict.state == "error" else verdict

    return look


def _told(found: Passthrough, identity: str) -> Verdict | None:
    """None where this finding is in none of the rows and warnings."""
    row = _row(found, identity)
    if row is not None:
        return _of_row(found, row)
    told = next((cause for cause in found.warnings if cause.finding == identity), None)
    return None if told is None else warning(_sentence(told.says), fix=told.fix)


def _row(found: Passthrough, identity: str) -> Attempt | None:
    """The one that was tried, before one that was not."""
    rows = [row for row in found.attempts if row.finding == identity]
    return min(rows, key=lambda row: row.state != "fails", default=None)


def _of_row(found: Passthrough, row: Attempt) -> Verdict:
    cause = _sentence(f"{row.way}: {row.reason}")
    lines = [line for text in row.evidence for line in text.splitlines() if line.strip()]
    said = lines[-_LINES:]
    first = found.to_fix
    if first is not None and (row.state == "fails" or row.finding == first.finding):
        return fault(cause, *said, fix=row.fix or NEXT.get(row.finding or "", ()))
    if found.works:
        cause = f"{cause} GPUs {_by(found)} {found.handover.way}."
    title = findings.TITLES.get(row.finding or "")
    return replace(note(cause, *said), title=title)


def _read(engine: Engine) -> tuple[str, ...]:
    """What the facts say of the engine, the toolkits and CDI: the grounds of what was foreseen."""
    kind = f"{engine.kind or 'engine'} {engine.server_version} at {engine.host}"
    lines = {
        "engine": f"{kind}{', rootless' if engine.rootless else ''}",
        "its runtimes": ", ".join(engine.runtimes),
        "runtimes of daemon.json": ", ".join(engine.registered),
        "changed since it started": ", ".join(engine.newer),
        "CDI specifications": ", ".join(f"{spec.path} ({spec.state})" for spec in engine.cdi_specs),
    }
    for told in engine.toolkits:
        version = told.version or (
            "of an unknown version" if told.state == "present" else told.state
        )
        lines[gpu_vendors.of(told.vendor).toolkit_label] = version
    return tuple(f"{name}: {said}" for name, said in lines.items() if said)


def _by(found: Passthrough) -> str:
    proven = any(row.state == "works" for row in found.attempts)
    return "reach containers by" if proven else "may reach containers by"


def _sentence(text: str) -> str:
    """With a capital letter and a full stop; a name such as --gpus or nvidia-ctk keeps its own."""
    text = text.rstrip(".")
    first = text.split(" ")[0]
    return f"{text[:1].upper() + text[1:] if first.isalpha() else text}."

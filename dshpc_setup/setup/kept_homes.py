"""What the cluster's volume keeps of users' homes, copied into their own as these take its place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dshpc_setup.cluster.stopping import RunningJob, running_jobs
from dshpc_setup.documents import foreign
from dshpc_setup.engine import containers, privilege
from dshpc_setup.machine import Machine
from dshpc_setup.terminal.reporter import Reporter
from dshpc_setup.terminal.sanitize import counted, listed, plain

_ASK_S = 60.0
_COPY_S = 1800.0  # for each user
_NAMED = 4
_WHY = {
    "elsewhere": "no home of theirs on this machine is in a folder that the cluster sees",
    "missing": "their home is not there",
    "not his": "their home belongs to another user, as the cluster sees it",
}


def copied(machine: Machine, container: str, reporter: Reporter) -> list[str]:
    """A sentence for each user of whom something is kept: where it lies now. Raises DshpcError where the
    cluster cannot be asked."""
    asked = containers.exec_in(
        machine, container, ("dshpc-node", "homes", "kept"), deadline_s=_ASK_S
    )
    if not asked.ok:
        why = plain(asked.stderr.strip() or f"it ended with {asked.code} ({asked.state})")
        return [
            f"It is not known what the cluster keeps of users' homes, and nothing was copied: {why}. Whoever "
            "has files there keeps using them. Run configure-environment again."
        ]
    kept = _objects(asked.stdout)
    if not kept:
        return []
    pairs = []
    for each in kept:
        reporter.note(f"Kept of {_of(each)}: {_size(each)} in {plain(str(each.get('folder')))}")
        entry = privilege.user(machine, int(each["uid"]))
        if entry is not None and ":" not in entry.home:
            pairs.append(f"{entry.uid}={entry.home}")
    reporter.progress("copying what is kept of users into their homes")
    done = containers.exec_in(
        machine,
        container,
        ("dshpc-node", "homes", "copy", *pairs),
        deadline_s=_COPY_S * len(kept),
        on_line=lambda _: None,
    )
    answers = {each["kept"]["uid"]: each for each in _objects(done.stdout) if "kept" in each}
    jobs = running_jobs(machine, container) or ()
    return [_told(each, answers.get(each["uid"]), jobs) for each in kept]


def _told(kept: dict[str, Any], answer: dict[str, Any] | None, jobs: Iterable[RunningJob]) -> str:
    whose = f"Of {_of(kept)}, {_size(kept)}"
    if answer is not None and answer["to"]:
        told = (
            f"{whose} are copied from the cluster's volume to {plain(str(answer['to']))}; the volume keeps "
            "them, too."
        )
        # Those that were requeued begin as soon as Slurm is up
        begun = tuple(f"job {job.id}" for job in jobs if job.user == kept.get("name"))
        if begun:
            told += (
                f" What {listed(begun, most=_NAMED)}, started before, leaves in $HOME stays in the volume: "
                f"{plain(str(kept.get('folder')))} in the container."
            )
        return told
    told = str(answer["why"]) if answer is not None else "the cluster did not say how it went"
    return f"{whose} stay in the cluster's volume, with $HOME of their jobs: {plain(_WHY.get(told, told))}."


def _of(kept: dict[str, Any]) -> str:
    return plain(str(kept.get("name")))


def _size(kept: dict[str, Any]) -> str:
    return f"{counted(int(kept['files']), 'file')} ({int(kept['bytes']) / 1e6:.1f} MB)"


def _objects(text: str) -> list[dict[str, Any]]:
    found = (foreign.value(line) for line in text.splitlines() if line.startswith("{"))
    return [each for each in found if isinstance(each, dict)]

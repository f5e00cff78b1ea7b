"""What the cluster's volume keeps of users' homes, copied into their own as these take its place."""

from __future__ import annotations

from typing import Any

from dshpc_setup.documents import foreign
from dshpc_setup.engine import containers, privilege
from dshpc_setup.machine import Machine
from dshpc_setup.terminal.reporter import Reporter
from dshpc_setup.terminal.sanitize import counted, plain

_ASK_S = 60.0
_COPY_S = 1800.0  # for each user
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
    return [_told(each, answers.get(each["uid"])) for each in kept]


def _told(kept: dict[str, Any], answer: dict[str, Any] | None) -> str:
    whose = f"Of {_of(kept)}, {_size(kept)}"
    if answer is not None and answer["to"]:
        return (
            f"{whose} are copied from the cluster's volume to {plain(str(answer['to']))}; the volume keeps "
            "them, too."
        )
    told = str(answer["why"]) if answer is not None else "the cluster did not say how it went"
    return f"{whose} stay in the cluster's volume, with $HOME of their jobs: {plain(_WHY.get(told, told))}."


def _of(kept: dict[str, Any]) -> str:
    return plain(str(kept.get("name")))


def _size(kept: dict[str, Any]) -> str:
    return f"{counted(int(kept['files']), 'file')} ({int(kept['bytes']) / 1e6:.1f} MB)"


def _objects(text: str) -> list[dict[str, Any]]:
    found = (foreign.value(line) for line in text.splitlines() if line.startswith("{"))
    return [each for each in found if isinstance(each, dict)]

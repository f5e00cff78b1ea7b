"""What a job of a workflow's file requires: which jobs, and whose results it can read by which name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dshpc_setup.documents.shown import Path, shown
from dshpc_setup.methods.model import Method
from dshpc_setup.methods.structure import Wrong, nearest
from dshpc_setup.workflows import graph
from dshpc_setup.workflows.model import Need


def read(name: str, given: Any, there: Sequence[str]) -> tuple[tuple[Need, ...], list[Wrong]]:
    """What of the job's `requires` is right, and what is wrong with it; `there` are all jobs."""
    path: Path = ("jobs", name, "requires")
    needs: dict[str, Need] = {}
    wrong: list[Wrong] = []
    for at, item in enumerate(given if isinstance(given, list) else ()):
        pairs = {item: "COMPLETED"} if isinstance(item, str) else item
        if not isinstance(pairs, dict):
            continue
        for other, ending in pairs.items():
            said = _need(name, other, there, needs)
            if said:
                wrong.append(Wrong((*path, at), *said))
            elif ending in ("COMPLETED", "FAILED", "FINISHED"):
                needs[other] = Need(other, ending)
    return tuple(needs.values()), wrong


def _need(
    name: str, other: str, there: Sequence[str], needs: Mapping[str, Need]
) -> tuple[str, str] | None:
    if other not in there:
        near = nearest(other, [each for each in there if each != name])
        right = f"Did you mean {near}?" if near else f"There are: {', '.join(there)}."
        return f"There is no job {shown(other)}.", right
    if other in needs:
        return f"It names {shown(other)} twice.", "Name it once."
    return None


def results(
    method: Method | None, needs: Sequence[Need], jobs: Mapping[str, Any], path: Path
) -> Iterator[Wrong]:
    """That each name in its REQUIRES_FILE stands for one result, and that what its method reads is
    there."""
    there = {
        need.job: jobs[need.job].get("method") for need in needs if isinstance(jobs[need.job], dict)
    }
    at: Path = (*path, "requires")
    for job, ran in there.items():
        other = next((each for each, its in there.items() if its == job and each != job), None)
        if other is not None and ran != job:
            what = f"{job} would be the result of the job {job}, and that of the method {job}, "
            yield Wrong(at, f"{what}which the job {other} runs.", f"Call the job {job} otherwise.")
        elif other is not None:
            what = f"{job} would be the result of the job {job}, and the jobs {job} and {other} "
            yield Wrong(at, f"{what}run the method {job}.", f"Call the job {job} otherwise.")
    for name in method.requires if method else ():
        reader = f"The method {method.name if method else ''} reads the result of the method {name}"
        by = [job for job, its in there.items() if its == name]
        if not by:
            yield Wrong(path, f"{reader}.", f"Require a job with method: {name}.")
        elif len(by) > 1:
            yield Wrong(at, f"{reader}, which {' and '.join(by)} run.", "Require one of them.")


def circles(needs: Mapping[str, Sequence[str]]) -> Iterator[Wrong]:
    """That no job waits for itself in the end."""
    way = graph.circle(needs)
    if way:
        what = f"The jobs wait for each other in a circle: {' -> '.join(way)}."
        yield Wrong(("jobs", way[0], "requires"), what, "One of them must do without.")

"""Which nodes `dshpc node add` has made, and by which way of ssh: so that they can be reached once more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from dshpc_setup import codec
from dshpc_setup.project.folder import ADDED, Project


@dataclass(frozen=True)
class Way:
    """As it was typed: [USER@]HOST, the folder there, the port of its ssh server."""

    host: str
    folder: str
    port: int | None = None


def read(project: Project) -> Mapping[str, Way]:
    """By node; what cannot be read is left out."""
    found = {}
    for node, value in project.read_note(ADDED).items():
        try:
            found[node] = codec.from_json(Way, value)
        except ValueError:
            continue
    return found


def remember(project: Project, node: str, way: Way) -> None:
    _write(project, {**read(project), node: way})


def forget(project: Project, node: str) -> None:
    known = read(project)
    if node in known:
        _write(project, {name: way for name, way in known.items() if name != node})


def _write(project: Project, ways: Mapping[str, Way]) -> None:
    project.write_json(ADDED, {node: asdict(way) for node, way in ways.items()})

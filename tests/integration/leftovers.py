"""What the tests have made on the engines and must not leave, in whatever midst they end.

A fixture removes what is its own. One that is interrupted while it makes something has not come so far:
what it has named here is looked for when all is over (conftest.py).
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from dshpc_setup.builtin import ports
from tests.integration.engines import BUILTIN, DOCKER, Engine

_PREFIXES: set[tuple[Engine, str]] = set()
_VOLUMES = ("state", "key", "home")
_FORCED = {
    "container": ("rm", "-f", "-v"),
    "volume": ("volume", "rm", "-f"),
    "image": ("rmi", "-f"),
}


def remember(prefix: str, engine: Engine = DOCKER) -> None:
    """A container or a cluster of this name; its volumes and its network are called after it."""
    _PREFIXES.add((engine, prefix))


def remove_leftovers(cache: str) -> list[str]:
    """What was still there, and is no more. Nor are images of that name, which the tests share."""
    found = []
    for engine in {engine for engine, _ in _PREFIXES}:
        with contextlib.suppress(AssertionError):  # of an engine that is gone, nothing is left
            mine = {prefix for one, prefix in _PREFIXES if one == engine}
            found += _left(engine, mine)
            _remove(
                engine,
                "image",
                {name for name in engine.names("image") if name.startswith(f"{cache}:")},
            )
    return found


def _left(engine: Engine, mine: set[str]) -> list[str]:
    found = [
        *_remove(engine, "container", {name for each in mine for name in (each, f"{each}-slurm")}),
        *_remove(engine, "volume", {f"{each}-{part}" for each in mine for part in _VOLUMES}),
        *_remove(engine, "network", {f"{each}_default" for each in mine}),
    ]
    return found + [name for each in mine for name in forget_ports(engine, each)]


def _remove(engine: Engine, kind: str, mine: set[str]) -> list[str]:
    there = sorted(mine & set(engine.names(kind)))
    if there:
        engine.run(*_FORCED.get(kind, (kind, "rm")), *there)
    return there


def forget_ports(engine: Engine, prefix: str) -> list[str]:
    """The built-in engine keeps some for each cluster, and cannot know that a folder is gone for good."""
    file = ports.registry(os.environ)
    mine = kept_ports(prefix) if engine == BUILTIN else []
    for cluster in mine:
        ports.forget(file, cluster)
    return mine


def kept_ports(prefix: str) -> list[str]:
    """The clusters of that prefix that it keeps ports for."""
    try:
        clusters = json.loads(ports.registry(os.environ).read_text())["clusters"]
    except FileNotFoundError:
        return []
    return [name for name in clusters if name.endswith(f":{prefix}")]


def processes_of(folder: Path) -> list[str]:
    """The command lines of those that have that folder in theirs or in DSHPC_DIR, work there, or have a file
    open there."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
            env = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            told = [line, *(each + b"/" for each in env if each.startswith(b"DSHPC_DIR="))]
            told += [os.fsencode(f"{at}/") for at in _places(pid)]
            if any(os.fsencode(f"{folder}/") in each for each in told):
                found.append(line.replace(b"\0", b" ").decode(errors="replace"))
    return found


def _places(pid: str) -> Iterator[str]:
    """Where it works, and the files that it has open."""
    for name in (
        f"/proc/{pid}/cwd",
        *(f"/proc/{pid}/fd/{fd}" for fd in os.listdir(f"/proc/{pid}/fd")),
    ):
        with contextlib.suppress(OSError):
            yield os.readlink(name).removesuffix(" (deleted)")

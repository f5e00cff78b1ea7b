"""What the tests have made on the engine and must not leave, in whatever midst they end.

A fixture removes what is its own. One that is interrupted while it makes something has not come so far:
what it has named here is looked for when all is over (conftest.py).
"""

from __future__ import annotations

import subprocess

_PREFIXES: set[str] = set()
_VOLUMES = ("state", "key", "home")


def remember(prefix: str) -> None:
    """A container or a cluster of this name; its volumes and its network are called after it."""
    _PREFIXES.add(prefix)


def remove_leftovers() -> list[str]:
    """What was still there, and is no more."""
    if not _PREFIXES:
        return []
    whole = {
        "container": {name for prefix in _PREFIXES for name in (prefix, f"{prefix}-slurm")},
        "volume": {f"{prefix}-{part}" for prefix in _PREFIXES for part in _VOLUMES},
        "network": {f"{prefix}_default" for prefix in _PREFIXES},
    }
    found = []
    for kind, mine in whole.items():
        every = ["--all"] if kind == "container" else []
        field = "{{.Names}}" if kind == "container" else "{{.Name}}"
        listed = _docker(kind, "ls", *every, "--format", field)
        if there := sorted(mine & set(listed.split())):
            _docker(kind, "rm", *([] if kind == "network" else ["--force"]), *there)
            found += there
    return found


def _docker(*arguments: str) -> str:
    done = subprocess.run(
        ["docker", *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    return done.stdout

"""What doctor would know of a machine in tests/machines, with a cluster on it or without.

A cluster is a case: `tests/machines/NAME/observed/CASE.json`, laid over `healthy.json` beside it, so that it
names only what is different. In a list of the case, items replace the whole list.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from dshpc_setup import probes
from dshpc_setup.checkup import known_of
from dshpc_setup.diagnose import CheckInput, Finding, diagnose
from dshpc_setup.machine.recorded import RecordedMachine
from dshpc_setup.observed import stored
from dshpc_setup.observed.model import SCHEMA, Observed
from dshpc_setup.settings import Settings

FOLDER = Path(__file__).parents[2] / "machines"


@cache
def known(name: str, settings: Settings = Settings()) -> CheckInput:
    """ "NAME" or "NAME/CASE"."""
    machine_name, _, case = name.partition("/")
    folder = FOLDER / machine_name
    machine = RecordedMachine(folder)
    facts = probes.gather(machine, engine=(folder / "docker.json").exists())
    return known_of(machine, facts, settings, observed(folder, case) if case else Observed())


def observed(folder: Path, case: str) -> Observed:
    """The case laid over the healthy one."""
    base = json.loads((folder / "observed/healthy.json").read_text())
    over = {} if case == "healthy" else json.loads((folder / f"observed/{case}.json").read_text())
    text = json.dumps({**_laid_over(base, over), "schema": SCHEMA})
    return stored.from_json(text, f"{folder.name}/{case}")


def _laid_over(base: Any, over: Any) -> Any:
    if not (isinstance(base, dict) and isinstance(over, dict)):
        return over
    return {**base, **{key: _laid_over(base.get(key), value) for key, value in over.items()}}


@cache
def findings(name: str) -> dict[str, Finding]:
    """By id."""
    return {finding.id: finding for finding in diagnose(known(name))}


def state(name: str, identity: str) -> str:
    """The state of one finding: "ok", "warn", ..."""
    return findings(name)[identity].state

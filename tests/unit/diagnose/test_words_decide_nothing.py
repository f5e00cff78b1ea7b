"""No check reads what a probe says for people: with other words the same findings have the same states."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dshpc_setup.diagnose import Known, diagnose
from dshpc_setup.facts import Gpus
from tests.unit.diagnose.known import FOLDER, known

TOLD_OF = sorted(
    file.parents[1].name
    for file in FOLDER.glob("*/expected/facts.json")
    if any(f'"{key}": [\n' in file.read_text() for key in ("unused", "disagreements"))
)


def scrambled(gpus: Gpus) -> Gpus:
    return replace(
        gpus,
        unused=tuple(replace(item, reason="xyzzy") for item in gpus.unused),
        disagreements=tuple(
            replace(
                item,
                meaning="xyzzy",
                layers=tuple(replace(layer, says="xyzzy") for layer in item.layers),
            )
            for item in gpus.disagreements
        ),
    )


def outcome(of: Known) -> list[tuple[object, ...]]:
    """All but the words: the id, the state, the commands that are advised."""
    return [
        (found.id, found.state, *((fix.command, fix.automatic) for fix in found.fix))
        for found in diagnose(of)
    ]


def test_there_are_machines_to_look_at() -> None:
    assert len(TOLD_OF) > 40


@pytest.mark.parametrize("name", TOLD_OF)
def test_findings_do_not_follow_words(name: str) -> None:
    before = known(name)
    assert before.facts.gpus.unused or before.facts.gpus.disagreements
    other = replace(before, facts=replace(before.facts, gpus=scrambled(before.facts.gpus)))
    assert outcome(other) == outcome(before)

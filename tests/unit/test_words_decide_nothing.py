"""Words come last: with every sentence of ours replaced, all that is decided stays as it is.

The package is imported a second time with other words (tests/unit/scrambled.py), and decides about the same
machines and clusters: states of findings, what blocks and what causes them, the kinds of their steps, the
repairs, the plan, the facts and the exit codes (tests/unit/decisions.py). The sentences that a container
wrote into its reports are others then, too. docs/decisions/0036-words-are-write-only.md
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.unit import decisions, scrambled
from tests.unit.diagnose.known import FOLDER

CASES = decisions.cases(FOLDER)
SEEDS = (1, 2)
FEWEST = 3500  # literals that the decisions come by


@cache
def as_it_is(case: str) -> dict[str, Any]:
    return decisions.of_case(case, other_words=False)


def differing(cases: list[str], finder: scrambled.Finder) -> list[str]:
    """The cases in which something else is decided."""
    before = {case: as_it_is(case) for case in cases}
    beside = decisions.beside_machines()
    with scrambled.in_other_words(finder, decisions.KNOWN):
        assert decisions.beside_machines() == beside
        after = {case: decisions.of_case(case, other_words=True) for case in cases}
    return [f"{case}{where}" for case in cases for where in paths(before[case], after[case])]


def paths(one: Any, other: Any, where: str = "") -> list[str]:
    """Where two values differ: [".findings.DSH-NV-001.state: ok, error"]."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return [each for key in one for each in paths(one[key], other[key], f"{where}.{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        both = enumerate(zip(one, other, strict=True))
        return [each for at, (a, b) in both for each in paths(a, b, f"{where}[{at}]")]
    return [] if one == other else [f"{where}: {str(one)[:60]}, {str(other)[:60]}"]


@pytest.mark.parametrize("seed", SEEDS)
def test_decisions_do_not_follow_words(seed: int, full: bool) -> None:
    """Each case with the words of one seed; with --full of both."""
    finder = scrambled.Finder(seed)
    cases = CASES if full else CASES[seed % len(SEEDS) :: len(SEEDS)]
    assert differing(cases, finder) == []
    assert finder.count > FEWEST
    assert set(scrambled.EXEMPT) - finder.used == set(), "exempted, and not there any more"


def test_no_command_answers_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit codes, and each JSON object but for what people read in it."""
    monkeypatch.chdir(tmp_path)
    before = decisions.of_commands(FOLDER)
    with scrambled.in_other_words(scrambled.Finder(3), decisions.KNOWN):
        after = decisions.of_commands(FOLDER)
    assert paths(before, after) == []


def reading(name: str, body: str) -> Callable[[str, ast.Module], ast.Module]:
    """An edit of diagnose/nvidia_evidence.py: that function, as it reads a sentence."""

    def edit(path: str, tree: ast.Module) -> ast.Module:
        for node in tree.body if path == "diagnose/nvidia_evidence.py" else ():
            if isinstance(node, ast.FunctionDef) and node.name == name:
                node.body = ast.parse(body).body
        return tree

    return edit


def test_a_check_that_reads_a_sentence_is_found() -> None:
    """As it was before: whether the driver is loaded, by how its kernel module's sentence begins."""
    text = (
        'module = evidence(known, "nvidia-module")\n'
        'return module is not None and (module.detail or "").startswith("nvidia ")'
    )
    edit = reading("driver_loaded", text)
    cases = ["rtx4090-runtime-not-registered", "a100x2-nvml-crashes", "workstation-rtx4090/healthy"]
    only = ("probes/nvidia/", "diagnose/nvidia_evidence.py")
    found = differing(cases, scrambled.Finder(1, only, edit))
    assert any(".state: " in each for each in found)
    assert differing(cases, scrambled.Finder(1, only)) == []


def test_what_is_read_and_what_is_exempt_stays() -> None:
    text = """
def said(name):
    "A sentence that documents."
    if name.startswith("a beginning") or name == "a whole one" or {"a key": 1}[name]:
        return f"told to {name}, in words"
    return "told in words"
"""
    made = ast.unparse(scrambled.Scrambler("x.py", 1, set()).scramble(ast.parse(text)))
    for kept in ("A sentence that documents.", "a beginning", "a whole one", "a key", "{name}"):
        assert kept in made
    assert "told" not in made
    assert "words" not in made

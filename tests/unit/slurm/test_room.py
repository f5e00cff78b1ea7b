"""Nobody outside the rooms of Slurm asks its programs, or knows what they say."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import dshpc_setup
from dshpc_setup import slurm_releases

PACKAGE = Path(dshpc_setup.__file__).parent
ROOMS = ("slurm", "slurm_releases")
PROGRAMS = frozenset(("squeue", "sinfo", "scontrol", "sacct", "scancel", "sdiag"))
_SCRIPT = re.compile(
    rf"(?:\$\(|^|;\s*)(?:{'|'.join(PROGRAMS)}) .*2>|\$\((?:{'|'.join(PROGRAMS)}) ", re.M
)
# What people type, passed on; and texts that people pasted, whatever release they are of
_PASSED_ON = {
    "cli/passed_on.py",
    "cli/exec_needs.py",
    "cli/localhost.py",
    "terminal/commands.py",
    "record/words.py",
}
_PASTED = "pasted"


@cache
def _files() -> tuple[tuple[str, ast.Module], ...]:
    found = ((path.relative_to(PACKAGE), path) for path in sorted(PACKAGE.rglob("*.py")))
    return tuple(
        (name.as_posix(), ast.parse(path.read_text()))
        for name, path in found
        if name.parts[0] not in ROOMS
    )


def _calls(tree: ast.Module) -> Iterator[int]:
    """Lines of argument vectors of Slurm's programs, and of shell scripts that call one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.List | ast.Tuple):
            words = [each.value if isinstance(each, ast.Constant) else None for each in node.elts]
            if words and words[0] in PROGRAMS and len(words) > 1:
                yield node.lineno
            if "exec" in words and PROGRAMS & {word for word in words if isinstance(word, str)}:
                yield node.lineno
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and isinstance(node, ast.Constant) and _SCRIPT.search(text):
            yield node.lineno


def test_only_the_client_calls_slurms_programs() -> None:
    found = [
        f"{name}:{line}"
        for name, tree in _files()
        if name not in _PASSED_ON
        for line in _calls(tree)
    ]
    assert found == []


def test_a_call_is_seen() -> None:
    for text in (
        'run(["squeue", "-h"])',
        'run(("docker", "exec", c, "sinfo", "-N"))',
        'X = "a=$(squeue -h)"',
    ):
        assert list(_calls(ast.parse(text))), text
    for text in ('X = "dshpc squeue -t PD"', '"scontrol" in parts', 'f"scontrol release {ids}"'):
        assert not list(_calls(ast.parse(text))), text


def _phrases() -> set[str]:
    """The plain parts of the patterns, where they are long enough to be nobody else's words."""
    found: set[str] = set()
    for release in slurm_releases.RELEASES:
        for pattern in (*release.says, *(each for each in release.node if isinstance(each, str))):
            parts = re.split(r"\(\?i\)|\\.|\[.*?\]|[()|?*+.:{}^$]", pattern)
            found |= {
                part.strip() for part in parts if " " in part.strip() and len(part.strip()) > 9
            }
    return found


def _texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.lineno, node.value


def test_only_the_tables_know_slurms_phrases() -> None:
    phrases = _phrases()
    assert len(phrases) > 20
    found = [
        f"{name}:{line}: {text[:60]!r}"
        for name, tree in _files()
        if name.split("/")[0] != _PASTED
        for line, text in _texts(tree)
        if any(phrase in text for phrase in phrases)
    ]
    assert found == []

"""Workflows for tests: files with what lies beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dshpc_setup.documents.document import Problem
from dshpc_setup.workflows.check import Place, check
from dshpc_setup.workflows.model import Job, Workflow


def method(top: Path, name: str, **keys: Any) -> Path:
    """A method of the project `top`."""
    folder = top / "methods" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "main.py").write_text("print('hello')\n")
    declared = {"name": name, "command": "python3", "script_path": "main.py", **keys}
    (folder / "method.json").write_text(json.dumps(declared))
    return folder


def place(top: Path, *, work: str | None = None) -> Place:
    return Place(top / "pipe.yaml", (top / "methods",), work)


def valid(text: str, top: Path, *, work: str | None = None) -> Workflow:
    found, problems = check(text.encode(), place(top, work=work))
    assert found is not None, problems
    assert problems == ()
    return found


def job(text: str, top: Path, name: str = "a") -> Job:
    return next(each for each in valid(text, top).jobs if each.name == name)


def problems(text: str, top: Path, *, work: str | None = None) -> tuple[Problem, ...]:
    """All that is wrong; fails where nothing is."""
    found, wrong = check(text.encode(), place(top, work=work))
    assert found is None
    assert wrong
    return wrong


def only(text: str, top: Path, *, work: str | None = None) -> Problem:
    found = problems(text, top, work=work)
    assert len(found) == 1, found
    return found[0]

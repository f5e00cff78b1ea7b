"""Methods for tests: folders with a method.json and its script."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.documents.document import Problem
from dshpc_setup.methods.check import check, read
from dshpc_setup.methods.model import Method

LEAST = {"name": "train", "command": "python3", "script_path": "main.py"}


def text_of(**keys: Any) -> str:
    return json.dumps({**LEAST, **keys}, indent=2)


def folder(top: Path, name: str = "train", text: str | None = None, **keys: Any) -> Path:
    """A method's folder with its script; its method.json has LEAST and `keys`, or is `text`."""
    new = top / name
    new.mkdir(parents=True, exist_ok=True)
    (new / "main.py").write_text("print('hello')\n")
    (new / "method.json").write_text(
        text if text is not None else text_of(**{"name": name, **keys})
    )
    return new


def valid(**keys: Any) -> Method:
    """The method of those keys, without a look at files."""
    method, problems = check(text_of(**keys).encode(), Path("/m"), look=False)
    assert method is not None, problems
    return method


def problems(text: str | None = None, **keys: Any) -> tuple[Problem, ...]:
    """All that is wrong; fails where nothing is."""
    data = (text if text is not None else text_of(**keys)).encode()
    method, found = check(data, Path("/m"), look=False)
    assert method is None
    assert found
    return found


def only(found: tuple[Problem, ...]) -> Problem:
    assert len(found) == 1, found
    return found[0]


def looked(path: Path) -> tuple[Problem, ...]:
    return read(path)[1]


def shut(patch: pytest.MonkeyPatch, top: Path) -> None:
    """What lies in a folder may not be looked at, as without its `x`; tests may run as root."""

    def kept(real: Any) -> Any:
        def call(path: Any, *more: Any, **options: Any) -> Any:
            if not isinstance(path, int) and os.fspath(path).startswith(f"{top}/"):
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return real(path, *more, **options)

        return call

    patch.setattr(os, "stat", kept(os.stat))
    patch.setattr(os, "open", kept(os.open))

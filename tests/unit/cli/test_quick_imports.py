"""What every `dshpc srun` imports, here and in the built-in client: nothing that takes as long as a job."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import dshpc_setup

_TOP = Path(dshpc_setup.__file__).parent
_STARTS = ("cli.exec", "cli.exec_session", "cli.exec_streams", "builtin_client.executing")
_HEAVY = {
    *("typing", "collections", "dataclasses", "enum", "functools", "inspect", "pathlib", "re"),
    *("shutil", "subprocess", "tempfile", "threading", "urllib", "ctypes"),
}


def imported(file: Path) -> Iterator[str]:
    """The modules that are imported with it: not those of functions, nor for types alone."""
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)


def own(name: str) -> Path | None:
    place = _TOP.parent.joinpath(*name.split("."))
    files = (place.with_suffix(".py"), place / "__init__.py")
    return next((file for file in files if file.is_file()), None)


def test_it_imports_little() -> None:
    waiting = [f"dshpc_setup.{name}" for name in _STARTS]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        file = own(name)
        if file is None or name in seen:
            continue
        seen.add(name)
        names = list(imported(file))
        heavy = {each.split(".")[0] for each in names} & _HEAVY
        assert not heavy, f"{name} imports {heavy}"
        waiting += names
    assert len(seen) > 10, "it found what it looks through"
    assert "dshpc_setup.builtin.enter" in seen

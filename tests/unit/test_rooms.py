"""The table of docs/architecture.md is the contract that `lint-imports` holds, and the contract is whole."""

from __future__ import annotations

import importlib
import importlib.util
import re

from scripts import room_sizes, rooms


def test_the_page_shows_the_rooms_of_the_contract() -> None:
    page = rooms.PAGE.read_text()
    assert rooms.written(page) == page


def test_each_package_and_module_has_its_layer_and_says_what_it_is_for() -> None:
    top = rooms.TOP / "dshpc_setup"
    there = {path.name for path in top.iterdir() if (path / "__init__.py").exists()}
    there |= {path.stem for path in top.glob("*.py")} - {"__init__"}
    assert sorted(room for layer in rooms.layers() for room in layer) == sorted(there)
    assert " |  |" not in rooms.table()


def test_the_page_says_about_how_large_each_room_is() -> None:
    now, shown = room_sizes.sizes(), room_sizes.shown(rooms.PAGE.read_text())
    assert shown.keys() == now.keys()
    off = {
        room: now[room] for room in now if abs(shown[room] - now[room]) > max(100, now[room] / 10)
    }
    assert off == {}, "python scripts/room_sizes.py --write"


def test_programs_that_tests_hold_as_texts_import_what_there_is() -> None:
    """A module that moves is found by mypy and ruff where it is imported, and not in a text."""
    wanted = re.compile(r"(?:^|[\"';])\s*from (dshpc_setup[\w.]*) import ([\w, ]+)", re.MULTILINE)
    missing = []
    for folder in ("tests/integration", "tests/acceptance", "benchmarks", "scripts", "container"):
        for path in (rooms.TOP / folder).rglob("*"):
            if path.suffix not in (".py", ".sh", "") or not path.is_file():
                continue
            for module, names in wanted.findall(path.read_text(errors="replace")):
                there = importlib.import_module(module)  # noqa: TID251
                words = [part.split()[0] for part in names.split(",") if part.strip()]
                missing += [f"{path.name}: {module}.{word}" for word in words
                            if not hasattr(there, word) and not _is_module(f"{module}.{word}")]  # fmt: skip
    assert missing == []


def _is_module(name: str) -> bool:
    return importlib.util.find_spec(name) is not None

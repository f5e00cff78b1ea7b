"""The table of docs/architecture.md is the contract that `lint-imports` holds, and the contract is whole."""

from __future__ import annotations

from scripts import rooms


def test_the_page_shows_the_rooms_of_the_contract() -> None:
    page = rooms.PAGE.read_text()
    assert rooms.written(page) == page


def test_each_package_and_module_has_its_layer_and_says_what_it_is_for() -> None:
    top = rooms.TOP / "dshpc_setup"
    there = {path.name for path in top.iterdir() if (path / "__init__.py").exists()}
    there |= {path.stem for path in top.glob("*.py")} - {"__init__"}
    assert sorted(room for layer in rooms.layers() for room in layer) == sorted(there)
    assert " |  |" not in rooms.table()

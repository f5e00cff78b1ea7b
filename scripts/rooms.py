"""The rooms of dshpc_setup as docs/architecture.md shows them: made from the contract in pyproject.toml.

python scripts/rooms.py            print the table
python scripts/rooms.py --write    put it into docs/architecture.md
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

TOP = Path(__file__).parents[1]
PAGE = TOP / "docs" / "architecture.md"
_BEGIN, _END = "<!-- made by scripts/rooms.py -->\n", "<!-- end -->\n"


def layers() -> list[list[str]]:
    """The rooms, those that may import all others first; rooms of one layer do not import each other."""
    toml: Any = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    contracts = toml.loads((TOP / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    (contract,) = (each for each in contracts if each["type"] == "layers")
    return [layer.split(" | ") for layer in contract["layers"]]


def table() -> str:
    """Markdown: each room with the first sentence of its docstring."""
    return "".join(_rows())


def written(page: str) -> str:
    """The page with the table of now."""
    return between(page, _BEGIN, table(), _END)


def between(page: str, begin: str, text: str, end: str) -> str:
    """The page with this text between the two marks."""
    before, _, rest = page.partition(begin)
    return f"{before}{begin}{text}{end}{rest.partition(end)[2]}"


def main(table: Callable[[], str], written: Callable[[str], str]) -> None:
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(written(PAGE.read_text()))
    else:
        sys.stdout.write(table())


def _rows() -> Iterator[str]:
    yield "| layer | room | what lives there |\n| --- | --- | --- |\n"
    for number, rooms in enumerate(layers(), 1):
        for room in rooms:
            yield f"| {number} | `{room}` | {_purpose(room)} |\n"


def _purpose(room: str) -> str:
    source = TOP / "dshpc_setup" / f"{room}.py"
    if not source.exists():
        source = TOP / "dshpc_setup" / room / "__init__.py"
    text = ast.get_docstring(ast.parse(source.read_text())) or ""
    return text.partition("\n")[0]


if __name__ == "__main__":
    main(table, written)

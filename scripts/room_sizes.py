"""How large each room of dshpc_setup is, as docs/architecture.md shows it: lines of Python, to the hundred.

python scripts/room_sizes.py            print the table
python scripts/room_sizes.py --write    put it into docs/architecture.md
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.rooms import TOP, between, layers, main

_BEGIN, _END = "<!-- made by scripts/room_sizes.py -->\n", "<!-- sizes end -->\n"


def sizes() -> dict[str, int]:
    """Lines of Python in each room of the contract, the largest first."""
    found = {room: _lines(room) for layer in layers() for room in layer}
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def shown(page: str) -> dict[str, int]:
    """What the page says."""
    rows = page.partition(_BEGIN)[2].partition(_END)[0].splitlines()[2:]
    cells = (row.strip("| ").split(" | ") for row in rows)
    return {room.strip("`"): int(lines) for room, lines in cells}


def table() -> str:
    rows = (f"| `{room}` | {max(100, round(lines, -2))} |\n" for room, lines in sizes().items())
    return "| room | lines |\n| --- | --- |\n" + "".join(rows)


def written(page: str) -> str:
    """The page with the table of now."""
    return between(page, _BEGIN, table(), _END)


def _lines(room: str) -> int:
    top = TOP / "dshpc_setup"
    files = [top / f"{room}.py"] if (top / f"{room}.py").exists() else (top / room).rglob("*.py")
    return sum(len(path.read_text().splitlines()) for path in files)


if __name__ == "__main__":
    main(table, written)

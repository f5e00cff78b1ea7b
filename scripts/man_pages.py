"""The man pages that the wheel carries: docs/man, made from the commands.

python scripts/man_pages.py            say which are not as the commands are
python scripts/man_pages.py --write    write them
"""

from __future__ import annotations

import sys
from pathlib import Path

from dshpc_setup.cli import man_pages

FOLDER = Path(__file__).parents[1] / "docs" / "man"


def stale() -> list[str]:
    """Names of pages that are not as the commands are, or of no command."""
    wanted = man_pages.pages()
    there = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.1")}
    return sorted(name for name in wanted | there if wanted.get(name) != there.get(name))


def main(arguments: list[str]) -> int:
    names = stale()
    if arguments == ["--write"]:
        FOLDER.mkdir(exist_ok=True)
        pages = man_pages.pages()
        for name in names:
            if name in pages:
                (FOLDER / name).write_text(pages[name], "utf-8")
            else:
                (FOLDER / name).unlink()
        return 0
    print("\n".join(names))
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

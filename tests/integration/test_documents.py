"""What README and docs show of recorded machines is what is printed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.M | re.S)
_RECORDED = "--machine tests/machines/"


def shown() -> Iterator[tuple[str, str]]:
    """Command and what stands below it, of every block about recorded machines."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for block in _BLOCK.findall(path.read_text()):
            for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
                command, _, text = part.partition("\n")
                if _RECORDED in command:
                    yield command, text


SHOWN = dict(shown())


def test_there_are_such_blocks() -> None:
    assert len(SHOWN) >= 2


@pytest.mark.parametrize("command", SHOWN)
def test_a_block_is_what_was_printed(command: str) -> None:
    env = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1"}
    argv = shlex.split(command, comments=True)
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)  # noqa: PLW1510
    assert done.stdout + done.stderr == SHOWN[command]

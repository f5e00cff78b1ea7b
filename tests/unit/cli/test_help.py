"""What the help says of each command: an order, as one gives it to the command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from dshpc_setup.cli import app  # it registers every command
from dshpc_setup.terminal.commands import COMMANDS

# A word that is added here is an imperative, and no noun ("Jobs", "Settings")
VERBS = frozenset(
    "Cancel Capture Carry Check Choose Compare Connect Copy Declare Detect Explain Find Get Give "
    "Join Keep List Make Manage Open Print Put Queue Remove Replace Report Restart Return Run Save Set "
    "Show Start Stop Submit Take Test-run Undo Write".split()
)
WIDEST = 110


def commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Each command's name with the first paragraph of its help."""
    yield " ".join(path), (command.help or "").strip().partition("\n\n")[0]
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


ALL = dict(commands(typer.main.get_command(app.app), ("dshpc",)))


def test_every_command_is_looked_at() -> None:
    assert {f"dshpc {name}" for name in COMMANDS} <= set(ALL)
    assert len(ALL) > 70


@pytest.mark.parametrize("name", ALL)
def test_help_begins_with_a_verb(name: str) -> None:
    first = ALL[name].split(" ", 1)[0].rstrip(",")
    assert first in VERBS, f"{name}: {ALL[name]}"


def test_no_verb_is_left_over() -> None:
    used = {text.split(" ", 1)[0].rstrip(",") for text in ALL.values()}
    assert VERBS - used == set()


@pytest.mark.parametrize("name", ALL)
def test_the_first_sentence_fits(name: str) -> None:
    sentence = " ".join(ALL[name].split()).partition(". ")[0]
    assert len(sentence) <= WIDEST, sentence

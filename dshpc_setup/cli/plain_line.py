"""A well-formed command line, read without typer, whose import takes longer than many a command.

What is not well-formed is left to typer, which has the words for it: the commands are declared there,
too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Options:
    """Option -> name, by what follows it: nothing; a value, given once; a value, given again and again."""

    switches: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    lists: Mapping[str, str] = field(default_factory=dict)


def read(
    arguments: Sequence[str], known: Options, *, command: bool = False
) -> tuple[dict[str, Any], list[str]] | None:
    """(name -> value, the words that are no options); None where typer has to be asked.

    With `command`, the first word that is no option, and all behind it, are a command of its own.
    """
    found: dict[str, Any] = {}
    words: list[str] = []
    rest = list(reversed(arguments))
    while rest:
        word = rest.pop()
        if command and (word in ("--", "-") or not word.startswith("-")):
            words += [*([] if word == "--" else [word]), *reversed(rest)]
            break
        if not word.startswith("-"):
            words.append(word)
            continue
        if not _take(word, rest, known, found):
            return None
    return found, words


def _take(word: str, rest: list[str], known: Options, found: dict[str, Any]) -> bool:
    """Read one option, and what follows it; False where it is not as it should be."""
    if word in known.switches:
        given_before = known.switches[word] in found
        found[known.switches[word]] = True
        return not given_before
    option, equals, value = word.partition("=")
    name = known.values.get(option) or known.lists.get(option)
    if name is None or (equals and not option.startswith("--")):
        return False
    if not equals:
        value = rest.pop() if rest else ""
    if not value or (value.startswith("-") and not equals):
        return False
    if option in known.lists:
        found[name] = (*found.get(name, ()), value)
        return True
    if name in found:
        return False
    found[name] = value
    return True

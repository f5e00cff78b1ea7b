"""Text for a terminal: wrapped, coloured where that is wanted, and free of what could command it."""

from __future__ import annotations

import os
import sys
import textwrap
from dataclasses import dataclass

from dshpc_setup.terminal.sanitize import plain

WIDTH = 80


@dataclass(frozen=True)
class Ink:
    """Colours, where they are on; else the text as it is."""

    on: bool = False

    def bold(self, text: str) -> str:
        return self._in("1", text)

    def red(self, text: str) -> str:
        return self._in("1;31", text)

    def yellow(self, text: str) -> str:
        return self._in("33", text)

    def green(self, text: str) -> str:
        return self._in("32", text)

    def _in(self, code: str, text: str) -> str:
        return f"\033[{code}m{text}\033[0m" if self.on and text else text


def ink() -> Ink:
    """Colours for stdout: on a terminal that has them, and not with NO_COLOR (no-color.org)."""
    terminal = sys.stdout is not None and sys.stdout.isatty()
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") not in (None, "", "dumb")
    return Ink(terminal and wanted)


def printable(text: str) -> str:
    """One line without signs that command a terminal; a tab becomes spaces, the others "?"."""
    return plain(text.expandtabs(4))


def printable_lines(text: str) -> list[str]:
    """The lines of a text of several, each printable; empty ones at its end are left out."""
    return [printable(line).rstrip() for line in text.rstrip().splitlines()]


def wrapped(text: str, first: str = "", after: str | None = None, width: int = WIDTH) -> list[str]:
    """A sentence in lines of a terminal's width; `after` begins all but the first."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=" " * len(first) if after is None else after,
        break_long_words=False,
        break_on_hyphens=False,
    )

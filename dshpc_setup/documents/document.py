"""A document that was read: its value, where each part stands, and what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from dshpc_setup.documents.shown import Path

MOST_BYTES = 256 * 1024  # of a file that somebody writes by hand
MOST_PROBLEMS = 50
LINE_END = re.compile(r"\r\n|\n|\r")


class Mark(NamedTuple):
    """A place in a text; both count from 1, the column in characters."""

    line: int
    column: int

    def within(self, file: str) -> str:
        """ "dshpc.yaml:3:1", as editors and compilers write it."""
        return f"{file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Problem:
    """Something wrong in a file. `path` is a JSON path ("$.resources.gpus"), `line` counts from 1.

    Of what no file holds (a word of the command line) `line` is 0. A note refuses nothing.
    """

    path: str
    line: int
    what: str
    right: str  # what would be right; a full sentence
    note: bool = False


@dataclass(frozen=True)
class Document:
    """`value` is None where the text could not be read to its end (`is_whole` false).

    `texts` are YAML's plain words as they were written: 1e-3, 0755.
    """

    value: Any
    problems: tuple[Problem, ...] = ()
    is_whole: bool = True
    texts: Mapping[Path, str] = field(default_factory=dict)
    find_lines: Callable[[], Mapping[Path, int]] = dict

    def line(self, path: Path) -> int:
        """Where that part stands, or the nearest part around it."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 1)

    @cached_property
    def _lines(self) -> Mapping[Path, int]:
        """Looked up where something is wrong only."""
        return self.find_lines()


def broken(*problems: Problem) -> Document:
    """One that could not be read."""
    return Document(None, problems, is_whole=False)


def read(data: bytes, parse: Callable[[str], Document], too_large: str) -> Document:
    """The document in the bytes of a file that somebody wrote; never raises where `parse` does not.

    `too_large` says what to do about a file that is.
    """
    if len(data) > MOST_BYTES:
        what = f"The file is larger than {MOST_BYTES // 1024} KiB."
        return broken(Problem("$", 1, what, too_large))
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return broken(Problem("$", 1, "The file is UTF-16.", "Save it as UTF-8."))
    try:
        return parse(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = 1 + len(LINE_END.findall(data[: error.start].decode("utf-8", "replace")))
        what = f"The byte 0x{data[error.start]:02x} is not UTF-8."
        return broken(Problem("$", line, what, "Save the file as UTF-8."))

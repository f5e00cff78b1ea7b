"""A table of parameter sets as rows: a JSON list of objects, JSON lines, or CSV with a header."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dshpc_setup.documents import json_text
from dshpc_setup.documents.document import MOST_PROBLEMS, Document, Problem
from dshpc_setup.documents.shown import Path, path_text, shown
from dshpc_setup.terminal.sanitize import counted


@dataclass(frozen=True)
class Row:
    """One parameter set of a table, and where it stands."""

    given: Mapping[str, Any]
    path: Path
    is_text: bool  # its values are texts, as of the command line
    line: Callable[[str], int]  # of a key


def rows(
    text: str, name: str, unknown: Callable[[str], tuple[str, str] | None]
) -> tuple[list[Row], list[Problem]]:
    """The sets of a file of that name, as far as it can be read, and what is wrong with its form.

    `unknown` says of a column's name what is wrong with it, and what would be right; None where it is a
    parameter's. Such a column is in no set: it is told once, and not for each row.
    """
    ending = os.path.splitext(name)[1].lower()
    first = text.lstrip()[:1]
    is_csv = ending in (".csv", ".tsv")
    if ending == ".json" or (first == "[" and not is_csv):
        return _json_list(text)
    if ending in (".jsonl", ".ndjson") or (first == "{" and not is_csv):
        return _json_lines(text)
    return _csv(text, unknown)


def _json_list(text: str) -> tuple[list[Row], list[Problem]]:
    read = json_text.parse(text)
    problems = list(read.problems)
    if not read.is_whole:
        return [], problems
    if not isinstance(read.value, list):
        right = 'A list of objects: [{"name": VALUE}, ...]'
        return [], [*problems, Problem("$", read.line(()), "It is not a list.", right)]
    found = []
    for index, value in enumerate(read.value):
        at: Path = (index,)
        if isinstance(value, dict):
            found.append(Row(value, at, False, _line_of(read, at)))
        else:
            problems.append(_no_object(at, read.line(at)))
    return found, problems


def _line_of(read: Document, at: Path) -> Callable[[str], int]:
    return lambda name: read.line((*at, name))


def _no_object(at: Path, line: int) -> Problem:
    right = 'Each set is an object: {"name": VALUE}'
    return Problem(path_text(at), line, "It is not an object.", right)


def _json_lines(text: str) -> tuple[list[Row], list[Problem]]:
    found: list[Row] = []
    problems: list[Problem] = []
    for number, line in enumerate(re.split(r"\r\n|\n|\r", text), 1):
        if not line.strip():
            continue
        read, at = json_text.parse(line), (len(found),)
        problems += [
            Problem(each.path, number, each.what, each.right)
            for each in read.problems[:MOST_PROBLEMS]
        ]
        if isinstance(read.value, dict):
            found.append(Row(read.value, at, False, _always(number)))
        elif read.is_whole:
            problems.append(_no_object(at, number))
        if len(problems) >= MOST_PROBLEMS:
            break
    return found, problems


def _always(line: int) -> Callable[[str], int]:
    return lambda _: line


def _csv(
    text: str, unknown: Callable[[str], tuple[str, str] | None]
) -> tuple[list[Row], list[Problem]]:
    lines = _csv_lines(text)
    found: list[Row] = []
    problems: list[Problem] = []
    header: list[str] = []
    known: list[bool] = []
    at = -1  # the header's place, as a list of JSON would number the rows
    try:
        for at, (line, cells) in enumerate(lines, -1):
            if not header:
                header = [each.strip() for each in cells]
                wrong = [unknown(name) if name else None for name in header]
                known = [each is None for each in wrong]
                problems += _header_problems(header, wrong, line)
            elif len(cells) != len(header):
                count = counted(len(cells), "cell")
                what = f"The row has {count}, and the header {len(header)}."
                right = "As many cells as the header; put a cell with a comma in double quotes."
                problems.append(Problem(path_text((at,)), line, what, right))
            else:
                there = zip(header, cells, known, strict=True)
                given = {name: cell for name, cell, is_known in there if cell and is_known}
                found.append(Row(given, (at,), True, _always(line)))
            if len(problems) >= MOST_PROBLEMS:
                break
    except csv.Error as error:
        line = min(at + 3, max(1, len(text.splitlines())))
        problems.append(Problem("$", line, f"It is no CSV: {error}.", "Quotes come in pairs."))
    return found, problems


def _csv_lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """The rows that hold something, each with the line that it begins in."""
    head = re.split(r"[\r\n]", text.lstrip("\r\n"), maxsplit=1)[0]
    found = [each for each in ",;\t" if each in head]  # ";" is what Excel writes in half of Europe
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=(found or [","])[0], strict=True)
    begins = 1
    for cells in reader:
        if any(cell.strip() for cell in cells):
            yield begins, cells
        begins = reader.line_num + 1


def _header_problems(
    header: list[str], wrong: Sequence[tuple[str, str] | None], line: int
) -> Iterable[Problem]:
    for index, (name, is_wrong) in enumerate(zip(header, wrong, strict=True)):
        if not name:
            what = f"Column {index + 1} has no name."
            yield Problem("$", line, what, "The first line holds the parameters' names.")
        elif name in header[:index]:
            yield Problem("$", line, f"The column {shown(name)} comes twice.", "Keep one of them.")
        elif is_wrong is not None:
            yield Problem("$", line, f"The column {shown(name)}: {is_wrong[0]}", is_wrong[1])

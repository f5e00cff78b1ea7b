"""`-p key=value` words and tables of parameter sets -> typed values, or all that is wrong with them.

A set of values has every parameter of the method: what was not given is its default, and None where
it has none. Files are absolute paths on this machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dshpc_setup.documents.document import MOST_PROBLEMS, Problem
from dshpc_setup.documents.shown import path_text, shown
from dshpc_setup.methods.model import Method, Parameter, Value
from dshpc_setup.methods.rows import rows
from dshpc_setup.methods.semantics import of_type
from dshpc_setup.methods.structure import nearest
from dshpc_setup.terminal.sanitize import counted

Values = dict[str, Value]

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_WHOLE = re.compile(r"[+-]?[0-9]+")
_LONGEST_NUMBER = 40
_MOST_WHOLE = 2**63 - 1  # what languages other than Python can hold
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_MODES = {"single_file": "one file", "multi_file": "one file or more", "params_only": "no file"}


def typed(method: Method, given: Sequence[str]) -> tuple[Values, list[Problem]]:
    """The values of the words behind `-p` ("key=value"); `line` of a problem is 0, `path` the key."""
    texts: dict[str, str] = {}
    problems: list[Problem] = []
    for word in given:
        name, equals, text = word.partition("=")
        if not equals:
            right = "Write -p name=value; in quotes where the value holds spaces."
            problems.append(Problem(_clean(word), 0, "It has no =.", right))
        elif name in texts:
            problems.append(Problem(_clean(name), 0, "It is given twice.", "Give it once."))
        else:
            texts[name] = text
    values, wrong = _set(method, texts, from_text)
    problems += [Problem(_clean(each.name), 0, each.what, each.right) for each in wrong]
    return values, problems


def table(method: Method, text: str, name: str) -> tuple[list[Values], list[Problem]]:
    """Many sets: a JSON list of objects, JSON lines, or CSV with a header.

    `name` is the file's: its ending says what it holds, and where it does not, its first character.
    An empty cell of a CSV is a value that was not given. At most 50 problems are told.
    """
    known = [each.name for each in method.parameters]
    found_rows, problems = rows(
        text.removeprefix("\ufeff"),
        name,
        lambda column: None if column in known else _unknown(column, known),
    )
    if not found_rows and not problems:
        what = "It holds no parameter set."
        problems = [Problem("$", 1, what, "One set for each job of the array.")]
    found: list[Values] = []
    for row in found_rows:
        values, wrong = _set(method, row.given, from_text if row.is_text else _from_json)
        problems += [
            Problem(path_text((*row.path, each.name)), row.line(each.name), each.what, each.right)
            for each in wrong
        ]
        found.append(values)
        if len(problems) >= MOST_PROBLEMS:
            break
    return found, sorted(problems, key=lambda each: each.line)[:MOST_PROBLEMS]


def count_fits(method: Method, count: int) -> Problem | None:
    """That the method takes so many input files; None where it does."""
    modes = method.input_modes
    takes = {"single_file": count == 1, "multi_file": count > 0, "params_only": count == 0}
    if not modes or any(takes[mode] for mode in modes):
        return None
    wanted = " or ".join(_MODES[mode] for mode in modes)
    there = counted(count, "file") if count else "none"
    right = "Give it: --input FILE" if not count else "Give --input once."
    if modes == ("params_only",):
        right = "Leave --input out."
    return Problem("$", 0, f"{method.name} takes {wanted} as input, and got {there}.", right)


@dataclass(frozen=True)
class _Wrong:
    name: str
    what: str
    right: str


class _RefusedError(Exception):
    """A value is not one of its parameter: what, and what would be right."""


_Read = Callable[[Parameter, Any], Value]


def _set(method: Method, given: Mapping[str, Any], read: _Read) -> tuple[Values, list[_Wrong]]:
    known = {each.name: each for each in method.parameters}
    wrong = [_Wrong(name, *_unknown(name, list(known))) for name in given if name not in known]
    values: Values = {}
    for name, parameter in known.items():
        if name not in given:
            values[name] = _default(method, parameter)
            if parameter.required and parameter.default is None:
                right = f"Give {_example(parameter)}"
                wrong.append(_Wrong(name, "It is required, and was not given.", right))
            continue
        try:
            values[name] = _allowed(parameter, read(parameter, given[name]))
        except _RefusedError as error:
            what, right = error.args
            wrong.append(_Wrong(name, what, right))
    return values, wrong


def _unknown(name: str, known: list[str]) -> tuple[str, str]:
    """What is wrong with a name that is no parameter's, and what would be right."""
    near = nearest(name, known)
    there = f"There are: {', '.join(known)}." if known else "The method takes no parameters."
    right = f"Did you mean {near}? {there}" if near else there
    return "The method has no such parameter.", right


def _default(method: Method, parameter: Parameter) -> Value:
    """A file that is a default lies in the method's folder."""
    if parameter.type == "file" and isinstance(parameter.default, str):
        return os.path.join(os.path.abspath(method.folder), parameter.default)
    return parameter.default


def _example(parameter: Parameter) -> str:
    what = {"integer": "a whole number", "number": "a number", "boolean": "true or false"}
    text = {"file": "the path of a file", **what}.get(parameter.type, "a text")
    said = f" ({parameter.description})" if parameter.description else ""
    if parameter.allowed_values:
        text = f"one of {', '.join(map(shown, parameter.allowed_values[:10]))}"
    return f"{text}{said}."


def _allowed(parameter: Parameter, value: Value) -> Value:
    there = parameter.allowed_values
    if parameter.type == "file":
        there = tuple(os.path.abspath(each) for each in there if isinstance(each, str))
    if there and not any(
        value == each and isinstance(value, bool) == isinstance(each, bool) for each in there
    ):
        what = f"{shown(value)} is not one of the allowed values."
        raise _RefusedError(what, f"One of {', '.join(map(shown, there[:20]))}.")
    return value


def from_text(parameter: Parameter, text: str) -> Value:
    """The value that a text stands for; raises _RefusedError."""
    kind = parameter.type
    if not _is_utf8(text):
        raise _RefusedError("The value is not UTF-8.", "Write it in UTF-8.")
    if kind == "string":
        return text
    if kind == "file":
        return _file(text)
    if kind == "boolean":
        if text.strip().lower() not in _TRUTH:
            raise _RefusedError(f"{shown(text)} is not true or false.", "true or false.")
        return _TRUTH[text.strip().lower()]
    return _number(text.strip(), kind)


def _number(text: str, kind: str) -> Value:
    what = "a whole number" if kind == "integer" else "a number"
    if not _NUMBER.fullmatch(text) or len(text) > _LONGEST_NUMBER:
        right = "Digits, a point and an exponent at most: 1, 0.5, 1e-3."
        raise _RefusedError(f"{shown(text)} is not {what}.", right)
    value = (
        int(text) if _WHOLE.fullmatch(text) else _whole(text) if kind == "integer" else float(text)
    )
    if value in (float("inf"), float("-inf")) or (isinstance(value, int) and _too_large(value)):
        most = _MOST_WHOLE if isinstance(value, int) else "about 1.8e308"
        raise _RefusedError(f"{shown(text)} is too large.", f"At most {most}.")
    return value


def _whole(text: str) -> int:
    """Of "1e3" and "10.0", exactly: a float would round "9007199254740993.0"."""
    from decimal import Decimal

    exact = Decimal(text)
    if exact.copy_abs() > _MOST_WHOLE:
        raise _RefusedError(f"{shown(text)} is too large.", f"At most {_MOST_WHOLE}.")
    if exact != int(exact):
        raise _RefusedError(f"{shown(text)} is not a whole number.", "Digits only: 10.")
    return int(exact)


def _too_large(value: int) -> bool:
    return abs(value) > _MOST_WHOLE


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _file(text: str) -> str:
    path = os.path.abspath(os.path.expanduser(text)) if text and "\0" not in text else ""
    if not path or not os.path.exists(path):
        raise _RefusedError(f"There is no file {shown(text)}.", "The path of a file that exists.")
    if not os.path.isfile(path):
        raise _RefusedError(f"{shown(text)} is not a file.", "The path of a file, not of a folder.")
    if not os.access(path, os.R_OK):
        raise _RefusedError(f"You may not read {shown(text)}.", "Make it readable for you.")
    return path


def _from_json(parameter: Parameter, value: Any) -> Value:
    if not of_type(value, parameter.type):
        right = f"Write {_example(parameter)}"
        raise _RefusedError(f"{shown(value)} is not of the type {parameter.type}.", right)
    if parameter.type == "file":
        return _file(value)
    if parameter.type == "integer":
        if _too_large(int(value)):
            raise _RefusedError(f"{shown(value)} is too large.", f"At most {_MOST_WHOLE}.")
        return int(value)
    return value  # type: ignore[no-any-return]


def _clean(name: str) -> str:
    """A word of the command line as it can be printed."""
    return name if name.isprintable() and len(name) <= 64 and _is_utf8(name) else shown(name)

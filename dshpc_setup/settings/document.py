"""dshpc.yaml, read: each key with its value as text, and where it stands."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import yaml

from dshpc_setup.settings.declarations import BY_NAME, Declaration
from dshpc_setup.settings.wrong import Source, WrongSetting

_ALL = f"There are: {', '.join(BY_NAME)}."


def read(text: str, name: str) -> tuple[dict[str, tuple[str, Source]], tuple[WrongSetting, ...]]:
    """Key -> (value as text, where it stands); lists become comma-separated text. And what is wrong
    with it, in the order of its lines."""
    root = _root(text, name)
    if isinstance(root, WrongSetting):
        return {}, (root,)
    found: dict[str, tuple[str, Source]] = {}
    wrong: list[WrongSetting] = []
    for key, value in root.value if root is not None else ():
        where = _at(name, key.start_mark)
        setting = _name(key, where, found)
        if isinstance(setting, WrongSetting):
            wrong.append(setting)
            continue
        given = _scalar(value, setting)
        if given is None:
            wrong.append(_nested(setting, where))
            continue
        items = tuple(_at(name, mark) for mark in _places(value, setting, text))
        found[setting.name] = given, Source("file", where, items)
    return found, tuple(wrong)


def _at(name: str, mark: Any) -> str:
    line, column = mark if isinstance(mark, tuple) else (mark.line, mark.column)
    return f"{name}:{line + 1}:{column + 1}"


def _root(text: str, name: str) -> Any:
    """The mapping, None of an empty file, or a WrongSetting where it can be read no further."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = _at(name, mark) if mark else name
        return _unread(where, f"this is not valid YAML: {error.problem or error.context}.")
    except yaml.YAMLError as error:
        return _unread(name, "this is not valid YAML.", str(error))
    except RecursionError:
        return _unread(
            name,
            "its lists lie too deep in each other to be read.",
            "It is a list of 'key: value' lines, and a value is a text or a list of texts.",
        )
    if root is not None and not isinstance(root, yaml.MappingNode):
        return _unread(
            f"{name}:1:1",
            "a list of 'key: value' lines is expected.",
            "Such as: prefix: lab.",
            _ALL,
        )
    return root


def _unread(where: str, what: str, details: str = "", choices: str = "") -> WrongSetting:
    return WrongSetting("file", "file", where, f"{where}: {what}", details, choices=choices)


def _name(
    key: Any, where: str, found: Mapping[str, tuple[str, Source]]
) -> Declaration | WrongSetting:
    """The setting that a key names, which is not in `found` yet."""
    if not isinstance(key, yaml.ScalarNode):
        brief = f"{where}: the name of a setting is expected here."
        return WrongSetting("name", "file", where, brief, choices=_ALL)
    if key.value not in BY_NAME:
        return _unknown_key(str(key.value), where)
    if key.value in found:
        return WrongSetting(
            "twice",
            "file",
            where,
            f"{where}: {key.value!r} stands here a second time.",
            f"The first is at {found[key.value][1].where}, and only one can count.",
            key.value,
        )
    return BY_NAME[key.value]


def _scalar(node: Any, item: Declaration) -> str | None:
    """The value as text; None for one in which something is nested."""
    if isinstance(node, yaml.SequenceNode) and all(
        isinstance(part, yaml.ScalarNode) for part in node.value
    ):
        return item.list_separator.join(str(part.value) for part in node.value)
    return str(node.value) if isinstance(node, yaml.ScalarNode) else None


def _places(node: Any, item: Declaration, text: str) -> list[tuple[int, int]]:
    """Line and column of each item of that text, where each stands in a place of its own."""
    if isinstance(node, yaml.SequenceNode):
        return [
            (part.start_mark.line, part.start_mark.column)
            for part in node.value
            for _ in str(part.value).split(item.list_separator)
        ]
    if node.style != "|" or item.list_separator != "\n":
        return []
    first = node.start_mark.line + 1
    rows = text.splitlines()[first : first + len(node.value.split("\n"))]
    return [(first + nth, len(row) - len(row.lstrip())) for nth, row in enumerate(rows)]


def _nested(item: Declaration, where: str) -> WrongSetting:
    return WrongSetting(
        "value",
        "file",
        where,
        f"{where}: {item.name} takes a single value or a list of values, with nothing nested in it.",
        item.help,
        item.name,
    )


def _unknown_key(key: str, where: str) -> WrongSetting:
    near = difflib.get_close_matches(key, list(BY_NAME), 1)
    hint = f"Did you mean {near[0]!r}?" if near else ""
    return WrongSetting(
        "name", "file", where, f"{where}: there is no setting {key!r}.", hint, key, choices=_ALL
    )

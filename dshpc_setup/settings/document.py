"""dshpc.yaml, read: each key with its value as text, and where it stands."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from dshpc_setup.documents import yaml_nodes
from dshpc_setup.documents.document import Mark
from dshpc_setup.documents.yaml_nodes import Node, YamlError
from dshpc_setup.settings.declarations import BY_NAME, Declaration
from dshpc_setup.settings.wrong import Source, WrongSetting

_ALL = f"There are: {', '.join(BY_NAME)}."
_DEEPEST = 64


def read(text: str, name: str) -> tuple[dict[str, tuple[str, Source]], tuple[WrongSetting, ...]]:
    """Key -> (value as text, where it stands); lists become comma-separated text. And what is wrong
    with it, in the order of its lines."""
    pairs = _pairs(text, name)
    if isinstance(pairs, WrongSetting):
        return {}, (pairs,)
    found: dict[str, tuple[str, Source]] = {}
    wrong: list[WrongSetting] = []
    for key, value in pairs:
        where = key.place.within(name)
        setting = _name(key, where, found)
        if isinstance(setting, WrongSetting):
            wrong.append(setting)
            continue
        given = _scalar(value, setting)
        if given is None:
            wrong.append(_nested(setting, where))
            continue
        items = tuple(mark.within(name) for mark in _places(value, setting, text))
        found[setting.name] = given, Source("file", where, items)
    return found, tuple(wrong)


def nodes(text: str) -> Node | None:
    """The document of the file, None of an empty one; raises YamlError."""
    return yaml_nodes.read(text, deepest=_DEEPEST)


def _pairs(text: str, name: str) -> Sequence[tuple[Node, Node]] | WrongSetting:
    """The keys and values, or why the file can be read no further."""
    try:
        root = nodes(text)
    except YamlError as error:
        where = error.place.within(name) if error.place is not None else name
        if error.kind == "deep":
            return _unread(
                where,
                "its lists lie too deep in each other to be read.",
                "It is a list of 'key: value' lines, and a value is a text or a list of texts.",
            )
        if error.place is None:
            return _unread(name, "this is not valid YAML.", str(error.__cause__ or error))
        return _unread(where, f"this is not valid YAML: {error.said}.")
    if root is not None and root.kind != "mapping":
        return _unread(
            f"{name}:1:1",
            "a list of 'key: value' lines is expected.",
            "Such as: prefix: lab.",
            _ALL,
        )
    return root.pairs if root is not None else []


def _unread(where: str, what: str, details: str = "", choices: str = "") -> WrongSetting:
    return WrongSetting("file", "file", where, f"{where}: {what}", details, choices=choices)


def _name(
    key: Node, where: str, found: Mapping[str, tuple[str, Source]]
) -> Declaration | WrongSetting:
    """The setting that a key names, which is not in `found` yet."""
    if key.kind != "scalar":
        brief = f"{where}: the name of a setting is expected here."
        return WrongSetting("name", "file", where, brief, choices=_ALL)
    if key.text not in BY_NAME:
        return _unknown_key(key.text, where)
    if key.text in found:
        return WrongSetting(
            "twice",
            "file",
            where,
            f"{where}: {key.text!r} stands here a second time.",
            f"The first is at {found[key.text][1].where}, and only one can count.",
            key.text,
        )
    return BY_NAME[key.text]


def _scalar(node: Node, item: Declaration) -> str | None:
    """The value as text; None for one in which something is nested."""
    if node.kind == "list" and all(part.kind == "scalar" for part in node.items):
        return item.list_separator.join(part.text for part in node.items)
    return node.text if node.kind == "scalar" else None


def _places(node: Node, item: Declaration, text: str) -> list[Mark]:
    """Where each item of that text stands, if each has a place of its own."""
    if node.kind == "list":
        return [part.place for part in node.items for _ in part.text.split(item.list_separator)]
    if node.style != "|" or item.list_separator != "\n":
        return []
    first = node.place.line
    rows = text.splitlines()[first : first + len(node.text.split("\n"))]
    return [
        Mark(number, len(row) - len(row.lstrip()) + 1) for number, row in enumerate(rows, first + 1)
    ]


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

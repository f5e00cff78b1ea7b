"""dshpc.yaml, read: each key with its value as text, and where it stands."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import yaml

from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.settings.declarations import BY_NAME, Declaration


def read(text: str, name: str) -> tuple[dict[str, tuple[str, str]], list[DshpcError]]:
    """Key -> (value as text, "dshpc.yaml:LINE:COLUMN"); lists become comma-separated text. And what is
    wrong with it, in the order of its lines.

    Raises DshpcError (usage) where it can be read no further: it is no YAML, or no list of settings.
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise usage_error(
            f"{name}{at}: this is not valid YAML: {error.problem or error.context}.",
            "",
            f"Correct {name} and run again.",
        ) from None
    except yaml.YAMLError as error:
        raise usage_error(
            f"{name}: this is not valid YAML.", str(error), f"Correct {name} and run again."
        ) from None
    except RecursionError:
        raise usage_error(
            f"{name}: its lists lie too deep in each other to be read.",
            "It is a list of 'key: value' lines, and a value is a text or a list of texts.",
            f"Correct {name} and run again.",
        ) from None
    if root is None:
        return {}, []
    if not isinstance(root, yaml.MappingNode):
        raise usage_error(
            f"{name}:1:1: a list of 'key: value' lines is expected.",
            f"Such as: prefix: lab. There are: {', '.join(BY_NAME)}.",
            f"Correct {name} and run again.",
        )
    found: dict[str, tuple[str, str]] = {}
    wrong: list[DshpcError] = []
    for key, value in root.value:
        where = f"{name}:{key.start_mark.line + 1}:{key.start_mark.column + 1}"
        try:
            setting = _name(key, where, found)
            found[setting.name] = (_scalar(value, where, setting), where)
        except DshpcError as error:
            wrong.append(error)
    return found, wrong


def _name(key: Any, where: str, found: Mapping[str, tuple[str, str]]) -> Declaration:
    """The setting that a key names, which is not in `found` yet."""
    if not isinstance(key, yaml.ScalarNode):
        raise usage_error(
            f"{where}: the name of a setting is expected here.",
            f"There are: {', '.join(BY_NAME)}.",
            f"Correct {where} and run again.",
        )
    if key.value not in BY_NAME:
        raise _unknown_key(str(key.value), where)
    if key.value in found:
        first = found[key.value][1]
        raise usage_error(
            f"{where}: {key.value!r} stands here a second time.",
            f"The first is at {first}, and only one can count.",
            "Take one of them out and run again.",
        )
    return BY_NAME[key.value]


def _scalar(node: Any, where: str, item: Declaration) -> str:
    if isinstance(node, yaml.SequenceNode) and all(
        isinstance(part, yaml.ScalarNode) for part in node.value
    ):
        return item.list_separator.join(str(part.value) for part in node.value)
    if isinstance(node, yaml.ScalarNode):
        return str(node.value)
    raise usage_error(
        f"{where}: {item.name} takes a single value or a list of values, with nothing nested in it.",
        item.help,
        f"Correct {where} and run again.",
    )


def _unknown_key(key: str, where: str) -> DshpcError:
    near = difflib.get_close_matches(key, list(BY_NAME), 1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    return usage_error(
        f"{where}: there is no setting {key!r}.",
        f"{hint}There are: {', '.join(BY_NAME)}.",
        "Correct the name and run again.",
    )

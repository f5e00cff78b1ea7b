"""YAML as mappings, lists and texts, of a file that somebody else wrote.

Built of the parser's events: PyYAML's own loader crashes on what is nested deeply, and a few lines of
merge keys fill its memory. Imported only where there is a file to read: PyYAML takes fifteen
milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

_DEEPEST = 12
_NULLS = ("", "~", "null", "Null", "NULL")


class YamlError(ValueError):
    """What is wrong with a text, and where."""


def load(text: str) -> Any:
    """The first document: dict, list, str or None; every number is a str. Raises YamlError."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        events: Iterator[Any] = iter(yaml.parse(text, Loader=loader))
        for event in events:
            if not isinstance(event, (yaml.StreamStartEvent, yaml.DocumentStartEvent)):
                return _value(events, event, {}, 0)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlError(f"{_place(mark)}{error.problem or 'this is no YAML'}") from None
    except yaml.reader.ReaderError as error:
        raise YamlError(f"character {error.position}: {error.reason}") from None
    except (yaml.YAMLError, UnicodeError) as error:
        raise YamlError(" ".join(str(error).split())) from None
    return None


def _value(events: Iterator[Any], event: Any, anchors: dict[str, Any], deep: int) -> Any:
    """The value that begins with this event; the events up to its end are taken."""
    if deep > _DEEPEST:
        raise YamlError(f"{_place(event.start_mark)}this is nested too deeply")
    if isinstance(event, yaml.AliasEvent):
        if event.anchor not in anchors:
            raise YamlError(
                f"{_place(event.start_mark)}nothing is called *{str(event.anchor)[:40]}"
            )
        return anchors[event.anchor]
    found: Any = None
    if isinstance(event, yaml.SequenceStartEvent):
        found = []
        while not isinstance(item := next(events), yaml.SequenceEndEvent):
            found.append(_value(events, item, anchors, deep + 1))
    elif isinstance(event, yaml.MappingStartEvent):
        found = {}
        while not isinstance(key := next(events), yaml.MappingEndEvent):
            name = _value(events, key, anchors, deep + 1)
            value = _value(events, next(events), anchors, deep + 1)
            if isinstance(name, str):
                found[name] = value
    elif isinstance(event, yaml.ScalarEvent):
        found = None if event.implicit[0] and event.value in _NULLS else event.value
    if getattr(event, "anchor", None):
        anchors[event.anchor] = found
    return found


def _place(mark: Any) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""

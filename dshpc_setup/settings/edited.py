"""dshpc.yaml as people wrote it: one value changed, comments, order and quoting kept."""

from __future__ import annotations

import difflib
import io
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dshpc_setup import settings
from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.settings.reading import refusal
from dshpc_setup.settings.wrong import together

if TYPE_CHECKING:
    from dshpc_setup.documents.yaml_nodes import Node


def as_text(value: Any) -> str:
    """A setting's value as a flag takes it; "" for none."""
    if isinstance(value, tuple):
        return ",".join(map(item_text, value))
    return "" if value is None else str(value)


def item_text(item: Any) -> str:
    """An item of a list as a flag takes it: "0", "short=1:00:00", "long" for one without an end."""
    if not isinstance(item, tuple):
        return str(item)
    name, longest = item
    return str(name) if longest == "INFINITE" else f"{name}={longest}"


def joined(name: str, values: Sequence[str]) -> str:
    """One text of the values of the command line; raises DshpcError (usage) where one is too many."""
    item = settings.BY_NAME.get(name)
    if item is None:
        raise no_setting(name)
    several = isinstance(item.default, tuple) or item.list_separator == "\n"
    if len(values) > 1 and not several:
        raise usage_error(
            f"{name} takes one value, and {len(values)} were given.",
            item.help,
            "Put quotes around a value that holds spaces.",
        )
    return item.list_separator.join(values)


def no_setting(name: str) -> DshpcError:
    """The error, with the name that was perhaps meant."""
    near = difflib.get_close_matches(name, list(settings.BY_NAME), 1)
    return usage_error(
        f"There is no setting {name!r}.",
        f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(settings.BY_NAME)}.",
    )


def changed(text: str | None, name: str, value: str) -> str:
    """The file's text with `name: value`; everything else stays as it is.

    What is wrong with other settings of it stays, for one is corrected after the other. Raises
    DshpcError (usage) for an unknown name, a value that the setting does not take, or a file that
    cannot be read as a list of settings.
    """
    if name not in settings.BY_NAME:
        raise no_setting(name)
    before = _readable(text or "")
    wanted = _parsed(name, value)
    new = _with(_once(text or "", name), name, value)
    after = settings.read(yaml_text=new)
    if getattr(after.settings, name) != wanted or _of_others(after, name) != _of_others(
        before, name
    ):
        raise usage_error(
            f"{name} could not be written into dshpc.yaml, which is left as it is.",
            "What was to be written would be read as something else.",
            f"Write it with an editor: a line such as {name}: VALUE.",
        )
    return new


def _parsed(name: str, value: str) -> Any:
    item = settings.BY_NAME[name]
    try:
        return item.parse(value)
    except ValueError as error:
        raise usage_error(
            refusal(item, value, error),
            item.help,
            f"Give another: dshpc config set {name} VALUE",
        ) from None
    except DshpcError as error:
        raise replace(error, brief=f"{name} = {error.brief}") from None


def without(text: str, name: str) -> str:
    """The file's text without that setting, also one that is wrong or does not exist; everything else,
    comments too, stays as it is.

    Raises DshpcError (usage) where it cannot be taken out line by line: `{a: 1, b: 2}`, or where the file
    cannot be read as a list of settings.
    """
    before = _readable(text)
    new = _cut(text, name, keep=0)
    after = settings.read(yaml_text=new)
    if name in names(new) or _of_others(after, name) != _of_others(before, name):
        raise usage_error(
            f"{name} could not be taken out of dshpc.yaml, which is left as it is.",
            "It shares a line with others.",
            "Take it out with an editor.",
        )
    return new


def names(text: str) -> tuple[str, ...]:
    """The keys of the file, also those of no setting; () of one that cannot be read as a list of them."""
    return tuple(key.text for key, _ in _pairs(text)) if _is_readable(text) else ()


def _pairs(text: str) -> Sequence[tuple[Node, Node]]:
    from dshpc_setup.settings.document import nodes  # each start of the container imports this

    root = nodes(text)
    return root.pairs if root is not None else ()


def _readable(text: str) -> settings.Reading:
    """What the file says; raises SettingsError where it can be read no further."""
    found = settings.read(yaml_text=text)
    if unread := [each for each in found.wrong if each.kind == "file"]:
        raise together(unread)
    return found


def _is_readable(text: str) -> bool:
    return not any(each.kind == "file" for each in settings.read(yaml_text=text).wrong)


def _once(text: str, name: str) -> str:
    """The text with the first of several lines of that setting alone."""
    return _cut(text, name, keep=1) if names(text).count(name) > 1 else text


def _cut(text: str, name: str, *, keep: int) -> str:
    lines = text.splitlines(keepends=True)
    found = [pair for pair in _pairs(text) if pair[0].text == name]
    for key, value in reversed(found[keep:]):
        end = value.ends.line + (1 if value.ends.column else 0)
        while end > key.begins.line + 1 and _says_nothing(lines[end - 1]):
            end -= 1  # a comment behind a list is of what follows
        lines[key.begins.line : end] = []
    return "".join(lines)


def _of_others(reading: settings.Reading, name: str) -> tuple[dict[str, str], list[Any]]:
    """What the file says but for that setting, and what is wrong with the rest of it."""
    said = {key: text for key, text in reading.settings.texts.items() if key != name}
    wrong = [(each.kind, each.setting) for each in reading.wrong if each.setting != name]
    return said, wrong


def _says_nothing(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _with(text: str, name: str, value: str) -> str:
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    apart, keys = _keys_apart(text)
    document = yaml.load(apart) or {}
    document[name] = _node(name, value)
    stream = io.StringIO()
    yaml.dump(document, stream)
    new = stream.getvalue()
    for key, written in keys.items():
        new = new.replace(key, written)
    if not text or _has_keys(text):
        return new
    # ruamel forgets comments of a file that holds nothing else
    return text + ("" if text.endswith("\n") else "\n") + new


def _keys_apart(text: str) -> tuple[str, dict[str, str]]:
    """The text with a key of its own for each that stands there again, which ruamel refuses; and what was
    written in its place."""
    seen: set[str] = set()
    again: dict[str, str] = {}
    for key, _ in _pairs(text):
        start, end = key.begins.index, key.ends.index
        if key.text in seen:
            again[f"dshpc-again-{start}-{len(text)}"] = text[start:end]
        seen.add(key.text)
    for own in reversed(again):
        start = int(own.split("-")[2])
        text = text[:start] + own + text[start + len(again[own]) :]
    return text, again


def _node(name: str, value: str) -> Any:
    """Lists as lists, and lines as they are read: one below the other."""
    from ruamel.yaml.scalarstring import LiteralScalarString

    if isinstance(settings.BY_NAME[name].default, tuple) and "," in value:
        return [item.strip() for item in value.split(",")]
    lines = value.strip("\n")
    # A literal block takes its indentation from the first line, and ends at the last that is not blank
    if "\n" in lines and not lines[0].isspace() and all(map(str.isprintable, lines.split("\n"))):
        return LiteralScalarString(lines)
    return value


def _has_keys(text: str) -> bool:
    return any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines())

"""A value against a schema: every difference, said for people. Knows the words that `schema.py` uses."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dshpc_setup.documents.shown import Path, shown
from dshpc_setup.methods.schema import SCHEMA, Schema

_TYPES = {
    "string": ("a text", "A text in double quotes"),
    "integer": ("a whole number", "A whole number"),
    "number": ("a number", "A number"),
    "boolean": ("true or false", "true or false"),
    "null": ("null", "null"),
    "array": ("a list", "A list in square brackets"),
    "object": ("an object", "An object in braces"),
}
# Of all objects in a method.json: in other files these keys belong nowhere
_KEYS = {"name", "type", "description", "required", "default", "allowed_values"}
_KEYS |= {*SCHEMA["properties"], *SCHEMA["properties"]["resources"]["properties"]}
# What people write from other tools, and difflib finds no way from
_SAME = {"int": "integer", "float": "number", "double": "number", "bool": "boolean"}
_SAME |= {"str": "string", "text": "string", "path": "file"}
_TRUTH = {"true": "true", "yes": "true", "false": "false", "no": "false"}
_SHORTEST = 3  # letters of a word that may be another one's beginning
_SHORT_WHOLE = re.compile(r"-?[1-9][0-9]{0,14}|0")


@dataclass(frozen=True)
class Wrong:
    """A problem before its line is known."""

    path: Path
    what: str
    right: str
    note: bool = False


def differences(value: Any, schema: Schema = SCHEMA, path: Path = ()) -> Iterator[Wrong]:
    """What keeps the value from being of that form; nothing where it is."""
    if "enum" in schema:
        if not any(same(value, each) for each in schema["enum"]):
            yield _not_one_of(value, schema, path)
        return
    if not any(_OF_TYPE[name](value) for name in _types(schema)):
        what = f"{_found(value)}; {_wanted(schema)} is needed."
        yield Wrong(path, what, _right(schema, value))
    elif isinstance(value, str):
        yield from _of_text(value, schema, path)
    elif isinstance(value, dict):
        yield from _of_object(value, schema, path)
    elif isinstance(value, list):
        yield from _of_list(value, schema, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        least, most = schema.get("minimum", value), schema.get("maximum", value)
        if not least <= value <= most:
            side = f"less than {least}" if value < least else f"more than {most}"
            yield Wrong(path, f"{shown(value)} is {side}.", _right(schema))


def nearest(word: str, known: list[str]) -> str | None:
    """The known word that is most like this one, if any is; or the one that begins with it: `time` is
    unlike `time_limit`, by its length."""
    lower = {each.lower(): each for each in known}
    said = word.lower()[:64]
    near = difflib.get_close_matches(said, lower, 1)
    if not near and len(said) >= _SHORTEST:
        longer = [each for each in lower if each.startswith(said)]
        near = longer if len(longer) == 1 else []
    return lower[near[0]] if near else None


def _types(schema: Schema) -> list[str]:
    names = schema["type"]
    return names if isinstance(names, list) else [names]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_OF_TYPE: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: _is_number(value) and value == int(value),
    "number": _is_number,
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def same(one: Any, other: Any) -> bool:
    """Equal as JSON has it: true is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _of_text(value: str, schema: Schema, path: Path) -> Iterator[Wrong]:
    if len(value) < schema.get("minLength", 0):
        yield Wrong(path, "The text is empty.", _right(schema))
    elif len(value) > schema.get("maxLength", len(value)):
        what = f"The text has {len(value)} characters, more than {schema['maxLength']}."
        yield Wrong(path, what, _right(schema))
    elif "pattern" in schema and not _compiled(schema["pattern"]).search(value):
        yield Wrong(path, f"{shown(value)} does not have the right form.", _right(schema))


@lru_cache(64)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _of_list(value: list[Any], schema: Schema, path: Path) -> Iterator[Wrong]:
    if len(value) < schema.get("minItems", 0):
        yield Wrong(path, "The list is empty.", _right(schema))
    if len(value) > schema.get("maxItems", len(value)):
        what = f"The list has {len(value)} parts, more than {schema['maxItems']}."
        yield Wrong(path, what, f"At most {schema['maxItems']} are possible.")
    for index, item in enumerate(value):
        yield from differences(item, schema["items"], (*path, index))


def _of_object(value: dict[str, Any], schema: Schema, path: Path) -> Iterator[Wrong]:
    known = schema.get("properties", {})
    others = schema["additionalProperties"]
    for name in schema.get("required", ()):
        if name not in value:
            what = f"The key {shown(name)} is missing."
            yield Wrong(path, what, f"{known[name]['description']} {_example(name, known[name])}")
    for key, item in value.items():
        if key in known:
            yield from differences(item, known[key], (*path, key))
        elif others is False:
            yield _unknown(key, list(known), path)
        else:
            for wrong in differences(key, schema["propertyNames"], (*path, key)):
                yield Wrong(wrong.path, f"As a key: {wrong.what}", wrong.right)
            yield from differences(item, others, (*path, key))


def _unknown(key: str, known: list[str], path: Path) -> Wrong:
    what = f"There is no key {shown(key)} here."
    near = nearest(key, known)
    places = (("$", SCHEMA), ("$.resources", SCHEMA["properties"]["resources"]))
    elsewhere = [
        place for place, schema in places if key in schema["properties"] and _KEYS.issuperset(known)
    ]
    if elsewhere:
        return Wrong((*path, key), what, f"It belongs to {elsewhere[0]}.")
    if near:
        return Wrong((*path, key), what, f"Did you mean {shown(near)}?")
    return Wrong((*path, key), what, f"There are: {', '.join(known)}.")


def _not_one_of(value: Any, schema: Schema, path: Path) -> Wrong:
    there = [str(each) for each in schema["enum"]]
    near = None
    if isinstance(value, str):
        near = _SAME.get(value) if _SAME.get(value) in there else nearest(value, there)
    right = f"One of {', '.join(map(shown, there))}."
    return Wrong(
        path,
        f"{_found(value)}, which is not an allowed value here.",
        f"Did you mean {shown(near)}? {right}" if near else right,
    )


def _found(value: Any) -> str:
    """ "It is the text "1" " and the like: what stands there, with its kind."""
    if isinstance(value, bool) or value is None:
        return f"It is {shown(value)}"
    if isinstance(value, list | dict):
        return f"It is {'a list' if isinstance(value, list) else 'an object'}"
    return f"It is the {'text' if isinstance(value, str) else 'number'} {shown(value)}"


def _wanted(schema: Schema) -> str:
    return " or ".join(_TYPES[name][0] for name in _types(schema))


def _right(schema: Schema, value: Any = None) -> str:
    """What would be right, as a sentence; it names what the value probably means."""
    if (meant := _meant(value, schema)) is not None:
        return f"Write {meant}."
    example = shown(schema["examples"][0])
    if "pattern" in schema and "description" in schema:
        return f"{schema['description']} For example: {example}"
    kinds = " or ".join(_TYPES[name][1 if not at else 0] for at, name in enumerate(_types(schema)))
    limits = f" from {schema['minimum']} to {schema['maximum']}" if "minimum" in schema else ""
    return f"{kinds}{limits}, such as {example}."


def _meant(value: Any, schema: Schema) -> str | None:
    """The same value in the right type: "1" where 1 is needed, and the other way round."""
    types = _types(schema)
    if isinstance(value, str) and "boolean" in types and value.lower() in _TRUTH:
        return _TRUTH[value.lower()]
    if isinstance(value, str) and "integer" in types and _SHORT_WHOLE.fullmatch(value.strip()):
        number = value.strip()
        return None if _is_wrong(int(number), schema) else f"{number}, without quotes"
    if "string" in types and _is_number(value):
        return None if _is_wrong(str(value), schema) else f'"{value}", in double quotes'
    if "array" in types and isinstance(value, str | int | float):
        return None if _is_wrong([value], schema) else f"[{shown(value)}]"
    return None


def _is_wrong(value: Any, schema: Schema) -> bool:
    return next(differences(value, schema), None) is not None


def _example(name: str, schema: Schema) -> str:
    return f"For example: {shown(name)}: {shown(schema['examples'][0])}"

"""Frozen dataclasses out of parsed JSON, as strictly as they were written: nothing is converted.

The container answers doctor with such values: a library for it takes longer to be imported than
the container to answer.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

_T = TypeVar("_T")


class TypedError(ValueError):
    """What is wrong with a value, and where: "inside.zombies: this is no int"."""


def read(kind: type[_T], value: object) -> _T:
    """The value of a dataclass; raises TypedError. Keys that it has no field for are left."""
    found: _T = _read(kind, value, "")
    return found


def _read(kind: Any, value: Any, place: str) -> Any:
    if kind is Any:
        return value
    if is_dataclass(kind):
        return _fields(kind, value, place)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _one_of(arguments, value, place)
    if origin is Literal:
        if any(value == item and type(value) is type(item) for item in arguments):
            return value
        raise _wrong(place, f"this is none of {', '.join(map(repr, arguments))}")
    if origin is tuple:
        _check(list, value, place)
        return tuple(
            _read(arguments[0], item, f"{place}[{number}]") for number, item in enumerate(value)
        )
    if origin in (dict, Mapping):
        _check(dict, value, place)
        return {
            _read(str, key, place): _read(arguments[1], item, f"{place}.{key}")
            for key, item in value.items()
        }
    _check(kind, value, place)
    return float(value) if kind is float else value


def _fields(kind: Any, value: Any, place: str) -> Any:
    _check(dict, value, place)
    kinds = _kinds(kind)
    given = {
        name: _read(each, value[name], f"{place}.{name}" if place else name)
        for name, each in kinds.items()
        if name in value
    }
    try:
        return kind(**given)
    except TypeError:  # a field without a default
        missing = ", ".join(name for name in kinds if name not in value)
        raise _wrong(place, f"this is missing: {missing}") from None


@cache
def _kinds(kind: Any) -> Mapping[str, Any]:
    hints = typing.get_type_hints(kind)
    return {item.name: hints[item.name] for item in fields(kind)}


def _one_of(kinds: tuple[Any, ...], value: Any, place: str) -> Any:
    """The value as the one kind beside None; a union of more is not used here."""
    if value is None and type(None) in kinds:
        return None
    (kind,) = (each for each in kinds if each is not type(None))
    return _read(kind, value, place)


def _check(kind: type, value: Any, place: str) -> None:
    """A bool is no int, and an int is a float."""
    allowed = (float, int) if kind is float else (kind,)
    if type(value) not in allowed:
        raise _wrong(place, f"this is no {kind.__name__}")
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _wrong(place, "this is no text: half of a pair") from None


def _wrong(place: str, why: str) -> TypedError:
    return TypedError(f"{place or 'this object'}: {why}")

"""Values that travel as JSON: frozen dataclasses as objects, read back as strictly as they were written.

Nothing is converted. The container answers doctor with such values, and jobs are submitted as them: a
library for it takes longer to be imported than the container to answer.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, fields, is_dataclass
from functools import cache
from itertools import repeat
from math import isfinite
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

_T = TypeVar("_T")
_Reader = Callable[[Any], Any]


class CodecError(ValueError):
    """What is wrong with a value, and where: "inside.zombies: this is no int"."""

    def __init__(self, why: str, place: str = "", *, around: str = "") -> None:
        super().__init__(around or f"{place or 'this object'}: {why}")
        self.why, self.place = why, place

    def within(self, step: str) -> CodecError:
        """The same of what lies around it."""
        joint = "." if self.place and not self.place.startswith("[") else ""
        return CodecError(self.why, f"{step}{joint}{self.place}")


class _Rules(NamedTuple):
    unknown: Literal["left", "refused"]
    halves: bool
    whole: bool


def to_json(value: Any, schema: str) -> dict[str, Any]:
    """The object of a dataclass, which names its schema."""
    return {"schema": schema, **asdict(value)}


def from_json(
    kind: type[_T],
    value: object,
    schema: str | None = None,
    *,
    unknown: Literal["left", "refused"] = "left",
    halves: bool = True,
    whole: bool = False,
) -> _T:
    """The value of a dataclass, or of a mapping; raises CodecError.

    What is missing has its default, or with `whole` is wrong. `unknown` are keys that there is no field
    for. `halves` of pairs, as which Python has bytes that are no UTF-8, may be in its texts.
    """
    wanted: Any = kind
    reader = _reader(wanted, _Rules(unknown, halves, whole))
    if schema is None:
        found: _T = reader(value)
        return found
    if not isinstance(value, dict) or value.get("schema") != schema:
        raise CodecError("its schema is another", around=f"not a {schema} object")
    try:
        found = reader({key: part for key, part in value.items() if key != "schema"})
    except CodecError as error:
        whole_text = f"not a {schema} object: {error}"
        raise CodecError(error.why, error.place, around=whole_text) from None
    return found


@cache
def _reader(kind: Any, rules: _Rules) -> _Reader:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda value: value
    if is_dataclass(kind):
        return lambda value: _object(kind, rules, value)
    if origin in (Union, types.UnionType):
        return _one_of(arguments, rules)
    if origin is Literal:
        return lambda value: _choice(arguments, value)
    if origin is tuple and arguments[1:] != (...,):
        return _fixed([_reader(each, rules) for each in arguments])
    if origin in (tuple, Sequence):
        return _many(_reader(arguments[0], rules))
    if origin in (dict, Mapping):
        return _mapping(_reader(str, rules), _reader(arguments[1], rules))
    return _scalar(kind, rules)


def _object(kind: Any, rules: _Rules, value: Any) -> Any:
    _need(value, dict)
    readers = _readers(kind, rules)
    if rules.unknown == "refused" and (unknown := value.keys() - readers.keys()):
        raise CodecError(f"there is no {min(unknown)}")
    given: dict[str, Any] = {}
    name = ""
    try:
        for name, reader in readers.items():
            if name in value:
                given[name] = reader(value[name])
    except CodecError as error:
        raise error.within(name) from None
    missing = [name for name in _required(kind, rules) if name not in given]
    if missing:
        raise CodecError(f"this is missing: {', '.join(missing)}")
    return kind(**given)


@cache
def _required(kind: Any, rules: _Rules) -> tuple[str, ...]:
    without_default = (
        item.name
        for item in fields(kind)
        if rules.whole or (item.default is MISSING and item.default_factory is MISSING)
    )
    return tuple(without_default)


@cache
def _readers(kind: Any, rules: _Rules) -> Mapping[str, _Reader]:
    hints = typing.get_type_hints(kind)
    return {item.name: _reader(hints[item.name], rules) for item in fields(kind)}


def _one_of(kinds: tuple[Any, ...], rules: _Rules) -> _Reader:
    """The first kind that takes the value; where there is one beside None, why that does not."""
    readers = [_reader(each, rules) for each in kinds if each is not types.NoneType]
    or_none = types.NoneType in kinds

    # What these take as it is; a float may be none of JSON's, a text half of a pair
    plain = {int, bool, str} & set(kinds) if rules.halves else {int, bool} & set(kinds)

    def read(value: Any) -> Any:
        if (value is None and or_none) or type(value) in plain:
            return value
        for reader in readers[:-1]:
            try:
                return reader(value)
            except CodecError:
                continue
        return readers[-1](value)

    return read


def _choice(known: tuple[Any, ...], value: Any) -> Any:
    if any(value == item and type(value) is type(item) for item in known):
        return value
    raise CodecError(f"this is none of {', '.join(map(repr, known))}")


def _many(reader: _Reader) -> _Reader:
    def read(value: Any) -> tuple[Any, ...]:
        _need(value, list, tuple)
        return _each(repeat(reader), value)

    return read


def _fixed(readers: list[_Reader]) -> _Reader:
    def read(value: Any) -> tuple[Any, ...]:
        _need(value, list, tuple)
        if len(value) != len(readers):
            raise CodecError(f"this has {len(value)} parts, not {len(readers)}")
        return _each(readers, value)

    return read


def _each(readers: Iterable[_Reader], items: Sequence[Any]) -> tuple[Any, ...]:
    found: list[Any] = []
    try:
        for reader, item in zip(readers, items, strict=False):
            found.append(reader(item))
    except CodecError as error:
        raise error.within(f"[{len(found)}]") from None
    return tuple(found)


def _mapping(name: _Reader, reader: _Reader) -> _Reader:
    def read(value: Any) -> dict[str, Any]:
        _need(value, dict)
        found, key = {}, None
        try:
            for key, item in value.items():
                found[name(key)] = reader(item)
        except CodecError as error:
            raise error.within(str(key)) from None
        return found

    return read


def _scalar(kind: type, rules: _Rules) -> _Reader:
    """A bool is no int, and an int is a float."""

    def read(value: Any) -> Any:
        _need(value, kind)
        if kind is str and not rules.halves and not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise CodecError("this is no text: half of a pair") from None
        return value

    return _number if kind is float else read


def _number(value: Any) -> float:
    _need(value, float, int)
    try:
        found = float(value)
    except OverflowError:
        found = float("inf")
    if not isfinite(found) or found != value:
        raise CodecError("this is no float: it is too large, or none of JSON's")
    return found


def _need(value: Any, kind: type, also: type | None = None) -> None:
    if type(value) not in (kind, also):
        raise CodecError(f"this is no {kind.__name__}")

"""A plan as a golden file holds it: JSON of what differs from the defaults, and back again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

from dshpc_setup.plan import (
    ClusterPlan,
    DeviceLink,
    ExtraLine,
    GresLine,
    Partition,
    Sharing,
)

_WIDTH = 100
_ITEMS: Mapping[str, type[Any]] = {
    "gres": GresLine,
    "device_links": DeviceLink,
    "more_partitions": Partition,
    "extra": ExtraLine,
}


def written(plan: ClusterPlan) -> str:
    """One line for each value or, where it is long, for each of its items, so that a change is one line.

    Of `gpus` there are the indices alone: the devices stand in facts.json, and no template names them.
    """
    values = _spare(plan) | {"gpus": [device.index for device in plan.gpus]}
    lines = (f" {json.dumps(key)}: {_text(value)}" for key, value in values.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def read(text: str) -> ClusterPlan:
    """The plan that `written` wrote, without its `gpus`."""
    values: dict[str, Any] = json.loads(text)
    del values["gpus"]
    for name, kind in _ITEMS.items():
        if name in values:
            values[name] = tuple(kind(**_tuples(item)) for item in values[name])
    if "sharing" in values:
        values["sharing"] = Sharing(**values["sharing"])
    return ClusterPlan(**_tuples(values))


def _spare(value: Any) -> Any:
    """As JSON; of a dataclass only what is not as declared."""
    if is_dataclass(value) and not isinstance(value, type):
        found = ((item, getattr(value, item.name)) for item in fields(value))
        return {item.name: _spare(each) for item, each in found if each != _default(item)}
    if isinstance(value, Mapping):
        return {key: _spare(each) for key, each in value.items()}
    return [_spare(each) for each in value] if isinstance(value, tuple) else value


def _default(item: Field[Any]) -> Any:
    return item.default if item.default_factory is MISSING else item.default_factory()


def _text(value: Any) -> str:
    whole = json.dumps(value, ensure_ascii=False)
    if len(whole) <= _WIDTH or not isinstance(value, list | dict):
        return whole
    if isinstance(value, dict):
        items = [f"{json.dumps(key)}: {json.dumps(each)}" for key, each in value.items()]
    else:
        items = [json.dumps(each, ensure_ascii=False) for each in value]
    begin, end = "{}" if isinstance(value, dict) else "[]"
    return f"{begin}\n  " + ",\n  ".join(items) + f"\n {end}"


def _tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _tuple(value) for key, value in values.items()}


def _tuple(value: Any) -> Any:
    if isinstance(value, dict):
        return _tuples(value)
    return tuple(map(_tuple, value)) if isinstance(value, list) else value

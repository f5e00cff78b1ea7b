"""Asking a vendor's library in a process of its own: it may hang in the kernel, or crash.

The question says one object at a time, as it learns things, so that what it said before it died is
not lost: `{"key": value, ...}` are merged, `{"device": {...}}` are collected, `{"failure": {...}}`
is why there is nothing to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dshpc_setup.machine import Ended, Reply, Say, workers


def ask(question: Callable[[Say], None], source: str, *, deadline_s: float) -> Reply:
    """A Reply with `{..., "devices": [...]}` of what the question said."""
    return reply(workers.ask({source: question}, deadline_s)[source], source)


def reply(ended: Ended, source: str) -> Reply:
    """What the child said, whatever it said; never raises."""
    value = _merge(ended.items)
    failure = value.pop("failure", None)
    if ended.state != "present":
        return Reply(ended.state, value, source, ended.detail)
    if isinstance(failure, dict):
        return _failed(failure, source)
    return Reply("present", value, source)


def devices(value: object) -> list[Mapping[str, Any]]:
    """The devices of a reply's value; a recorded one may hold anything in their place."""
    items = value.get("devices") if isinstance(value, dict) else None
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _merge(items: Iterable[Any]) -> dict[str, Any]:
    value: dict[str, Any] = {"devices": []}
    for item in items:
        if not isinstance(item, dict):
            continue
        if isinstance(item.get("device"), dict):
            value["devices"].append(item["device"])
        else:
            value.update({key: each for key, each in item.items() if key != "devices"})
    return value


def _failed(failure: dict[str, Any], source: str) -> Reply:
    state, code = failure.get("state"), failure.get("code")
    return Reply(
        state if state in ("absent", "denied", "timeout", "unsupported") else "error",
        None,
        source,
        str(failure.get("text") or "no reason was given"),
        code if isinstance(code, int) else None,
    )


def put(
    found: dict[str, Any],
    errors: dict[str, Any],
    key: str,
    ask_for: Callable[[], Any],
    code_of: Callable[[Exception], Any],
) -> None:
    """One field: its value into `found`, or what went wrong into `errors`; bytes become text."""
    try:
        value = ask_for()
    except Exception as error:  # noqa: BLE001  (one field must not hide the others)
        errors[key] = code_of(error)
        return
    found[key] = value.decode(errors="replace") if isinstance(value, bytes) else value

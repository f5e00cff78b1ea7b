"""Asking a vendor's library in a process of its own: it may hang in the kernel, or crash.

The child prints one JSON object a line, as it learns things, so that what it said before it died is
not lost: `{"key": value, ...}` lines are merged, `{"device": {...}}` lines are collected, and the
last line is `{"end": true}`.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dshpc_setup.machine import CommandResult, Machine, Reply

_FOLDER = Path(__file__).resolve().parent


def ask(
    machine: Machine, script: str, source: str, *, deadline_s: float, env: Mapping[str, str]
) -> Reply:
    """Run `script` of this folder: a Reply with `{..., "devices": [...]}` of what it printed.

    The interpreter runs isolated and without `site` (that is quicker, and nobody's PYTHONPATH
    reaches a library); it is handed our own search path instead.
    """
    argv = [sys.executable or "python3", "-I", "-S", str(_FOLDER / script), *filter(None, sys.path)]
    return parse(machine.run(argv, deadline_s=deadline_s, env=env), source)


def parse(result: CommandResult, source: str) -> Reply:
    """What the child said, whatever it said; never raises."""
    value, ended = _merge(result.stdout)
    if result.state == "timeout":
        seconds = result.ms / 1000
        return Reply("timeout", value, source, f"no answer within {seconds:.1f} s")
    if result.state != "present":
        return Reply("error", None, source, f"could not be asked: {result.stderr.strip()}")
    failure = value.pop("failure", None)
    if isinstance(failure, dict):
        return _failed(failure, source)
    if not ended:
        return Reply("error", value, source, _how_it_died(result))
    return Reply("present", value, source)


def _merge(stdout: str) -> tuple[dict[str, Any], bool]:
    value: dict[str, Any] = {"devices": []}
    ended = False
    for line in stdout.splitlines():
        try:
            item = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if not isinstance(item, dict):
            continue
        if isinstance(item.get("device"), dict):
            value["devices"].append(item["device"])
        elif item.get("end") is True:
            ended = True
        else:
            item.pop("devices", None)
            value.update(item)
    return value, ended


def _failed(failure: dict[str, Any], source: str) -> Reply:
    state, code = failure.get("state"), failure.get("code")
    return Reply(
        state if state in ("absent", "denied", "timeout", "unsupported") else "error",
        None,
        source,
        str(failure.get("text") or "no reason was given"),
        code if isinstance(code, int) else None,
    )


def _how_it_died(result: CommandResult) -> str:
    code = result.code or 0
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        how = f"the library crashed ({name})"
    else:
        how = f"the asking process ended early with code {code}"
    last = result.stderr.strip().splitlines()[-1:]
    return f"{how}: {last[0]}" if last else how

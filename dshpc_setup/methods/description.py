"""A method in words and as JSON: what it takes, what it needs, how it is run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from dshpc_setup.documents.shown import one_line, shown
from dshpc_setup.methods.model import Method, Parameter, Resources, Value
from dshpc_setup.methods.store import Entry
from dshpc_setup.terminal.sanitize import counted

_INPUT = {"single_file": "--input FILE", "multi_file": "--input FILE ...", "params_only": ""}


def needs(it: Resources) -> str:
    """What a job asks for, in a few words: "2 GPUs (h100, 40000 MB each), 4 CPUs, 2h"."""
    return ", ".join(_needs(it)) or "nothing in particular"


def _needs(it: Resources) -> Iterator[str]:
    if it.gpus and it.optional_gpus != "never":
        kind = [it.gpu_type or ""]
        kind += [f"{it.gpu_memory_mb} MB each" if it.gpu_memory_mb else ""]
        kind += [f"compute {it.min_compute_capability}" if it.min_compute_capability else ""]
        said = ", ".join(filter(None, kind))
        where = " where there are some" if it.optional_gpus == "auto" else ""
        yield f"{counted(it.gpus, 'GPU')}{f' ({said})' if said else ''}{where}"
    if it.shards:
        yield f"{counted(it.shards, 'shard')} of a GPU"
    if it.cuda:
        yield f"CUDA {it.cuda}"
    if it.nodes and it.nodes > 1:
        yield counted(it.nodes, "node")
    if it.tasks and it.tasks > 1:
        yield counted(it.tasks, "task")
    if it.cpus is not None:
        yield counted(it.cpus, "CPU") if it.cpus else "all CPUs"
    if memory := it.memory_mb or it.min_memory_mb:
        yield f"{memory} MB"
    if it.time_limit is not None:
        yield duration(it.time_limit)
    if it.exclusive:
        yield "the node to itself"


def duration(minutes: int) -> str:
    """ "90m", "2h", "1d": the largest unit that says it exactly."""
    for size, unit in ((1440, "d"), (60, "h")):
        if minutes % size == 0:
            return f"{minutes // size}{unit}"
    return f"{minutes}m"


def to_type(method: Method, called: str | None = None) -> str:
    """The command that runs it, with a place for each value that must be given; `called` is its path
    where it is known by that."""
    parts = ["dshpc method run", shlex.quote(called or method.name)]
    for each in method.parameters:
        if each.required and each.default is None:
            parts.append(f"-p {each.name}={_example(each)}")
    if method.input_modes and "params_only" not in method.input_modes:
        parts.append(_INPUT[method.input_modes[0]])
    return " ".join(parts)


def _example(each: Parameter) -> str:
    return (
        shlex.quote(_as_given(each.allowed_values[0])) if each.allowed_values else each.type.upper()
    )


def _as_given(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def listed(entry: Entry) -> dict[str, object]:
    """One method of `dshpc method list --json`."""
    it = entry.method
    return {
        "name": entry.name,
        "state": "valid" if it else "broken",
        "origin": entry.origin,
        "folder": str(entry.folder),
        "version": it.version if it else None,
        "description": it.description if it else None,
        "needs": needs(it.resources) if it else None,
        "problems": [asdict(each) for each in entry.problems],
    }


def as_json(method: Method, called: str | None = None) -> dict[str, Any]:
    """All that is declared, with what was not said resolved."""
    found: dict[str, Any] = asdict(method)
    return {**found, "folder": str(method.folder), "run": to_type(method, called)}


def lines(method: Method, called: str | None = None) -> Iterator[str]:
    """`dshpc method show`."""
    yield f"{method.name} {one_line(method.version)}".rstrip()
    if method.description:
        yield f"  {one_line(method.description)}"
    yield f"  Folder    {method.folder}"
    yield f"  Runs      {one_line(shlex.join([*method.command, method.script_path]))}"
    yield f"  Needs     {needs(method.resources)}"
    if method.env:
        yield f"  Packages  those that its folder {one_line(method.env)} declares"
    if method.image:
        yield f"  Image     {one_line(method.image)}"
    if method.requires:
        yield f"  Requires  the results of {', '.join(method.requires)}"
    if method.input_modes:
        yield f"  Input     {', '.join(each.replace('_', ' ') for each in method.input_modes)}"
    for name, value in method.resources.env.items():
        yield f"  Variable  {name}={one_line(value)}"
    for at, each in enumerate(method.parameters):
        yield f"  {'Takes' if not at else '':<9} {_parameter(each)}"
    yield f"  Run it    {to_type(method, called)}"


def _parameter(it: Parameter) -> str:
    parts: list[str] = [it.type]
    if it.default is not None:
        parts.append(f"default {shown(it.default)}")
    elif it.required:
        parts.append("required")
    if it.allowed_values:
        parts.append(f"one of {', '.join(map(shown, it.allowed_values))}")
    said = f": {one_line(it.description)}" if it.description else ""
    return f"{it.name} ({', '.join(parts)}){said}"

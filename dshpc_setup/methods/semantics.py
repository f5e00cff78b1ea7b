"""What a schema cannot say of method.json: one key against another, texts that mean something."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from dshpc_setup import gpu_vendors
from dshpc_setup.documents.shown import Path, shown
from dshpc_setup.methods.model import Value
from dshpc_setup.methods.schema import MOST_MINUTES
from dshpc_setup.methods.structure import Wrong, same
from dshpc_setup.methods.times import FORMS, minutes

# What dsHPC, Slurm and the drivers set for each job, or read to choose among its GPUs: a value of the
# method's would break it
_OURS = frozenset(
    "JOB_WORKSPACE INPUT_FILE INPUT_FILES PARAMS_FILE METHOD_DIR REQUIRES_FILE".split()
)
_OUR_PREFIXES = ("SLURM", "SBATCH_", "SRUN_", "SALLOC_", "PMI", "DSHPC_")
_SHELL_WORDS = frozenset("| || & && ; > >> < << 2> 2>&1 &> |&".split())
_FIRST_ROUNDED = 2**53
_OF_GPUS = ("gpu_type", "gpu_memory_mb", "min_compute_capability")


class Parts:
    """The parts of a document whose form is right; what is wrong is left out."""

    def __init__(self, value: Any, wrong: Sequence[Wrong]) -> None:
        self._value = value
        self._wrong = [each.path for each in wrong]

    def get(self, *path: str | int) -> Any:
        """The part, or None where there is none, or it or something in it is wrong."""
        at = self._value
        for part in path:
            try:
                at = at[part]
            except (KeyError, IndexError, TypeError):
                return None
        bad = any(wrong[: len(path)] == path for wrong in self._wrong)
        return None if bad and path else at

    def is_wrong(self, *path: str | int) -> bool:
        """Whether something stands there that is wrong in itself."""
        return path in self._wrong

    def each(self, *path: str | int) -> Iterator[tuple[Path, Any]]:
        """The items of a list or object that are right in themselves, with their paths.

        None where the list or object is itself wrong, and so may be of another kind.
        """
        if path in self._wrong:
            return
        at = self._value
        for part in path:
            at = at.get(part) if isinstance(at, dict) else None
        keys = at if isinstance(at, dict) else range(len(at)) if isinstance(at, list) else ()
        for key in keys:
            item = self.get(*path, key)
            if item is not None:
                yield (*path, key), item


def contradictions(parts: Parts) -> Iterator[Wrong]:
    """All that is wrong though each part has the right form."""
    yield from _command(parts.get("command"))
    yield from _resources(parts)
    yield from _environment(parts)
    yield from _parameters(parts)
    yield from _requires(parts)


def words(command: str | list[str]) -> tuple[str, ...]:
    """The words of a command; raises ValueError where quotes are left open."""
    return tuple(shlex.split(command)) if isinstance(command, str) else tuple(command)


def of_type(value: Value, kind: str) -> bool:
    """Whether a value of JSON is one of a parameter of that type.

    A float from 2**53 on may be another whole number than the one that was written.
    """
    if kind in ("string", "file"):
        return isinstance(value, str)
    if kind == "boolean":
        return isinstance(value, bool)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if kind == "number" or isinstance(value, int):
        return True
    return abs(value) < _FIRST_ROUNDED and value == int(value)


def capability(value: str | float) -> str | None:
    """ "8.0" of "8.0", 8 and 8.0; None of a number with more digits."""
    if isinstance(value, str):
        return value
    return f"{value:.1f}" if round(value, 1) == value else None


def _command(command: Any) -> Iterator[Wrong]:
    if command is None:
        return
    path: Path = ("command",)
    try:
        split = words(command)
    except ValueError:
        yield Wrong(
            path, "A quote in the command is not closed.", "Close it, or write \\' or \\\"."
        )
        return
    if not split or not split[0]:
        yield Wrong(path, "The command names no program.", 'For example: "python3"')
        return
    shell = [word for word in split if word in _SHELL_WORDS or word.endswith(";")]
    if isinstance(command, str) and shell:
        yield Wrong(
            path,
            f"{shown(shell[0])} is for a shell, and the command is not given to one.",
            'Put such lines into the script, with "command": "bash".',
        )
    if re.match(r"[A-Za-z_][A-Za-z0-9_]*=", split[0]):
        what = f"{shown(split[0])} sets a variable, and that is for a shell."
        yield Wrong(path, what, "Put it into $.resources.env.")
    elif "/" in split[0] and not os.path.isabs(split[0]):
        yield Wrong(
            path,
            f"{shown(split[0])} is looked for in the job's own new folder, and is not there.",
            "Name a program of the PATH, or its absolute path.",
        )


def _resources(parts: Parts) -> Iterator[Wrong]:
    def get(name: str) -> Any:
        return parts.get("resources", name)

    def wrong(name: str, what: str, right: str) -> Wrong:
        return Wrong(("resources", name), what, right)

    memory, least = get("memory_mb"), get("min_memory_mb")
    if memory is not None and least is not None and memory < least:
        what = f"The job would get {memory} MB, and needs at least {least} (min_memory_mb)."
        yield wrong("memory_mb", what, f"Write {least} or more, or leave one of the two out.")
    # How many are asked for is not known where that itself is wrong
    if not any(parts.is_wrong("resources", name) for name in ("gpus", "shards")):
        yield from _gpus(get)
    nodes, tasks = get("nodes"), get("tasks")
    if nodes is not None and tasks is not None and nodes > tasks:
        what = f"{nodes} nodes cannot share {tasks} tasks."
        yield wrong("nodes", what, f"At least one task for each node: tasks {nodes} or more.")
    limit = get("time_limit")
    if isinstance(limit, str):
        found = minutes(limit)
        if found is None:
            yield wrong("time_limit", f"{shown(limit)} is not a time.", FORMS)
        elif not 1 <= found <= MOST_MINUTES:
            what = f"{shown(limit)} is {'no time at all' if not found else 'more than ten years'}."
            yield wrong("time_limit", what, "Leave it out where the job may run on without an end.")
    compute = get("min_compute_capability")
    if compute is not None and capability(compute) is None:
        what = f"{shown(compute)} has too many digits."
        yield wrong("min_compute_capability", what, 'One digit behind the point, such as "8.6".')


def _gpus(get: Any) -> Iterator[Wrong]:
    """GPUs and what is said of them; `get` gives a resource by its name."""
    gpus, shards = get("gpus"), get("shards")
    if gpus and shards:
        yield Wrong(
            ("resources", "shards"),
            f"A job gets whole GPUs ({gpus}) or shards ({shards}), not both.",
            "Leave one of the two out.",
        )
    if gpus:
        return
    need = [*_OF_GPUS, "optional_gpus"] + ([] if shards else ["cuda"])
    for name in need:
        if get(name) is not None:
            said = "gpus is 0" if gpus == 0 else "no gpus are asked for"
            path: Path = ("resources", name)
            yield Wrong(path, f"{name} says something of GPUs, and {said}.", 'Add "gpus": 1.')


def _environment(parts: Parts) -> Iterator[Wrong]:
    for path, _ in parts.each("resources", "env"):
        name = str(path[-1])
        if name in _OURS or name in gpu_vendors.variables() or name.startswith(_OUR_PREFIXES):
            yield Wrong(
                path,
                f"{name} is set for each job, or says which of its GPUs a program sees.",
                "Leave it out, or choose another name.",
            )


def _parameters(parts: Parts) -> Iterator[Wrong]:
    seen: dict[str, int] = {}
    for path in _indexes(parts):
        name, kind = parts.get(*path, "name"), parts.get(*path, "type")
        if name is not None and name in seen:
            what = f"There are two parameters {shown(name)}; the first is number {seen[name]}."
            yield Wrong((*path, "name"), what, "Each has a name of its own.")
        elif name is not None:
            seen[name] = int(path[-1]) + 1
        if kind is not None:
            yield from _values(parts, path, kind)


def _indexes(parts: Parts) -> Iterator[Path]:
    """The paths of all parameters, those too in which something is wrong."""
    top = parts.get()
    listed = top.get("parameters") if isinstance(top, dict) else None
    for index in range(len(listed) if isinstance(listed, list) else 0):
        yield ("parameters", index)


def _values(parts: Parts, path: Path, kind: str) -> Iterator[Wrong]:
    default, allowed = parts.get(*path, "default"), parts.get(*path, "allowed_values")
    for index, value in enumerate(allowed or ()):
        if not of_type(value, kind):
            yield _other_type((*path, "allowed_values", index), value, kind)
    if default is None:
        return
    if not of_type(default, kind):
        yield _other_type((*path, "default"), default, kind)
    elif allowed is not None and not any(same(default, each) for each in allowed):
        there = ", ".join(map(shown, allowed[:10]))
        what = f"The default {shown(default)} is not one of the allowed values."
        yield Wrong((*path, "default"), what, f"One of {there}, or more allowed_values.")
    elif parts.get(*path, "required"):
        yield Wrong(
            (*path, "required"),
            "It has a default, so a run need not give it.",
            'Leave "default" out where each run is to choose; else leave "required" out.',
            note=True,
        )


def _other_type(path: Path, value: Value, kind: str) -> Wrong:
    right = {
        "string": "A text in double quotes.",
        "file": "The path of a file, in double quotes.",
        "boolean": "true or false, without quotes.",
        "integer": "A whole number, without quotes.",
        "number": "A number, without quotes.",
    }[kind]
    return Wrong(path, f"{shown(value)} is not of the parameter's type, {kind}.", right)


def _requires(parts: Parts) -> Iterator[Wrong]:
    seen: set[str] = set()
    for path, name in parts.each("requires"):
        if name == parts.get("name"):
            yield Wrong(path, "A method cannot need its own result.", "Take it out.")
        elif name in seen:
            yield Wrong(path, f"{shown(name)} comes twice.", "Take one out.")
        seen.add(name)

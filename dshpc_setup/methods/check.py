"""method.json -> a Method, or all that is wrong with it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from dshpc_setup.documents import json_text
from dshpc_setup.documents.document import MOST_BYTES, MOST_PROBLEMS, Document, Problem
from dshpc_setup.documents.shown import Path as JsonPath
from dshpc_setup.documents.shown import path_text, shown
from dshpc_setup.methods.model import Method, Parameter, Resources
from dshpc_setup.methods.schema import FILE, INPUT_MODES
from dshpc_setup.methods.semantics import Parts, capability, contradictions, words
from dshpc_setup.methods.structure import Wrong, differences
from dshpc_setup.methods.times import minutes

Checked = tuple[Method | None, tuple[Problem, ...]]

_SHELLS = frozenset(("sh", "bash", "dash", "ash", "ksh", "zsh"))
_LOOKED_AT = 64 * 1024  # of a script
_WHOLE_NUMBERS = ("cpus memory_mb min_memory_mb gpus gpu_memory_mb shards nodes tasks").split()
_AS_THEY_ARE = ("gpu_type", "optional_gpus", "exclusive", "env")


def read(folder: Path) -> Checked:
    """The method of that folder, or None and the problems; a valid one may have notes.

    `folder` is where its method.json lies, as it is to be named; its script is looked at too.
    """
    data = contents(folder / FILE)
    return (None, (data,)) if isinstance(data, Problem) else check(data, folder)


def may_be_there(path: Path) -> bool:
    """Whether there is something, or a folder on the way keeps us from looking: what that is, reading it
    says."""
    try:
        os.stat(path)
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return True


def contents(path: Path) -> bytes | Problem:
    """The bytes of a regular file, a little more than one may have at most; a pipe is not waited for."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return Problem("$", 1, "It is not a regular file.", "Put a plain text file there.")
            with os.fdopen(handle, "rb", closefd=False) as file:
                return file.read(MOST_BYTES + 1)
        finally:
            os.close(handle)
    except FileNotFoundError:
        right = "dshpc method init NAME makes a method that works."
        return Problem("$", 1, f"There is no {path.name} in {path.parent}.", right)
    except OSError as error:
        return Problem("$", 1, f"It cannot be read: {error.strerror}.", "Make it readable for you.")


def check(data: bytes, folder: Path, *, look: bool = True) -> Checked:
    """As `read`, for the bytes of a file; `look` false leaves the files beside it alone."""
    text = json_text.read(data)
    if not text.is_whole:
        return None, text.problems
    room = MOST_PROBLEMS - len(text.problems)
    wrong = list(islice(differences(text.value), room))
    parts = Parts(text.value, wrong)
    wrong += islice(contradictions(parts), room - len(wrong))
    if look:
        wrong += islice(_files(parts, folder), max(0, room - len(wrong)))
    problems = (*text.problems, *(_placed(each, text) for each in wrong))
    problems = tuple(sorted(problems, key=lambda each: each.line))
    if any(not each.note for each in problems):
        return None, problems
    return _method(text.value, folder), problems


def _placed(wrong: Wrong, text: Document) -> Problem:
    return Problem(
        path_text(wrong.path), text.line(wrong.path), wrong.what, wrong.right, wrong.note
    )


def _files(parts: Parts, folder: Path) -> Iterator[Wrong]:
    """The script, the environment, and files that are a parameter's default."""
    script = parts.get("script_path")
    if script is not None:
        found = list(_inside(folder, script, ("script_path",), "The script"))
        yield from found or _for_a_shell(parts.get("command"), folder / script)
    env = parts.get("env")
    if env is not None:
        yield from _inside(folder, env, ("env",), "The folder", is_folder=True)
    listed = parts.get("parameters") or ()
    for index, each in enumerate(listed):
        default = each.get("default")
        if each["type"] == "file" and isinstance(default, str) and not os.path.isabs(default):
            path = ("parameters", index, "default")
            yield from _inside(folder, default, path, "The file")


def _inside(
    folder: Path, name: str, path: JsonPath, what: str, *, is_folder: bool = False
) -> Iterator[Wrong]:
    """That a file, or a folder, of the method lies in its own, links followed, and can be read."""
    right = "A path relative to the folder of method.json, and inside it."
    try:
        top, real = os.path.realpath(folder), os.path.realpath(os.path.join(folder, name))
        mode = os.stat(real).st_mode
    except (FileNotFoundError, NotADirectoryError):
        yield Wrong(path, f"{what} {shown(name)} does not exist in {folder}.", right)
        return
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a name too long, a NUL
        why = getattr(error, "strerror", None) or error
        yield Wrong(path, f"{what} {shown(name)} cannot be found: {why}.", right)
        return
    if os.path.commonpath((top, real)) != top:
        link = "" if ".." in Path(name).parts else ", behind a symbolic link"
        what_is = (
            f"{what} {shown(name)} lies outside the method's folder{link}: jobs may not see it."
        )
        yield Wrong(path, what_is, "Put it into the method's folder.")
    elif is_folder and not stat.S_ISDIR(mode):
        yield Wrong(path, f"{what} {shown(name)} is not a folder.", "The path of a folder.")
    elif not is_folder and not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
        yield Wrong(path, f"{what} {shown(name)} is {kind}.", "The path of a file.")
    elif not os.access(real, os.R_OK):
        yield Wrong(path, f"{what} {shown(name)} cannot be read by you.", f"chmod +r {shown(name)}")


def _for_a_shell(command: Any, script: Path) -> Iterator[Wrong]:
    """Line ends of Windows, which shells take for part of each command."""
    program = words(command)[0].rsplit("/", 1)[-1] if command and not _open(command) else ""
    if program not in _SHELLS:
        return
    data = contents(script)
    if isinstance(data, bytes) and b"\r\n" in data[:_LOOKED_AT]:
        yield Wrong(
            ("script_path",),
            f"The lines of {shown(script.name)} end as on Windows (CRLF), and {program} fails on them.",
            f"Save it with line ends of Unix (LF), for example: sed -i 's/\\r$//' {script.name}",
        )


def _open(command: str | Sequence[str]) -> bool:
    try:
        return not words(command)  # type: ignore[arg-type]
    except ValueError:
        return True


def _method(value: dict[str, Any], folder: Path) -> Method:
    """Of a value that is right in all."""
    return Method(
        name=value["name"],
        command=words(value["command"]),
        script_path=value["script_path"],
        folder=folder,
        description=value.get("description", ""),
        version=value.get("version", ""),
        input_modes=tuple(
            dict.fromkeys(INPUT_MODES[each] for each in value.get("input_modes", ()))
        ),
        parameters=tuple(_parameter(each) for each in value.get("parameters", ())),
        resources=_resources(value.get("resources", {})),
        requires=tuple(value.get("requires", ())),
        env=value.get("env", ""),
        image=value.get("image", ""),
    )


def _parameter(value: dict[str, Any]) -> Parameter:
    return Parameter(
        name=value["name"],
        type=value["type"],
        description=value.get("description", ""),
        required=value.get("required", False),
        default=_number(value.get("default"), value["type"]),
        allowed_values=tuple(
            _number(each, value["type"]) for each in value.get("allowed_values", ())
        ),
    )


def _number(value: Any, kind: str) -> Any:
    """1.0 is a whole number in JSON."""
    return int(value) if kind == "integer" and value is not None else value


def _resources(value: dict[str, Any]) -> Resources:
    given: dict[str, Any] = {name: int(value[name]) for name in _WHOLE_NUMBERS if name in value}
    given |= {name: value[name] for name in _AS_THEY_ARE if name in value}
    limit = value.get("time_limit")
    if limit is not None:
        given["time_limit"] = minutes(limit) if isinstance(limit, str) else int(limit)
    if "min_compute_capability" in value:
        given["min_compute_capability"] = capability(value["min_compute_capability"])
    if "cuda" in value:
        given["cuda"] = re.sub(r"^[0-9]+$", r"\g<0>.0", value["cuda"])
    return Resources(**given)

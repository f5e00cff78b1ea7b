"""Options of other tools that people type here, and what to use in their place.

Slurm refuses them without a word of what to do.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from dshpc_setup.cli import exec_stdin
from dshpc_setup.errors import DshpcError, usage_error

COMMANDS = ("srun", "sbatch", "salloc")

_IMAGE = (
    "Slurm's own option is --container=BUNDLE, a folder with an OCI bundle in it.",
    (
        "Run a command in an image: dshpc run --image FILE -- COMMAND",
        "To put packages into the image: dshpc env add PACKAGE, then configure-environment",
    ),
)
_FOLDERS = (
    "Jobs see the work folder (the setting work) under the same path as on the host, and nothing else of it.",
    (
        "Leave the option out, and put what the job needs into the work folder.",
        "See which folder it is: dshpc config show. To change it: configure-environment --work DIR",
        "Or have a file copied for a job: dshpc run --input FILE -- COMMAND",
    ),
)
_HINTS: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        **dict.fromkeys(
            ("container", "container-id", "container-image", "container-name", "image", "runtime"),
            _IMAGE,
        ),
        **dict.fromkeys(("container-mounts", "volume", "volumes", "mount"), _FOLDERS),
    }
)
_MAGIC = "#SBATCH"


def refusal(command: str, option: str) -> DshpcError | None:
    """What to say of that option (`--volume=/data:/data`), None for one that is nobody's."""
    name = option.removeprefix("--").partition("=")[0]
    hint = _HINTS.get(name) if option.startswith("--") else None
    if hint is None or (name == "container" and command in COMMANDS):
        return None
    return usage_error(f"dshpc {command} does not take --{name}.", hint[0], *hint[1])


def check(command: str, arguments: Sequence[str]) -> None:
    """Raises DshpcError (usage) where an option of Slurm's command itself, or of the script that sbatch is
    given, is one of these; what stands behind the program is the program's."""
    rest = iter(arguments)
    for word in rest:
        if word == "--" or not word.startswith("-"):
            if command == "sbatch":
                _check_script(next(rest, "") if word == "--" else word)
            return
        if (refused := refusal(command, word)) is not None:
            raise refused
        if takes_next(command, word):
            next(rest, None)


def _check_script(path: str) -> None:
    for number, words in _script_options(path):
        for word in words:
            if (refused := refusal("sbatch", word)) is not None:
                where = f"Line {number} of {path} asks for it (#SBATCH). {refused.details}"
                raise replace(refused, details=where)


def _script_options(path: str) -> Iterator[tuple[int, list[str]]]:
    """(line, its options) as sbatch reads them: up to the first line that is a command."""
    if not os.path.isfile(path):  # a pipe can be read once only
        return
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read(exec_stdin.MOST_OF_SCRIPT).splitlines()
    except OSError:
        return
    for number, line in enumerate(lines, 1):
        if line.startswith(_MAGIC):
            text = line[len(_MAGIC) :]
            try:
                yield number, shlex.split(text, comments=True)
            except ValueError:
                yield number, text.split()
        elif line.strip() and not line.lstrip().startswith("#"):
            return


def takes_next(command: str, word: str) -> bool:
    """Whether the argument of this option of srun, sbatch or salloc is the word behind it."""
    if not word.startswith("--"):
        known = exec_stdin.options()
        flags = known.sbatch_short if command == "sbatch" else known.srun_short
        return exec_stdin.short_takes_next(word[1:], flags)
    name, equals, _ = word[2:].partition("=")
    if equals:
        return False
    others = exec_stdin.options().srun
    return not exec_stdin.is_long_flag(name) and not any(it.startswith(name) for it in others)

"""Our commands as they can be typed from here, and errors that advise them."""

from __future__ import annotations

import os
import re
import shlex
import sys

from dshpc_setup.engine_client import in_builtins_words, in_podmans_words
from dshpc_setup.errors import DshpcError
from dshpc_setup.terminal.commands import COMMANDS, EXEC_COMMANDS
from dshpc_setup.terminal.sanitize import harmless

# Our commands where a sentence names them, and not where they are part of a path or a name
_OURS = re.compile(
    r"(?<![\w./-])(?:configure-environment(?![\w-])"
    rf"|dshpc(?= (?:(?:{'|'.join(sorted(COMMANDS | EXEC_COMMANDS))})\b|\.\.\.)))"
)


def _in_dockers_words(text: str) -> str:
    return text


_in_engines_words = _in_dockers_words


def dshpc_command() -> str:
    """How `dshpc` can be called from here: by its name, or by the path of the checkout's launcher."""
    return _called("dshpc")


def advise_podman() -> None:
    """From now on the engine's commands are Podman's: the project's own engine is known."""
    global _in_engines_words
    _in_engines_words = in_podmans_words


def advise_builtin() -> None:
    """The same of the built-in one, whose client is a long name that nobody has on a PATH."""
    global _in_engines_words
    _in_engines_words = in_builtins_words


def as_called(text: str) -> str:
    """Advice with our commands as they can be called from here: a checkout is on nobody's PATH.

    The engine's are those of the project's own. What stands in it of jobs, users, files and programs
    commands no terminal.
    """
    text = _in_engines_words(text)
    whole, by_path = "cd " in text, "sudo " in text  # sudo has a PATH of its own
    return _OURS.sub(lambda found: _called(found[0], whole=whole, by_path=by_path), harmless(text))


def _called(name: str, *, whole: bool = False, by_path: bool = False) -> str:
    """The command's name, or its path beside the launcher; `whole`: good from any folder.

    Who has typed `dshpc`, as it is on the PATH, types that again; configure-environment is not beside it
    there. A relative path is for who stands in the launcher's folder, or a step below or above;
    `../var/x/dshpc` is nothing that anybody has typed.
    """
    launcher = os.environ.get("DSHPC_COMMAND")
    if not launcher:
        return name
    if os.environ.get("DSHPC_ON_PATH") and not by_path:
        return "dshpc configure" if name == "configure-environment" else name
    path = os.path.join(os.path.dirname(launcher), name)
    try:
        # In the container we stand elsewhere than who called
        relative = os.path.relpath(path, os.environ.get("DSHPC_HERE") or None)
    except FileNotFoundError:  # the folder that we stand in was removed
        whole, relative = True, path
    far = relative not in (name, f"../{name}") and relative.startswith("../")
    if whole or far or path == f"/{relative}":
        return shlex.quote(path)
    return shlex.quote(relative if "/" in relative else f"./{relative}")


def print_error(error: DshpcError, program: str = "dshpc") -> None:
    """The error on stderr: what happened, why, what to do."""
    lines = [f"{program}: {harmless(_in_engines_words(error.brief))}"]
    lines += [f"  {line}" for line in harmless(error.details).strip().splitlines()]
    if error.resolution:
        lines.append("What to do:")
        lines += [f"  - {as_called(step)}" for step in error.resolution]
    sys.stderr.write("\n".join(lines) + "\n")
    sys.stderr.flush()

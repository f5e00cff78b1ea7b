"""What the compose tool itself says about a patched file, before it is written."""

from __future__ import annotations

from pathlib import Path

from dshpc_setup.compose_patch.command import Checked
from dshpc_setup.engine.packages import last_lines
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import Compose
from dshpc_setup.machine import CommandResult, Machine
from dshpc_setup.machine.no_answer import in_words
from dshpc_setup.probes.compose import find_compose

_FIND_S = 10.0
_CONFIG_S = 30.0
_MOST_SHOWN = 300


def checked(machine: Machine, file: Path, old: str, new: str) -> Checked:
    """What the compose tool of this machine says, where there is one; `file` is absolute."""
    try:
        compose = find_compose(machine, _FIND_S)
    except DshpcError as error:  # it is silent, which is not absence
        return Checked(note=f"No compose tool checked it: {error.brief}")
    if compose is None:
        return Checked(note="No compose tool checked it: none is installed here.")
    return config(machine, compose, file, old, new)


def config(machine: Machine, compose: Compose, file: Path, old: str, new: str) -> Checked:
    """Its name where it takes the new text; a note where it takes neither, or did not answer.

    Raises DshpcError where it takes the old text and not the new one. Nothing is started, and no
    file is written: the text goes to its standard input, in the folder of `file`, so that `.env` and
    relative paths are found.
    """
    tool = f"{' '.join(compose.argv)} {compose.version}"
    after = _config(machine, compose, file, new)
    if after.ok:
        return Checked(by=tool)
    if after.state != "present":
        why = in_words(after) if after.state == "timeout" else f"no answer ({after.state})"
        return Checked(note=f"{tool} did not check it: {why}.")
    before = _config(machine, compose, file, old)
    if before.ok:
        raise DshpcError(
            f"{tool} does not take {file} with the GPU stanza; nothing was written.",
            last_lines(after),
            ("Choose another way of handing over the GPU: --mechanism device-request.",
             "Or install a newer Compose."),
        )  # fmt: skip
    why = " ".join(last_lines(before).split())
    why = why if len(why) <= _MOST_SHOWN else f"{why[:_MOST_SHOWN]}..."
    what = "it does not take the file without the GPU stanza either"
    return Checked(note=f"{tool} could not check it: {what}: {why}")


def _config(machine: Machine, compose: Compose, file: Path, text: str) -> CommandResult:
    folder = str(file.parent)
    argv = [*compose.argv, "--project-directory", folder, "-f", "-", "config", "-q"]
    # compose v1 is a Python program, which would read its standard input in the encoding of the locale
    env = {"PYTHONIOENCODING": "utf-8"}
    return machine.run(argv, deadline_s=_CONFIG_S, stdin=text.encode(), env=env, cwd=folder)

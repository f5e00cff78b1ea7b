"""The environment of a job, made by uv on the host: wheels in the layout of a venv of the image's Python.

uv runs no code of what it installs, and builds nothing. The paths that are written into it are those that it
has in the end, and in the container.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

from dshpc_setup.documents import foreign
from dshpc_setup.engine.site import gather_site
from dshpc_setup.environment import packing
from dshpc_setup.environment import uv as uv_module
from dshpc_setup.environment.declared_folder import Declared
from dshpc_setup.environment.target import FULL, INTERPRETER, PYTHON
from dshpc_setup.machine import Machine

_FIRST_LINE = 127  # what older kernels read of a script for its program
_REQUIRES = re.compile(r"(?m)^requires-python = .*$")
_PYTHONS = ("python", "python3", f"python{PYTHON}")


def make(
    machine: Machine, declared: Declared, into: Path, final: str, say: Callable[[str], None]
) -> None:
    """Install what is declared into the folder `into`, which is there and will be called `final`.

    Raises DshpcError where uv cannot, OSError where the folder cannot be written.
    """
    found = uv_module.find(machine, declared.architecture, gather_site(machine))
    uv = uv_module.of_jobs(machine, found)
    say(f"environment: making it from {declared.folder}")
    scratch = into / "scratch"
    scratch.mkdir()
    for name, text in declared.texts:
        (scratch / name).write_bytes(text)
    if declared.kind == "lock":
        # It says which Python may resolve the lock; what is installed is for the image's
        locked = _REQUIRES.sub("", uv_module.export(machine, uv, scratch))
        file = scratch / "pylock.toml"
        file.write_text(locked, encoding="utf-8")
    else:
        file = scratch / declared.texts[0][0]
    tree = into / "tree"
    uv_module.install_prefix(machine, uv, file, tree, say)
    finish(tree, final, uv.python)


def finish(tree: Path, final: str, python: str) -> None:
    """What uv has laid out for `python` of this machine as a venv of the image's Python, at `final`."""
    (tree / ".lock").unlink(missing_ok=True)
    lib, bin_ = tree / "lib", tree / "bin"
    for folder in (lib, bin_):
        folder.mkdir(parents=True, exist_ok=True)
    own = lib / f"python{PYTHON}"
    for made in lib.glob("python3.*"):
        if made != own:
            made.rename(own)
    (own / "site-packages").mkdir(parents=True, exist_ok=True)
    if (tree / "lib64").is_symlink():
        (tree / "lib64").unlink()
    started = f"{final}/bin/python3"
    start_scripts(bin_, python, started)
    for name in _PYTHONS:
        (bin_ / name).unlink(missing_ok=True)
        (bin_ / name).symlink_to(INTERPRETER)
    config = {"home": os.path.dirname(INTERPRETER), "include-system-site-packages": "false",
              "version": FULL}  # fmt: skip
    (tree / "pyvenv.cfg").write_text("".join(f"{key} = {value}\n" for key, value in config.items()))
    name_kernels(tree, started)


def start_scripts(folder: Path, python: str, started: str) -> None:
    """Have the scripts that start `python` of this machine start that of the environment."""
    for path in folder.iterdir():
        if path.is_file() and not path.is_symlink():
            text = path.read_bytes()
            changed = packing.script(text, python, _first_line(started))
            if changed != text:
                path.unlink()  # a link into uv's cache, where others take it from
                path.write_bytes(changed)
                path.chmod(0o755)


def name_kernels(tree: Path, started: str) -> None:
    """Jupyter's kernels start the Python of the environment that they are of."""
    for path in tree.glob("share/jupyter/kernels/*/kernel.json"):
        _name_python(path, started)


def _first_line(python: str) -> bytes:
    """What starts a script by that Python, whatever its path is (as uv and pip write it)."""
    line = f"#!{python}"
    if len(line.encode()) <= _FIRST_LINE and not re.search(r"\s", python):
        return line.encode()
    return f"#!/bin/sh\n'''exec' {shlex.quote(python)} \"$0\" \"$@\"\n' '''".encode()


def _name_python(path: Path, python: str) -> None:
    """A kernel of Jupyter is this environment's, whichever Jupyter starts it."""
    try:
        value = foreign.value(path.read_text(encoding="utf-8"))
        is_plain = isinstance(value, Mapping) and value["argv"][0] in _PYTHONS
    except (ValueError, LookupError, TypeError):
        return
    if is_plain:
        text = json.dumps({**value, "argv": [python, *value["argv"][1:]]}, indent=1)
        path.unlink()
        path.write_text(text + "\n", encoding="utf-8")

"""A process of ours is started with what we import, wherever that lies."""

from __future__ import annotations

import os
from pathlib import Path

import typer

import dshpc_setup
from dshpc_setup.cluster import own_process


def test_it_finds_our_package_and_what_that_imports() -> None:
    """Python's -I passes PYTHONPATH over: of packages in a folder that it names none would be found."""
    argv = own_process.program(["node", "token"], "/somewhere")
    assert argv[1:3] == ["-I", "-c"]
    folder, path, *words = argv[4:]
    assert (folder, words) == ("/somewhere", ["node", "token"])
    folders = path.split(os.pathsep)
    assert folders[0] == str(Path(dshpc_setup.__file__).parents[1])
    assert str(Path(typer.__file__).parents[1]) in folders

"""A machine's name becomes a word of ssh's command line, and never an option of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.adding import host
from dshpc_setup.adding.connection import Connection
from dshpc_setup.errors import DshpcError, Exit


@pytest.mark.parametrize(
    "text", ["lab7", "ada@lab7", "ada@10.0.0.7", "root@gpu-1.example.org", "a.b+c@[fe80::1]", "::1"]
)
def test_what_ssh_takes(text: str) -> None:
    assert host.read(text, "dshpc-lab").name == text


@pytest.mark.parametrize(
    "text",
    ["", "-oProxyCommand=x", "ada@-x", "a b", "a\nb", "lab7;x", "ssh://lab7", "$(x)", "x" * 300, "x'"],
)  # fmt: skip
def test_what_names_no_machine(text: str) -> None:
    with pytest.raises(DshpcError, match="names no machine") as caught:
        host.read(text, "dshpc-lab")
    assert caught.value.exit_code == Exit.USAGE


@given(st.text(max_size=40), st.text(max_size=40))
def test_the_command_line_ends_with_the_host_and_the_script(name: str, folder: str) -> None:
    try:
        found = host.read(name, folder)
    except DshpcError:
        return
    machine: Any = object()
    argv = Connection(machine, found, Path("/tmp/x")).argv("true")
    assert argv[-3:] == ["--", name, "true"]
    assert not name.startswith("-")
    assert argv.index("--") == len(argv) - 3
    # The folder is a word of a shell there
    inside = found.shell_folder.removeprefix('"$HOME/').removeprefix('"').removesuffix('"')
    assert not set(inside) & set("\"'`$\\!;& \n")
    assert ".." not in inside.split("/")


@pytest.mark.parametrize(
    "folder", ["", ".", "..", "a/../b", "/", "-x", "a b", "~/x", "a/$x", "x" * 300]
)
def test_folders_that_are_none(folder: str) -> None:
    with pytest.raises(DshpcError, match="no folder for the node"):
        host.read("lab7", folder)


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_ports_that_are_none(port: int) -> None:
    with pytest.raises(DshpcError, match="is no port"):
        host.read("lab7", "dshpc-lab", port)


def test_somebody_is_asked_by_the_first_call_alone() -> None:
    machine: Any = object()
    there = Connection(machine, host.read("lab7", "x", 2222), Path("/tmp/x"))
    assert "BatchMode=yes" not in there.argv("true", first=True, may_ask=True)
    assert "ControlMaster=yes" in there.argv("true", first=True)
    assert "BatchMode=yes" in there.argv("true")
    assert "ControlMaster=no" in there.argv("true")
    assert there.argv("true")[-5:-3] == ["-p", "2222"]

"""What uv laid out for this machine's Python as a venv of the image's."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dshpc_setup.environment import prefix, uv, uv_failures
from dshpc_setup.machine import CommandResult
from tests.unit.image.fakes import FakeMachine

HOSTS = "/srv/dshpc/.venv/bin/python"
FINALS = ("/w/jobs/1/.envs/ab", '/a folder/with $HOME and `x` and "quotes"/ab', f"/{'d' * 200}/ab")


def laid_out(tree: Path, python: str = "python3.11") -> None:
    (tree / "lib" / python / "site-packages" / "six").mkdir(parents=True)
    (tree / "bin").mkdir()
    (tree / "bin" / "tool").write_text(f"#!{HOSTS}\nprint('hello')\n")
    (tree / "bin" / "data").write_bytes(b"\x7fELF\0")
    (tree / ".lock").touch()
    kernel = tree / "share/jupyter/kernels/python3"
    kernel.mkdir(parents=True)
    (kernel / "kernel.json").write_text('{"argv": ["python", "-m", "x"], "language": "python"}')


@pytest.mark.parametrize("python", ["python3.11", "python3.13", "python3.10"])
def test_it_is_a_venv_of_the_images_python(tmp_path: Path, python: str) -> None:
    laid_out(tmp_path, python)
    prefix.finish(tmp_path, "/w/ab", HOSTS)
    assert os.listdir(tmp_path / "lib") == ["python3.13"]
    assert (tmp_path / "lib/python3.13/site-packages/six").is_dir()
    assert os.readlink(tmp_path / "bin/python3") == "/usr/bin/python3"
    assert "home = /usr/bin\n" in (tmp_path / "pyvenv.cfg").read_text()
    assert (tmp_path / "bin/data").read_bytes() == b"\x7fELF\0"
    assert not (tmp_path / ".lock").exists()
    kernel = json.loads((tmp_path / "share/jupyter/kernels/python3/kernel.json").read_text())
    assert kernel == {"argv": ["/w/ab/bin/python3", "-m", "x"], "language": "python"}


def test_one_of_no_packages_is_one(tmp_path: Path) -> None:
    prefix.finish(tmp_path, "/w/ab", HOSTS)
    assert (tmp_path / "lib/python3.13/site-packages").is_dir()


@pytest.mark.parametrize("final", FINALS, ids=["plain", "quoted", "long"])
def test_scripts_are_started_by_its_python(tmp_path: Path, final: str) -> None:
    laid_out(tmp_path)
    prefix.finish(tmp_path, final, HOSTS)
    first, rest = (tmp_path / "bin/tool").read_text().split("print", 1)
    assert HOSTS not in first
    assert rest == "('hello')\n"
    assert first.splitlines()[0] in (f"#!{final}/bin/python3", "#!/bin/sh")
    if first.startswith("#!/bin/sh"):
        compile(first, "tool", "exec")  # to Python it is a text


def test_a_changed_script_leaves_uvs_cache_as_it_is(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    laid_out(tree)
    os.link(tree / "bin/tool", tmp_path / "cached")
    prefix.finish(tree, "/w/ab", HOSTS)
    assert (tmp_path / "cached").read_text().startswith(f"#!{HOSTS}\n")


def test_what_uv_says_of_a_folder_names_no_command_for_the_cluster() -> None:
    done = CommandResult(("uv",), "present", 1, "", "x was not found in the package registry", 1.0)
    of_cluster, of_folder = (
        uv_failures.error(done, (), of_cluster=of_cluster) for of_cluster in (True, False)
    )
    assert any("dshpc env show" in step for step in of_cluster.resolution)
    assert of_folder.resolution == ("Correct its name.",)


@pytest.mark.parametrize(
    ("env", "kept"),
    [
        ({"HOME": "/home/ada"}, "/home/ada/.cache/dshpc/uv"),
        ({"HOME": "/home/ada", "UV_CACHE_DIR": "/big/uv/"}, "/big/uv-of-jobs"),
    ],
)
def test_what_jobs_may_write_in_is_not_what_others_are_made_of(
    env: dict[str, str], kept: str
) -> None:
    machine = FakeMachine(env=env)
    found = uv.of_jobs(machine, uv.Uv("/uv", "/python", "amd64", {"LC_ALL": "C"}))
    assert found.env == {"LC_ALL": "C", "UV_CACHE_DIR": kept}

"""What goes to the other machine is a checkout that starts, the same each time."""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path

import pytest

from dshpc_setup.adding import adding, program
from dshpc_setup.adding.look import Found
from dshpc_setup.errors import DshpcError
from scripts.share_in_wheel import SHARED

ROOT = Path(__file__).parents[3]


def test_the_archive_is_a_checkout(tmp_path: Path) -> None:
    digests = [
        program.pack(tmp_path / name, packages=False, arch="x86_64") for name in ("one", "two")
    ]
    assert digests[0] == digests[1]
    with tarfile.open(tmp_path / "one") as archive:
        members = {member.name: member for member in archive}
        for name in ("configure-environment", "dshpc", ".carried/join", ".carried/clean"):
            assert members[name].mode == 0o755
        for name in ("scripts/environment.py", "requirements.lock", "dshpc_setup/errors.py"):
            taken = archive.extractfile(members[name])
            assert taken is not None
            assert taken.read() == (ROOT / name).read_bytes()
    assert not [name for name in members if "__pycache__" in name or name.startswith(("/", ".."))]
    sourced = (ROOT / "scripts/launch.sh").read_text() + (ROOT / "dshpc").read_text()
    for path in (ROOT / "scripts").iterdir():
        if f"scripts/{path.name}" in sourced:
            assert f"scripts/{path.name}" in members, path


def test_a_wheel_has_all_of_it() -> None:
    assert set(program._FILES) - {"browser"} <= set(SHARED)


def test_packages_are_those_of_the_lock_and_nothing_else(tmp_path: Path) -> None:
    program.pack(tmp_path / "file", packages=True, arch="x86_64")
    with tarfile.open(tmp_path / "file") as archive:
        names = archive.getnames()
    below = ".carried/packages-{}.{}-x86_64/".format(*sys.version_info[:2])
    packages = {name.removeprefix(below).split("/")[0] for name in names if name.startswith(below)}
    assert {"typer", "pydantic"} & packages
    assert not {"mypy", "pytest", "hypothesis", "uv", "dshpc_setup"} & packages


@pytest.mark.parametrize(
    ("told", "fits"),
    [
        ({}, True),
        ({"python": "3.9"}, False),
        ({"arch": "aarch64"}, False),
        ({"libc": ""}, False),
        ({"python": ""}, False),
    ],
)
def test_packages_go_where_they_run(
    told: dict[str, str], fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dshpc_setup.adding.program.platform.libc_ver", lambda: ("glibc", "2.36"))
    same = {"python": "{}.{}".format(*sys.version_info[:2]), "arch": "x86_64", "libc": "glibc 2.31"}
    assert program.fits(Found(same | told), "x86_64") is fits


@pytest.mark.parametrize("words", [("--join", "x"), ("--dir=/x",), ("-y",), ("--x", ""), ("a\nb",)])
def test_words_that_are_not_the_users_to_say(words: tuple[str, ...]) -> None:
    with pytest.raises(DshpcError):
        adding.refuse_words(words)


def test_other_words_go_along() -> None:
    adding.refuse_words(("--engine", "builtin", "--simulate=t4:1", "--listen", "eth0"))

"""Who gets his own home in the container, and what was kept of him before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dshpc_setup.container import own_homes, users
from dshpc_setup.container.accounts import User
from dshpc_setup.slurm.paths import HOME_ROOTS, HOMES, Paths
from tests.unit.container.test_users import GROUP, PASSWD
from tests.unit.engine.fake import Answer, FakeMachine

ME, GID = os.getuid() or 4711, os.getgid()
ADA = User(ME, GID, "ada", "/home/ada")


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    for folder in ("etc", "home/ada", HOMES[1:], "var/lib/dshpc/state"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "etc/passwd").write_text(PASSWD)
    (tmp_path / "etc/group").write_text(GROUP)
    if os.getuid() == 0:
        os.chown(tmp_path / "home/ada", ME, GID)
    monkeypatch.setenv(HOME_ROOTS, "/home:/users")
    return Paths(str(tmp_path))


def kept(paths: Paths, text: str = "x") -> Path:
    file = Path(paths.homes, "ada/sub/file")
    file.parent.mkdir(parents=True)
    file.write_text(text)
    if os.getuid() == 0:
        os.chown(f"{paths.homes}/ada", ME, GID)
    return file


def test_a_home_that_is_seen_and_the_users(paths: Paths) -> None:
    assert users.add(paths, ADA).home == "/home/ada"
    assert users.add(paths, User(ME, GID, "ada")).home == "/home/ada"  # as it was told before
    assert users.restore(paths) == 1
    known = Path(paths.run, f"users/{ME}").read_text()
    assert known == f"{GID}:ada:/home/ada:ada\n/home/ada\n"
    assert not Path(paths.homes, "ada").exists()


@pytest.mark.parametrize(
    ("home", "why"),
    [
        ("/root", "elsewhere"),
        ("/home", "elsewhere"),
        ("/home/../etc", "elsewhere"),
        ("/users/ada", "missing"),
    ],
)
def test_one_that_is_not(paths: Paths, home: str, why: str) -> None:
    user = User(ME, GID, "ada", home)
    found = own_homes.why_not(paths, user, ("/home", "/users"))
    assert found == why
    assert home in own_homes.words(found, user)
    assert users.add(paths, user).home == f"{HOMES}/ada"


def test_another_users(paths: Paths) -> None:
    assert own_homes.why_not(paths, User(ME + 1, GID, "bob", "/home/ada"), ("/home",)) == "not his"


def test_where_homes_are_kept_none_is_given(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(HOME_ROOTS)
    assert users.add(paths, ADA).home == f"{HOMES}/ada"


def test_what_is_kept_is_copied_first(paths: Paths) -> None:
    kept(paths, "12345")
    assert users.add(paths, ADA).home == f"{HOMES}/ada"
    (found,) = users.kept(paths)
    assert (found.uid, found.folder, found.files, found.bytes) == (ME, f"{HOMES}/ada", 1, 5)

    full = FakeMachine(commands={"setpriv": Answer("", 1, "No space left on device")})
    (done,) = users.copy_kept(full, paths, {})
    assert (done.to, done.why) == ("", "No space left on device")
    assert users.add(paths, ADA).home == f"{HOMES}/ada"

    machine = FakeMachine(commands={"setpriv": Answer("/home/ada/dshpc-home")})
    (done,) = users.copy_kept(machine, paths, {})
    assert (done.to, done.why) == ("/home/ada/dshpc-home", "")
    argv = machine.ran[-1]
    assert argv[:5] == ("setpriv", "--reuid", str(ME), "--regid", str(GID))
    assert argv[-2:] == (paths.at(f"{HOMES}/ada"), paths.at("/home/ada"))
    assert users.add(paths, ADA).home == "/home/ada"
    assert users.kept(paths) == ()


def test_links_and_empty_folders_are_kept_as_well(paths: Paths) -> None:
    kept(paths).unlink()
    (found,) = own_homes.all_kept(paths, [ADA])
    assert found.files == 0
    Path(paths.homes, "ada/data").symlink_to("/")
    (found,) = own_homes.all_kept(paths, [ADA])
    assert (found.files, found.bytes) == (1, 1)
    assert own_homes.why_not(paths, ADA, ("/home",)) == "kept files"


def test_a_home_that_is_kept_again_is_copied_again(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(paths)
    users.add(paths, ADA)
    machine = FakeMachine(commands={"setpriv": Answer("/home/ada/dshpc-home")})
    list(users.copy_kept(machine, paths, {}))
    monkeypatch.delenv(HOME_ROOTS)
    users.restore(paths)
    monkeypatch.setenv(HOME_ROOTS, "/home")
    assert len(users.kept(paths)) == 1

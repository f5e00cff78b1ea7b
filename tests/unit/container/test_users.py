"""Users of the host in the container's passwd and group files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.container import accounts, users
from dshpc_setup.container.accounts import User
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.slurm.paths import HOMES, Paths

PASSWD = f"root:x:0:0:root:{accounts.ROOTS}:/bin/bash\nslurm:x:64030:64030::/nonexistent:/usr/sbin/nologin\n"
GROUP = "root:x:0:\nslurm:x:64030:\nusers:x:100:\n"

names = st.text(
    st.characters(exclude_characters=":,", exclude_categories=("Cc", "Cs", "Zl", "Zp", "Zs")),
    min_size=1,
    max_size=40,
).filter(lambda text: text[0] not in "+-#" and text == text.strip())
people = st.builds(User, st.integers(1, 2**32 - 2), st.integers(0, 2**32 - 2), names)


def test_a_user_gets_an_entry_and_a_group() -> None:
    made = accounts.merge(PASSWD, GROUP, [User(1000, 1000, "ada")])
    assert made.passwd == f"{PASSWD}ada:x:1000:1000:dsHPC user:{HOMES}/ada:/bin/bash\n"
    assert made.group == GROUP + "ada:x:1000:\n"


def test_a_domain_user_keeps_its_name() -> None:
    (known,) = accounts.merge(PASSWD, GROUP, [User(9, 9, "DOM\\ada lovelace")]).known
    assert known.login == "DOM\\ada lovelace"
    assert known.home == f"{HOMES}/DOM_ada_lovelace"


def test_a_group_of_the_image_is_used() -> None:
    assert accounts.merge(PASSWD, GROUP, [User(1000, 100, "ada")]).group == GROUP


def test_no_name_is_given_twice() -> None:
    found = [User(2, 2, "slurm-3"), User(3, 3, "slurm")]
    made = accounts.merge(PASSWD, GROUP, found)
    assert [known.login for known in made.known] == ["slurm-3", "slurm-3-3"]
    assert made.group.endswith("slurm-3:x:2:\nslurm-3-3:x:3:\n")


def test_a_user_who_is_called_as_our_own_groups() -> None:
    found = [User(1, 1, "dshpc-gpu-"), User(2, 2, "0")]
    once = accounts.merge(PASSWD, GROUP, found)
    assert accounts.merge(once.passwd, once.group, found) == once


def test_a_uid_of_the_image_keeps_its_own_entry() -> None:
    made = accounts.merge(PASSWD, GROUP, [User(64030, 1000, "ada")])
    assert made.passwd == PASSWD
    assert made.known[0].login == "slurm"


def test_a_name_of_the_image_is_not_given_away() -> None:
    made = accounts.merge(PASSWD, GROUP, [User(1000, 1000, "slurm")])
    assert made.known[0].login == "slurm-1000"
    assert made.group.endswith("slurm-1000:x:1000:\n")


def test_two_users_of_one_name_are_told_apart() -> None:
    """Where a user was made anew, with another number, the name is this one's from the first command on."""
    made = accounts.merge(PASSWD, GROUP, [User(1, 1, "ada"), User(2, 2, "ada")])
    assert [known.login for known in made.known] == ["ada-1", "ada"]
    assert len({known.home for known in made.known}) == 2


def test_a_home_is_never_shared() -> None:
    made = accounts.merge(PASSWD, GROUP, [User(1, 1, "a/b"), User(2, 2, "a_b")])
    assert [known.home for known in made.known] == [f"{HOMES}/a_b", f"{HOMES}/a_b-2"]


def test_every_user_is_in_the_groups_of_the_gpus() -> None:
    found = [User(1000, 1000, "ada"), User(64030, 100, "me"), User(7, 4242, "bob")]
    group = GROUP + "render:x:105:root\ndshpc-gpu-9:x:9:gone\n"
    made = accounts.merge(PASSWD, group, found, (105, 993, 4242))
    assert made.group == (
        GROUP + "render:x:105:root,ada,slurm,bob\nada:x:1000:\nbob:x:4242:ada,slurm,bob\n"
        "dshpc-gpu-993:x:993:ada,slurm,bob\n"
    )


@given(
    st.lists(people, max_size=6, unique_by=lambda user: user.uid),
    st.lists(st.integers(1, 2**32 - 2), max_size=3, unique=True),
)
def test_membership_is_complete_and_said_once(found: list[User], gids: list[int]) -> None:
    once = accounts.merge(PASSWD, GROUP, found, gids)
    lines = [line.split(":") for line in once.group.splitlines()]
    for gid in gids:
        (members,) = [fields[3].split(",") for fields in lines if fields[2] == str(gid)]
        assert set(members) - {""} == {known.login for known in once.known}
    assert accounts.merge(once.passwd, once.group, found, gids) == once


def test_the_groups_of_the_gpus_are_those_of_their_device_files(tmp_path: Path) -> None:
    gid = 4242 if os.getuid() == 0 else os.getgid()
    for name in ("kfd", "dri/renderD128", "dri/card0", "nvidia-caps/nvidia-cap1", "shm"):
        path = tmp_path / "dev" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert users.gpu_gids(Paths(str(tmp_path))) == ((gid,) if os.getuid() else ())
    for name in ("dri/renderD128", "nvidia-caps/nvidia-cap1"):
        os.chown(tmp_path / "dev" / name, -1, gid)
    assert users.gpu_gids(Paths(str(tmp_path))) == (gid,)
    assert users.gpu_gids(Paths(str(tmp_path / "none"))) == ()


@given(st.lists(people, max_size=6, unique_by=lambda user: user.uid))
def test_every_user_is_found_by_uid_and_the_image_stays(found: list[User]) -> None:
    once = accounts.merge(PASSWD, GROUP, found)
    lines = [line.split(":") for line in once.passwd.splitlines()]
    assert all(len(fields) == 7 for fields in lines)
    assert once.passwd.startswith(PASSWD)
    assert once.group.startswith(GROUP)
    assert len({fields[0] for fields in lines}) == len(lines)
    for known in once.known:
        assert [fields[0] for fields in lines if fields[2] == str(known.user.uid)] == [known.login]
    assert accounts.merge(once.passwd, once.group, found) == once


@given(st.lists(people, max_size=6))
def test_the_list_is_read_as_it_was_written(found: list[User]) -> None:
    assert accounts.from_text(accounts.to_text(found)) == tuple(found)


def test_a_damaged_list_is_no_empty_list() -> None:
    with pytest.raises(DshpcError, match="Line 2"):
        accounts.from_text("1:1::ada\nrubbish\n")


@pytest.mark.parametrize(
    ("uid", "gid", "name", "home"),
    [
        ("0", "0", "root", None),
        ("-1", "0", "ada", None),
        ("1000", "x", "ada", None),
        ("4294967295", "0", "ada", None),
        ("1000", "1000", "", None),
        ("1000", "1000", "a:b", None),
        ("1000", "1000", "a,b", None),
        ("1000", "1000", "a\nroot", None),
        ("1000", "1000", "+ada", None),
        ("1000", "1000", "#ada", None),
        ("1000", "1000", "ada", "relative"),
        ("1000", "1000", "ada", "/home:/bin/sh"),
    ],
)
def test_what_cannot_be_a_user_is_refused(uid: str, gid: str, name: str, home: str | None) -> None:
    with pytest.raises(DshpcError) as caught:
        accounts.checked(uid, gid, name, home)
    assert caught.value.exit_code == Exit.USAGE


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    for folder in ("etc", "home", "var/lib/dshpc/state"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "etc/passwd").write_text(PASSWD)
    (tmp_path / "etc/group").write_text(GROUP)
    return Paths(str(tmp_path))


def test_a_user_outlives_the_container(paths: Paths, tmp_path: Path) -> None:
    ada = User(os.getuid() or 1000, os.getgid(), "ada")
    users.add(paths, ada)
    users.add(paths, ada)
    (tmp_path / "etc/passwd").write_text(PASSWD)  # a new container of the same image
    assert users.restore(paths) == 1
    assert f"ada:x:{ada.uid}:" in (tmp_path / "etc/passwd").read_text()
    home = tmp_path / HOMES[1:] / "ada"
    assert (home.stat().st_uid, home.stat().st_mode & 0o777) == (ada.uid, 0o700)
    assert (tmp_path / "home/ada").readlink() == Path(HOMES, "ada")
    marker = tmp_path / f"run/dshpc/users/{ada.uid}"
    assert marker.read_text() == f"{ada.gid}:ada:{HOMES}/ada:ada\n\n"


def test_a_user_added_later_may_use_the_gpus_too(paths: Paths, tmp_path: Path) -> None:
    (tmp_path / "dev/dri").mkdir(parents=True)
    (tmp_path / "dev/dri/renderD128").touch()
    gid = 4242 if os.getuid() == 0 else os.getgid()
    os.chown(tmp_path / "dev/dri/renderD128", -1, gid)
    uid = os.getuid() or 1000
    users.restore(paths)
    assert f"dshpc-gpu-{gid}:x:{gid}:\n" in (tmp_path / "etc/group").read_text()
    users.add(paths, User(uid, os.getgid(), "ada"))
    assert f":x:{gid}:ada\n" in (tmp_path / "etc/group").read_text()
    (tmp_path / "etc/group").write_text(GROUP)  # a new container of the same image
    users.restore(paths)
    assert f":x:{gid}:ada\n" in (tmp_path / "etc/group").read_text()


def test_a_user_who_changed_replaces_the_earlier_one(paths: Paths, tmp_path: Path) -> None:
    uid = os.getuid() or 1000
    users.add(paths, User(uid, os.getgid(), "ada"))
    users.add(paths, User(uid, os.getgid(), "ada.l"))
    assert (tmp_path / "var/lib/dshpc/state/users").read_text() == f"{uid}:{os.getgid()}::ada.l\n"
    passwd = (tmp_path / "etc/passwd").read_text()
    assert "\nada:" not in passwd
    assert f":{HOMES}/ada:" in passwd, "what is there stays this user's"


def test_nobody_is_given_anothers_home_and_each_keeps_his_own() -> None:
    """The list of users may be lost, and names change; the volume with what people have made stays."""

    def home(user: User, **owners: int) -> str:
        there = {f"{HOMES}/{name}": uid for name, uid in owners.items()}
        return accounts.merge(PASSWD, GROUP, [user], owners=there).known[0].home

    ada = User(1000, 1000, "ada")
    assert home(ada) == home(ada, ada=1000) == home(ada, ada=0) == f"{HOMES}/ada"
    assert home(ada, ada=1001) == f"{HOMES}/ada-1000"
    assert home(ada, ada=1001, lovelace=1000) == f"{HOMES}/lovelace"
    assert home(User(1001, 1001, "root")) == f"{HOMES}/root-1001"


@pytest.mark.parametrize("kind", ["link", "file"])
def test_no_link_is_followed_to_a_home(paths: Paths, tmp_path: Path, kind: str) -> None:
    homes, target = tmp_path / HOMES[1:], tmp_path / "etc/target"
    homes.mkdir(parents=True)
    target.mkdir(mode=0o755)
    if kind == "link":
        (homes / "ada").symlink_to(target)
    else:
        (homes / "ada").touch()
    before = target.stat()
    with pytest.raises(DshpcError, match="cannot be the home of ada"):
        users.add(paths, User(os.getuid() or 1000, os.getgid(), "ada"))
    assert (target.stat().st_uid, target.stat().st_mode) == (before.st_uid, before.st_mode)


def test_what_a_user_has_made_of_the_home_stays(paths: Paths, tmp_path: Path) -> None:
    ada = User(os.getuid() or 1000, os.getgid(), "ada")
    users.add(paths, ada)
    home = tmp_path / HOMES[1:] / "ada"
    home.chmod(0o755)
    (home / "result").write_text("x\n")
    users.restore(paths)
    assert (home.stat().st_mode & 0o777, (home / "result").read_text()) == (0o755, "x\n")


def test_roots_home_is_kept_too() -> None:
    image = PASSWD.replace(accounts.ROOTS, "/root")
    assert accounts.merge(image, GROUP, []).passwd == PASSWD


def test_where_all_are_one_root_has_that_users_home(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a batch job had another $HOME than srun."""
    monkeypatch.setattr("dshpc_setup.jobs.rights.is_one_id", lambda: True)
    for _ in range(2):
        users.add(paths, User(os.getuid() or 1000, os.getgid(), "ada"))
        lines = (tmp_path / "etc/passwd").read_text().splitlines()
        assert {line.split(":")[5] for line in lines if line.startswith(("root:", "ada:"))} == {
            f"{HOMES}/ada"
        }

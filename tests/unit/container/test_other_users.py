"""Users who are somebody else on the machine of another node."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from dshpc_setup.container import nodes, other_users
from dshpc_setup.container.accounts import User
from dshpc_setup.errors import DshpcError
from dshpc_setup.jobs.offer import NODES
from dshpc_setup.observed.model import OtherUser
from dshpc_setup.slurm.paths import Paths

ADA = User(4711, 4711, "ada")


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    made = Paths(str(tmp_path))
    Path(made.at(f"{NODES}/lab2")).mkdir(parents=True)
    (Path(made.state) / "users").write_text("4711:4711::ada\n4712:4712::bob\n")
    return made


def test_who_is_another_there_is_found_for_one_and_for_all(paths: Paths) -> None:
    other_users.keep(paths, "lab2", "ada:x:1005:5:Ada,Room 3:/home/ada:/bin/sh\neve:x:4712:1::/:\n")
    ada = OtherUser("lab2", "ada", 4711, 1005)
    assert other_users.on_other_machines(paths, (ADA,)) == (ada,)
    assert other_users.on_other_machines(paths) == (
        ada,
        OtherUser("lab2", "bob", 4712, None, "eve"),
    )
    nodes.forget(paths, "lab2")
    assert other_users.on_other_machines(paths) == ()


def test_of_people_there_names_and_numbers_are_kept_for_root_alone(paths: Paths) -> None:
    other_users.keep(
        paths, "lab2", "ada:secret:4711:5:Ada,Room 3:/home/ada:/bin/sh\nbroken\n:x:y\n"
    )
    kept = Path(paths.at(f"{NODES}/lab2/users"))
    assert kept.read_text() == "ada:x:4711\n"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert other_users.on_other_machines(paths, (ADA,)) == ()


@pytest.mark.parametrize("node", ["lab3", "../lab2", "", "."])
def test_a_node_that_is_none_keeps_nothing(paths: Paths, node: str) -> None:
    with pytest.raises(DshpcError):
        other_users.keep(paths, node, "ada:x:1:\n")
    assert list(Path(paths.at(f"{NODES}/lab2")).iterdir()) == []

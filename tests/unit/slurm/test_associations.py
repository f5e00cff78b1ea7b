"""Users and accounts as sacctmgr is told them, and tells them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.slurm import associations
from dshpc_setup.slurm.client import Slurm
from tests.unit.engine.fake import Answer, FakeMachine


@given(st.lists(st.text(max_size=12), max_size=5))
def test_no_name_says_more_than_itself(names: list[str]) -> None:
    told = associations.nameable(names)
    assert set(told) <= set(names)
    if told:
        asked = associations.add_users(
            Slurm(FakeMachine(commands={"sacctmgr": Answer()})), "lab", told, deadline_s=1
        )
        (word,) = (each for each in asked.argv if each.startswith("name="))
        assert word.removeprefix("name=").split(",") == list(told)
        assert not set("[]='\" \n") & set(word.removeprefix("name="))


@pytest.mark.parametrize("name", ["ada", "Bob", "CORP\\eve", "jo.do@lab", "zoé", "a-b_c$"])
def test_ordinary_names_can_be_told(name: str) -> None:
    assert associations.nameable([name]) == (name,)


def test_lists_are_read() -> None:
    accounts, users = associations.parse("root|\nroot|root\nusers|\nusers|Bob\nlab|Bob\n")
    assert accounts == {"root", "users", "lab"}
    assert users == {"root", "Bob"}
    with pytest.raises(ValueError, match="nobody"):
        associations.parse("sacctmgr: error: nobody")


@pytest.mark.parametrize(
    ("text", "up"),
    [
        ("slurmdbd(primary) at lab is UP\n", True),
        ("slurmdbd(primary) at lab is DOWN\n", False),
        ("", False),
        ("x slurmdbd(primary) at lab is UP", False),
    ],
)
def test_a_ping(text: str, up: bool) -> None:
    assert associations.is_up(text) is up

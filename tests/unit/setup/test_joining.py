"""Whose jobs a machine that joins can run, by the ids that a container of its user has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from dshpc_setup.builtin import rights
from dshpc_setup.builtin.ids import Ids
from dshpc_setup.builtin.rights import Rights
from dshpc_setup.engine_client import BUILTIN, DOCKER
from dshpc_setup.errors import DshpcError
from dshpc_setup.setup import joining as setup_joining

WAYS = {
    "root": Rights(Ids("root")),
    "mapped": Rights(Ids("mapped", 100000, 100000)),
    "single": Rights(Ids("single"), lack="subuid"),
}


class Join:
    """What is asked of it."""

    def __init__(self, *, one_user: bool) -> None:
        self.one_user, self.owner, self.own_work = one_user, 0, False

    def without_share(self) -> bool:
        had, self.own_work = not self.own_work, True
        return had

    def keep_to(self, owner: int) -> None:
        self.owner = owner


def fit(monkeypatch: pytest.MonkeyPatch, way: str, join: Join, kind: str = BUILTIN) -> str | None:
    monkeypatch.setattr(rights, "find", lambda _: WAYS[way])
    monkeypatch.setattr(rights, "current_user", lambda: "ada")
    machine: Any = SimpleNamespace(uid=1000)
    return setup_joining.fit_ids(machine, cast(Any, join), kind)


def test_without_a_range_of_ids_it_takes_its_users_jobs_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    join = Join(one_user=False)
    told = fit(monkeypatch, "single", join)
    assert (join.owner, join.own_work) == (1000, True)
    assert told is not None
    assert "takes the jobs of ada (user number 1000) alone" in told
    assert "usermod --add-subuids" in told


@pytest.mark.parametrize(
    ("way", "kind"), [("root", BUILTIN), ("mapped", BUILTIN), ("root", DOCKER)]
)
def test_with_ids_for_all_it_takes_everybodys(
    monkeypatch: pytest.MonkeyPatch, way: str, kind: str
) -> None:
    join = Join(one_user=False)
    told = fit(monkeypatch, way, join, kind)
    assert (join.owner, join.own_work) == (0, way == "mapped")
    assert (told is None) == (way == "root")


def test_a_cluster_of_one_user_has_nodes_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    join = Join(one_user=True)
    assert fit(monkeypatch, "single", join) is None
    assert (join.owner, join.own_work) == (0, False)
    with pytest.raises(DshpcError, match="run as one user, root"):
        fit(monkeypatch, "root", join)

"""Two clusters on one engine that give jobs the same GPUs: each is told of the other."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from dshpc_setup.cluster import neighbours
from dshpc_setup.observed.model import OtherCluster
from dshpc_setup.project.folder import GPUS_LABEL
from dshpc_setup.render.labels import PROJECT_LABEL
from tests.unit.engine.fake import Answer, FakeMachine

A, B = "GPU-a", "GPU-b"


def engine(gpus: Mapping[str, str], stopped: tuple[str, ...] = ()) -> FakeMachine:
    """An engine with a cluster for each prefix; the label of its GPUs."""

    def inspect(command: tuple[str, ...]) -> Answer:
        prefix = command[-1].removesuffix("-slurm")
        runs = prefix not in stopped
        state = {"Running": runs, "Status": "running" if runs else "exited", "ExitCode": 0}
        labels = {GPUS_LABEL: gpus[prefix], PROJECT_LABEL: f"/home/{prefix}"}
        value = {"Id": prefix, "Name": f"/{prefix}-slurm", "Image": "i", "Created": "", "State": state,
                 "Config": {"Image": "i", "Labels": labels}}  # fmt: skip
        return Answer(json.dumps([value]))

    names = "".join(f"{prefix}-slurm\n" for prefix in gpus)
    return FakeMachine(commands={"docker ps -a": Answer(names), "docker inspect": inspect})


def test_both_name_the_other() -> None:
    gpus = {"ada": f"{A},{B}", "bob": B}
    machine = engine(gpus)
    assert neighbours.sharing(machine, "ada-slurm", gpus["ada"]) == (
        OtherCluster("bob", "/home/bob", (B,)),
    )
    assert neighbours.sharing(machine, "bob-slurm", gpus["bob"]) == (
        OtherCluster("ada", "/home/ada", (B,)),
    )


@pytest.mark.parametrize(
    ("other", "stopped"), [(B, ()), ("", ()), (A, ("bob",)), (f"{A}0", ())],
    ids=["another GPU", "none", "stopped", "a longer name"],
)  # fmt: skip
def test_who_shares_nothing_is_not_named(other: str, stopped: tuple[str, ...]) -> None:
    machine = engine({"ada": A, "bob": other}, stopped)
    assert neighbours.sharing(machine, "ada-slurm", A) == ()


def test_a_cluster_without_gpus_asks_nobody() -> None:
    machine = engine({"ada": "", "bob": A})
    assert neighbours.sharing(machine, "ada-slurm", "") == ()
    assert machine.ran == []

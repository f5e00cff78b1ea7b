"""No job begins while somebody waits for those that run."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from dshpc_setup.container import hold
from dshpc_setup.errors import DshpcError
from dshpc_setup.slurm.paths import Paths
from tests.unit.engine.fake import Answer, FakeMachine

SHOWN = """PartitionName=debug AllowGroups=ALL State=UP TotalCPUs=2
PartitionName=short AllowGroups=ALL State=UP TotalCPUs=2
PartitionName=closed AllowGroups=ALL State=DRAIN TotalCPUs=2
"""


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    (tmp_path / "run/dshpc").mkdir(parents=True)
    return Paths(str(tmp_path))


def slurm(**more: Answer) -> FakeMachine:
    answers = {name.replace("_", " "): answer for name, answer in more.items()}
    return FakeMachine(
        commands={
            **answers,
            "scontrol -o show partition": Answer(SHOWN),
            "scontrol update": Answer(),
        }
    )


def orders(machine: FakeMachine) -> list[str]:
    return [" ".join(argv[2:]) for argv in machine.ran if argv[1] == "update"]


def test_only_open_partitions_are_closed_and_opened(paths: Paths) -> None:
    machine = slurm()
    hold.begin(machine, paths)
    assert orders(machine) == [f"partitionname={name} state=DOWN" for name in ("debug", "short")]
    assert machine.daemons[0][0] == ("dshpc-node", "hold", "watch")
    with pytest.raises(DshpcError, match="waits already"):
        hold.begin(machine, paths)
    hold.renew(machine, paths)
    hold.end(machine, paths)
    assert orders(machine)[4:] == [f"partitionname={name} state=UP" for name in ("debug", "short")]
    with pytest.raises(DshpcError, match="not held any more"):
        hold.renew(machine, paths)
    hold.end(machine, paths)  # it was, by whoever came first
    assert len(orders(machine)) == 6


def test_a_lease_that_nobody_renews_ends(paths: Paths) -> None:
    machine = slurm()
    hold.begin(machine, paths)
    old = time.time() - hold.LEASE_S - 1
    os.utime(f"{paths.run}/hold", (old, old))
    with pytest.raises(DshpcError, match="not held any more"):
        hold.renew(machine, paths)
    hold.watch(machine, paths)
    assert orders(machine)[2:] == [f"partitionname={name} state=UP" for name in ("debug", "short")]
    assert not os.path.exists(f"{paths.run}/hold")
    hold.begin(machine, paths)  # and another may wait


def test_where_slurm_does_not_do_it_all_is_as_before(paths: Paths) -> None:
    refuses = {"scontrol_update_partitionname=short_state=DOWN": Answer("", 1, "no")}
    machine = slurm(**refuses)
    with pytest.raises(DshpcError, match="short"):
        hold.begin(machine, paths)
    assert orders(machine)[-2:] == ["partitionname=debug state=UP", "partitionname=short state=UP"]
    silent = FakeMachine(commands={"scontrol": Answer("", 1, "no")})
    with pytest.raises(DshpcError, match="could not be asked"):
        hold.begin(silent, paths)
    assert not silent.daemons

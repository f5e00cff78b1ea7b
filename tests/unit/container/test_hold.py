"""No job begins while somebody waits for those that run."""

from __future__ import annotations

import os
import time

import pytest

from dshpc_setup.container import hold
from dshpc_setup.errors import DshpcError
from dshpc_setup.slurm.paths import Paths
from tests.unit.engine.fake import Answer, Answers, FakeMachine

SHOWN = """PartitionName=debug AllowGroups=ALL State=UP TotalCPUs=2
PartitionName=short AllowGroups=ALL State=UP TotalCPUs=2
PartitionName=closed AllowGroups=ALL State=DRAIN TotalCPUs=2
"""


def slurm(**more: Answers) -> FakeMachine:
    answers = {name.replace("_", " "): answer for name, answer in more.items()}
    usual = {"scontrol -o show partition": Answer(SHOWN), "scontrol update": Answer()}
    return FakeMachine(
        commands={**answers, **{name: usual[name] for name in usual if name not in answers}}
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


def test_a_slurmctld_that_does_not_answer_is_asked_until_it_does(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the partitions of one who has gone would stay closed for ever."""
    hold.begin(slurm(), paths)
    lost = Answer("", 1, "Unable to contact slurm controller (connect failure)")
    machine = slurm(
        scontrol_update=[lost, lost, Answer()],
        **{"scontrol_-o_show_partition": [lost, lost, Answer(SHOWN)]},
    )
    with pytest.raises(DshpcError, match="debug UP"):
        hold.end(machine, paths)
    with pytest.raises(DshpcError, match="not held any more"):
        hold.renew(machine, paths)
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    hold.watch(machine, paths)
    assert len(slept) == 2
    assert orders(machine)[2:] == [f"partitionname={name} state=UP" for name in ("debug", "short")]
    assert not os.path.exists(f"{paths.run}/hold")


def test_what_one_who_was_killed_has_closed_is_opened_before_another_waits(paths: Paths) -> None:
    hold.begin(slurm(), paths)
    os.utime(f"{paths.run}/hold", (0, 0))
    machine = slurm()
    hold.begin(machine, paths)
    states = [line.rpartition("=")[2] for line in orders(machine)]
    assert states == ["UP", "UP", "DOWN", "DOWN"]


def test_a_partition_that_is_gone_keeps_no_other_one_closed(paths: Paths) -> None:
    hold.begin(slurm(), paths)
    gone = FakeMachine(
        commands={
            "scontrol -o show partition": Answer("PartitionName=short State=DOWN\n"),
            "scontrol update partitionname=debug": Answer(
                "", 1, "Invalid partition name specified"
            ),
            "scontrol update": Answer(),
        }
    )
    hold.end(gone, paths)
    assert orders(gone) == [f"partitionname={name} state=UP" for name in ("debug", "short")]
    assert not os.path.exists(f"{paths.run}/hold")


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

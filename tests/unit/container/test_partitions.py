"""Partitions that were taken out of the configuration while jobs of them wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.container import partitions
from dshpc_setup.container.config import Candidate
from dshpc_setup.container.run import Run
from dshpc_setup.container.status import Status
from dshpc_setup.machine import CommandResult
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.settings import Settings
from dshpc_setup.slurm.paths import Paths

DEBUG = "ClusterName=lab\nPartitionName=debug Nodes=ALL Default=YES State=UP\n"
BOTH = DEBUG + "PartitionName=long Nodes=old[1-2] MaxTime=7-0 Default=NO AllowGroups=lab State=UP\n"
LINE = "PartitionName=long Nodes=ALL Default=NO MaxTime=7-0 State=DRAIN"


def candidate(text: str) -> Candidate:
    return Candidate({"slurm.conf": text, "gres.conf": ""}, {}, {})


def with_former(text: str, last: str | None) -> str:
    before = None if last is None else {"slurm.conf": last}
    return partitions.with_former(candidate(text), before).texts["slurm.conf"]


def test_a_partition_that_was_taken_out_stays_and_takes_no_new_jobs() -> None:
    text = with_former(DEBUG, BOTH)
    assert text.startswith(DEBUG)
    assert text.splitlines()[-1] == LINE
    assert with_former(DEBUG, text) == text  # at the next start as well
    assert with_former(BOTH, text) == BOTH  # until it is put in again


@pytest.mark.parametrize("last", [None, "", DEBUG, "PartitionName=DEFAULT MaxTime=1\n"])
def test_nothing_is_added_where_none_was_taken_out(last: str | None) -> None:
    assert with_former(DEBUG, last) == DEBUG
    assert with_former(BOTH, last) == BOTH


def test_what_is_no_slurm_conf_stays_as_it_is() -> None:
    assert with_former("nonsense\n", BOTH) == "nonsense\n"


@given(st.text(max_size=200), st.text(max_size=200))
def test_added_once_it_is_added_again_alike(text: str, last: str) -> None:
    once = with_former(f"{text}\n{DEBUG}", f"{last}\n{BOTH}")
    assert with_former(f"{text}\n{DEBUG}", once) == once
    assert {"debug", "long"} <= set(partitions.named(once))


class Queue(LocalMachine):
    """Answers squeue, and notes what else it is asked."""

    def __init__(self, queue: str, code: int = 0) -> None:
        super().__init__()
        self.queue, self.code = queue, code
        self.orders: list[list[str]] = []

    def run(self, argv: Sequence[str], **_: Any) -> CommandResult:
        if argv[0] != "squeue":
            self.orders.append(list(argv))
            return CommandResult(tuple(argv), "present", 0, "", "", 1.0)
        return CommandResult(tuple(argv), "present", self.code, self.queue, "", 1.0)


def settle(machine: Queue, text: str) -> tuple[Mapping[str, str], list[str]]:
    paths = Paths("/nowhere")
    status = Status(paths, say=lambda _: None)
    run = Run(machine, paths, status, Settings(), (0, 0))
    return partitions.settle(run, candidate(text)), status.values["notes"]


def test_one_without_jobs_is_taken_away() -> None:
    machine = Queue("7 |debug |\n8 |longer,debug |\n")
    texts, notes = settle(machine, with_former(DEBUG, BOTH))
    assert machine.orders == [["scontrol", "delete", "partitionname=long"]]
    assert (texts["slurm.conf"], texts["gres.conf"], notes) == (DEBUG, "", [])


@pytest.mark.parametrize(("queue", "code"), [("7 |debug,long |\n9 |long |\n", 0), ("", 1)])
def test_one_with_jobs_stays_and_where_nobody_knows(queue: str, code: int) -> None:
    machine, text = Queue(queue, code), with_former(DEBUG, BOTH)
    texts, (note,) = settle(machine, text)
    assert machine.orders == []
    assert texts["slurm.conf"] == text
    assert note.startswith("The partition long is not in the configuration any more")
    assert ("(7, 9)" in note) is (code == 0)


def test_of_two_the_one_with_jobs_stays() -> None:
    text = with_former(DEBUG, f"{BOTH}PartitionName=short Nodes=ALL\n")
    texts, (note,) = settle(Queue("7 |short |\n"), text)
    assert "short" in note
    assert texts["slurm.conf"] == with_former(DEBUG, f"{DEBUG}PartitionName=short Nodes=ALL\n")


def test_nobody_is_asked_where_there_is_none() -> None:
    machine = Queue("7 |long |\n", code=1)
    texts, notes = settle(machine, BOTH)
    assert (texts["slurm.conf"], notes, machine.orders) == (BOTH, [], [])


def test_texts_that_differ_by_former_partitions_alone_are_the_same() -> None:
    def same(old: str, new: str) -> bool:
        return partitions.same(candidate(old).texts, candidate(new).texts)

    kept = with_former(DEBUG, BOTH)
    assert same(kept, kept)
    assert same(kept, DEBUG)
    assert not same(DEBUG, kept)
    assert not same(BOTH, DEBUG)
    assert not same(kept, kept.replace("ClusterName=lab", "ClusterName=other"))

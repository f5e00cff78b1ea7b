"""`--no-wait`: begun, or taken back."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from dshpc_setup.errors import DshpcError
from dshpc_setup.jobs import no_wait
from dshpc_setup.jobs.no_wait import TakenBack
from dshpc_setup.machine import CommandResult
from dshpc_setup.machine.local import LocalMachine


class Slurm(LocalMachine):
    """Answers squeue with one text after the other, the last again and again."""

    def __init__(self, *says: str, code: int = 0) -> None:
        super().__init__()
        self.says, self.code = list(says), code
        self.cancelled: list[tuple[str, ...]] = []

    def run(self, argv: Sequence[str], **more: Any) -> CommandResult:
        if argv[0] == "scancel":
            self.cancelled.append(tuple(argv))
            return CommandResult(tuple(argv), "present", 0, "", "", 1)
        said = self.says.pop(0) if len(self.says) > 1 else self.says[0]
        text = said.replace("\n", "|\n")
        return CommandResult(tuple(argv), "present", self.code, text, "", 1)


@pytest.mark.parametrize(
    "says",
    [
        ("RUNNING|None\n",),
        ("COMPLETED|None\n",),
        ("PENDING|None\n", "PENDING|Priority\n", "RUNNING|None\n"),
        ("RUNNING|None\nPENDING|None\n", "RUNNING|None\nRUNNING|None\n"),  # an array
        ("COMPLETED|None\nRUNNING|None\n",),
        ("FAILED|NonZeroExitCode\n",),  # it has begun
    ],
)
def test_what_begins_goes_on(says: tuple[str, ...]) -> None:
    slurm = Slurm(*says)
    assert no_wait.begun_or_taken_back(slurm, "7") is None
    assert slurm.cancelled == []


def test_what_waits_is_taken_back() -> None:
    slurm = Slurm("PENDING|None\n", "PENDING|Resources\n", "CANCELLED|None\n")
    assert no_wait.begun_or_taken_back(slurm, "7") == TakenBack("Resources")
    assert slurm.cancelled == [("scancel", "--state=PENDING", "7")]


def test_one_that_slurm_does_not_try_is_taken_back_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(no_wait, "_START_S", 0.0)
    slurm = Slurm("PENDING|Priority\n", "CANCELLED|None\n")
    assert no_wait.begun_or_taken_back(slurm, "7") == TakenBack("Priority")


def test_one_that_slurm_looks_at_late_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that is busy: each look takes seconds."""
    now = [0.0]

    def sleep(_seconds: float) -> None:
        now[0] += 4.0

    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    monkeypatch.setattr(no_wait, "time", clock)
    slurm = Slurm(*["PENDING|None\n"] * 3, "RUNNING|None\n")
    assert no_wait.begun_or_taken_back(slurm, "7") is None
    assert slurm.cancelled == []


def test_one_that_begins_in_that_moment_goes_on() -> None:
    assert no_wait.begun_or_taken_back(Slurm("PENDING|Resources\n", "RUNNING|None\n"), "7") is None


@pytest.mark.parametrize("slurm", [Slurm("PENDING|Resources\n"), Slurm("error", code=1)])
def test_what_may_still_be_queued_is_said(slurm: Slurm) -> None:
    with pytest.raises(DshpcError, match="not known whether") as told:
        no_wait.begun_or_taken_back(slurm, "7")
    assert told.value.exit_code == 3
    assert "dshpc job cancel 7" in told.value.resolution[1]


def test_an_array_that_begins_in_part_is_taken_back_whole() -> None:
    slurm = Slurm(
        "RUNNING|None\nCOMPLETED|None\nPENDING|None\nPENDING|Resources\n",
        "RUNNING|None\nCOMPLETED|None\nCANCELLED|None\nCANCELLED|None\n",
        "COMPLETING|None\nCOMPLETED|None\nCANCELLED|None\nCANCELLED|None\n",
    )
    assert no_wait.begun_or_taken_back(slurm, "7") == TakenBack("Resources", begun=2)
    assert slurm.cancelled == [("scancel", "--state=PENDING", "7"), ("scancel", "7")]


def test_tasks_that_cannot_be_ended_are_said() -> None:
    slurm = Slurm("RUNNING|None\nPENDING|Resources\n", "RUNNING|None\nCANCELLED|None\n")
    with pytest.raises(DshpcError, match="not known whether"):
        no_wait.begun_or_taken_back(slurm, "7")


def test_an_array_whose_last_tasks_begin_in_that_moment_goes_on() -> None:
    slurm = Slurm("RUNNING|None\nPENDING|Resources\n", "RUNNING|None\nRUNNING|None\n")
    assert no_wait.begun_or_taken_back(slurm, "7") is None
    assert slurm.cancelled == [("scancel", "--state=PENDING", "7")]

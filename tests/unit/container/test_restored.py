"""An older copy of the queue was taken: what had ended since then does not run again."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.container import ends, restored
from dshpc_setup.jobs.end_record import ENDED
from dshpc_setup.machine import CommandResult
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.slurm import completion_log
from dshpc_setup.slurm.paths import Paths

SINCE = 1_700_000_000
UID = os.getuid()
# JobID|State|BatchFlag|RestartCnt|UserID|ArrayJobID|ArrayTaskID|
QUEUE = f"""11 |PENDING |1 |0 |{UID} |11 |N/A |
12 |RUNNING |1 |2 |{UID} |12 |N/A |
13 |PENDING |1 |0 |{UID} |13 |N/A |
14 |PENDING |1 |0 |{UID} |14 |N/A |
15 |PENDING |0 |0 |{UID} |15 |N/A |
16 |PENDING |1 |0 |{UID} |16 |N/A |
20 |PENDING |1 |0 |{UID} |20 |3 |
20 |PENDING |1 |0 |{UID} |20 |4 |
22 |RUNNING |1 |0 |{UID} |20 |1 |
17 |PENDING |1 |0 |{UID} |17 |N/A |
18 |PENDING |1 |1 |{UID} |18 |N/A |
19 |PENDING |1 |0 |{UID} |19 |N/A |
what is no line
"""


class Slurm(LocalMachine):
    def __init__(self) -> None:
        super().__init__()
        self.orders: list[list[str]] = []

    def run(self, argv: Sequence[str], **_: Any) -> CommandResult:
        self.orders.append(list(argv))
        said = QUEUE if argv[0] == "squeue" else ""
        return CommandResult(tuple(argv), "present", 0, said, "", 1)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    made = Paths(str(tmp_path))
    Path(made.at(completion_log.LOG)).parent.mkdir(parents=True)
    ends.make_folder(made, UID, os.getgid())
    return made


def ended(job: int, state: str, at: int, code: int = 0, array: str = "") -> str:
    when = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at))
    return (
        f"JobId={job} UserId=me({UID}) GroupId=me(1) Name=x JobState={state} Partition=p TimeLimit=1 "
        f"StartTime={when} EndTime={when} NodeList=lab NodeCnt=1 ProcCnt=1 WorkDir=/w "
        f"ReservationName= Tres=cpu=1 Account= QOS= {array}SubmitTime={when} EligibleTime={when} "
        f"DerivedExitCode=0:0 ExitCode={code}:0 \n"
    )


def test_what_has_ended_since_the_copy_ends_again_as_it_had(paths: Paths) -> None:
    Path(paths.at(completion_log.LOG)).write_text(
        ended(11, "COMPLETED", SINCE + 5)
        + ended(12, "FAILED", SINCE + 5, code=3)
        + ended(13, "CANCELLED", SINCE + 5)
        + ended(14, "COMPLETED", SINCE - 5)  # queued again before the copy
        + ended(15, "COMPLETED", SINCE + 5)  # of srun
        + ended(16, "COMPLETED", SINCE + 5)
        + ended(16, "REQUEUED", SINCE + 6)  # and waits
        + ended(21, "COMPLETED", SINCE + 5, array="ArrayJobId=20 ArrayTaskId=3 ")
        + ended(22, "TIMEOUT", SINCE + 5, array="ArrayJobId=20 ArrayTaskId=1 ")
    )
    Path(paths.at(f"{ENDED}/{UID}/17")).write_text("17 0 9\n")  # slurmctld had not heard of it
    Path(paths.at(f"{ENDED}/{UID}/18")).write_text("18 0 9\n")  # its run before this one
    Path(paths.at(f"{ENDED}/{UID}/20")).write_text("20 0 0\n")  # one of its tasks, not task 4
    restored.remember(paths, SINCE)
    slurm = Slurm()
    over = restored.conclude(slurm, paths)
    assert set(over) == {"11", "12", "17", "22", "13", "15", "20_3"}
    assert [order for order in slurm.orders if order[0] == "scancel"] == [
        ["scancel", "13", "15", "20_3"]
    ]
    codes = {
        job: ends.concluded_code(paths, job, restarts)
        for job, restarts in ((11, 0), (12, 3), (17, 0), (22, 1))
    }
    assert codes == {11: 0, 12: 3, 17: 9, 22: 1}
    folder = Path(paths.at(ends.CONCLUDED))
    assert {path.name for path in folder.iterdir()} == {"11", "12", "17", "22"}
    slurm.orders.clear()
    assert restored.conclude(slurm, paths) == ()  # once
    assert slurm.orders == []


def test_where_no_copy_was_taken_nobody_is_asked(paths: Paths) -> None:
    slurm = Slurm()
    for text in ("", "{", "[]", '{"written": null}'):
        Path(paths.at(restored._MARK)).write_text(text)
        assert restored.conclude(slurm, paths) == ()
    assert slurm.orders == []

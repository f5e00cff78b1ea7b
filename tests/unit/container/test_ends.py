"""Jobs whose script has ended, as they wrote it down, and what the next start makes of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.container import ends, interrupted
from dshpc_setup.container.interrupted import Interrupted
from dshpc_setup.jobs import end_record
from dshpc_setup.jobs.end_record import NOT_KNOWN
from dshpc_setup.machine import CommandResult
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.slurm.paths import Paths

UID = os.getuid()


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    found = Paths(str(tmp_path))
    ends.make_folder(found, UID, os.getgid())
    return found


def wrote(paths: Paths, job: int, text: str) -> None:
    Path(paths.at(f"{end_record.ENDED}/{UID}/{job % end_record.SLOTS}")).write_text(text)


def test_an_end_counts_for_its_job_and_its_run_alone(paths: Paths) -> None:
    wrote(paths, 1017, "1017 2 3\n")
    assert ends.code_of(paths, UID, 1017, 2) == 3
    assert ends.code_of(paths, UID, 1017, 1) is None  # it was queued again since
    assert ends.code_of(paths, UID, 17, 2) is None  # its place is another job's
    assert ends.code_of(paths, UID, 1018, 0) is None
    assert ends.code_of(paths, UID + 1, 1017, 2) is None


@pytest.mark.parametrize(
    "text", ["", "17 0", "17 0 x\n", "17 0 3\n17 0 3\n", "17 0 3 \n", "9" * 99]
)
def test_what_is_no_such_line_says_nothing(paths: Paths, text: str) -> None:
    wrote(paths, 17, text)
    assert ends.code_of(paths, UID, 17, 0) is None


def test_an_end_without_its_code_is_not_taken_for_success(paths: Paths) -> None:
    wrote(paths, 17, "17 0 ?\n")
    assert ends.code_of(paths, UID, 17, 0) == NOT_KNOWN != 0


def test_links_pipes_and_folders_in_the_place_of_a_line_are_not_followed(paths: Paths) -> None:
    folder = Path(paths.at(f"{end_record.ENDED}/{UID}"))
    (folder / "real").write_text("17 0 0\n")
    (folder / "17").symlink_to("real")
    os.mkfifo(folder / "18")
    (folder / "19").mkdir()
    assert [ends.code_of(paths, UID, job, 0) for job in (17, 18, 19)] == [None] * 3


def test_the_launcher_writes_what_the_start_reads(paths: Paths) -> None:
    folder = paths.at(end_record.ENDED)
    end_record.write({"SLURM_JOB_ID": "1017", "SLURM_RESTART_COUNT": "1"}, 7, folder)
    assert ends.code_of(paths, UID, 1017, 1) == 7
    end_record.write({"SLURM_JOB_ID": "17"}, -15, folder)
    assert ends.code_of(paths, UID, 17, 0) == 143
    end_record.write({"SLURM_JOB_ID": "18"}, -9, folder)  # the container may be killed
    assert ends.code_of(paths, UID, 18, 0) is None
    end_record.write({}, 0, folder)
    end_record.write({"SLURM_JOB_ID": "19"}, 0, "/nowhere")


def test_what_was_concluded_is_kept_as_long_as_its_job_is_queued(paths: Paths) -> None:
    ends.conclude(paths, 17, 1, 3)
    ends.conclude(paths, 18, 1, 0)
    ends.forget(paths, {17})
    folder = Path(paths.at(ends.CONCLUDED))
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"17": "1 3\n"}


RUNNING = """12 |RUNNING |1 |0 |{uid} |1 |12 |
13 |RUNNING |1 |1 |{uid} |1 |13 |
14 |RUNNING |0 |0 |{uid} |1 |14 |
20 |RUNNING |1 |0 |{uid} |0 |20 |
9 |SUSPENDED |1 |0 |{uid} |1 |8_3 |
15|RUNNING|1|0|x|1|15|
16 |PENDING |1 |2 |{uid} |1 |16 |
19 |COMPLETING |1 |0 |{uid} |1 |19 |
"""


class Restored(LocalMachine):
    """slurmctld with those jobs; 14 is the first job of a start that was killed."""

    def __init__(self, queue: str, code: int = 0) -> None:
        super().__init__()
        self.queue, self.code = queue, code

    def run(self, argv: Sequence[str], **_: Any) -> CommandResult:
        names = "14 \x1f0 \x1fdshpc-proof\x1f\n20 \x1f0 \x1fdshpc-proofs\x1f\n13 \x1f7 \x1fdshpc-proof\x1f\n"
        text = names if "Name" in argv[-1] else self.queue
        return CommandResult(tuple(argv), "present", self.code, text, "", 1.0)


def test_the_start_concludes_whose_script_had_ended_and_says_so(paths: Paths) -> None:
    wrote(paths, 12, "12 0 4\n")
    wrote(paths, 13, "13 0 0\n")
    ends.conclude(paths, 16, 2, 5)  # by the start before, which was killed as well
    ends.conclude(paths, 17, 2, 5)
    found = interrupted.look(Restored(RUNNING.format(uid=UID)), paths)
    assert found == Interrupted(requeued=("8_3", "13"), concluded=("12",), ended=("20",))
    assert Path(paths.at(f"{ends.CONCLUDED}/12")).read_text() == "1 4\n"
    assert sorted(os.listdir(paths.at(ends.CONCLUDED))) == ["12", "16"]
    assert "2 queued again, 1 ended" in found.note()
    assert "do not run again: 12." in found.note()
    assert Interrupted().note() == ""


def test_a_list_for_people_is_cut_and_its_data_are_not() -> None:
    many = tuple(str(number) for number in range(1, 31))
    found = Interrupted(requeued=many)
    assert "19, 20 and 10 more." in found.note()
    assert found.to_json() == {"requeued": list(many), "concluded": [], "ended": []}


def test_one_whose_concluded_run_was_cut_off_is_concluded_again(paths: Paths) -> None:
    """With its code, which that run's own line has not; one that a person has queued again runs."""
    ends.conclude(paths, 12, 1, 3)
    wrote(paths, 12, "12 1 ?\n")
    ends.conclude(paths, 13, 1, 0)
    running = "".join(
        f"{job}|RUNNING|1|{runs}|{UID}|1|{job}|\n" for job, runs in ((12, 1), (13, 2))
    )
    found = interrupted.look(Restored(running), paths)
    assert found == Interrupted(requeued=("13",), concluded=("12",))
    assert [ends.concluded_code(paths, 12, run) for run in (1, 2)] == [None, 3]


def test_where_slurmctld_does_not_answer_nothing_is_concluded(paths: Paths) -> None:
    assert interrupted.look(Restored("", code=1), paths) is None

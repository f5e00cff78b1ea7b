"""What was kept of a job as it ended: lines, whose they are, and what a view makes of them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from dshpc_setup.jobs import end_notes, view
from dshpc_setup.jobs.allocated_gpus import Places, parse_table
from dshpc_setup.jobs.end_notes import Notes
from dshpc_setup.jobs.offer import OfferedGpu
from dshpc_setup.jobs.view import View

CARDS = tuple(
    OfferedGpu(index, f"GPU-{index}", "h100", "h100", "H100", "nvidia", 81559, "9.0")
    for index in (0, 1)
)
# slurmd lists them the other way round
PLACES = Places(parse_table(["gpu 0 nvidia 1 GPU-1", "gpu 1 nvidia 0 GPU-0"]), CARDS)
KILLED = View("7", 7, None, "a", "me", "FAILED", exit_code=137, started=1.0, ended=2.0)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", Notes()),
        ("7 0 kills 3\n", Notes()),
        ("7 0 kills 3\n7 0 gpus 0,1 GPU-1,GPU-0\n", Notes(("0", "1"), ("GPU-1", "GPU-0"))),
        ("7 0 gpus 0 -\n7 0 memory\n", Notes(("0",), by_memory=True)),
        # steps of one job, of which one had a GPU without a UUID
        ("7 0 gpus 0 GPU-1\n7 0 gpus 1 GPU-0\n", Notes(("0", "1"), ("GPU-1", "GPU-0"))),
        ("7 0 gpus 0 GPU-1\n7 0 gpus 1 -\n", Notes(("0", "1"))),
        # of the run before, of another job, and of no job
        ("7 0 gpus 0 GPU-1\n7 0 memory\n7 2 gpus 1 GPU-0\n", Notes(("1",), ("GPU-0",))),
        ("17 0 gpus 0 GPU-1\n7 x memory\n7 memory\n\n7 ² gpus 0 -\n7 0 gpus 0", Notes()),
    ],
)
def test_lines(text: str, wanted: Notes) -> None:
    assert end_notes.parse(text, 7) == wanted


def test_only_a_file_of_the_jobs_user_counts(tmp_path: Path) -> None:
    uid = os.getuid()
    own = tmp_path / str(uid)
    own.mkdir()
    assert end_notes.read(uid, 2007, str(tmp_path)) == Notes()
    (own / "7.job").write_text("2007 0 memory\n")
    assert end_notes.read(uid, 2007, str(tmp_path)) == Notes(by_memory=True)
    assert end_notes.read(uid, 7, str(tmp_path)) == Notes()
    (tmp_path / str(uid + 1)).symlink_to(own)
    assert end_notes.read(uid + 1, 2007, str(tmp_path)) == Notes()
    (own / "8.job").symlink_to(own / "7.job")
    os.mkfifo(own / "9.job")
    assert end_notes.read(uid, 8, str(tmp_path)) == end_notes.read(uid, 9, str(tmp_path)) == Notes()


def test_the_gpus_of_one_that_has_ended_are_told_as_while_it_ran() -> None:
    over = replace(KILLED, state="COMPLETED", exit_code=0)
    by_place = view.with_notes(over, Notes(("0",)), PLACES)
    by_uuid = view.with_notes(over, Notes(("5",), ("GPU-1",)), PLACES)
    assert by_place.gpus == by_uuid.gpus == PLACES.of_gres("gpu:h100:1(IDX:0)")
    assert [gpu.index for gpu in by_place.gpus] == [1]
    # What the launcher kept counts, and one that runs has others
    kept = replace(over, gpus=PLACES.of_gres("gpu:(IDX:1)"))
    assert view.with_notes(kept, Notes(("0",)), PLACES) == kept
    runs = replace(over, state="RUNNING")
    assert view.with_notes(runs, Notes(("0",)), PLACES) == runs


def test_one_that_the_kernel_ended_for_memory_says_so_as_dshpc_run_does() -> None:
    told = view.with_notes(KILLED, Notes(by_memory=True), PLACES)
    assert told.out_of_memory == "host"
    assert view.outcome(told).startswith("failed: out of memory, ")
    for other in (
        replace(KILLED, exit_code=1),
        replace(KILLED, state="CANCELLED"),
        replace(KILLED, out_of_memory="gpu"),
    ):
        assert view.with_notes(other, Notes(by_memory=True), PLACES) == other
    assert view.with_notes(KILLED, Notes(), PLACES) == KILLED

"""Slurm's saved queue: found damaged before slurmctld takes it for empty, and repaired as was chosen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dshpc_setup.container import saved_state
from dshpc_setup.errors import DshpcError
from dshpc_setup.slurm import completion_log
from dshpc_setup.slurm.paths import Paths

CONF = "StateSaveLocation=/state\n"
ME = (os.getuid(), os.getgid())
RECORDS = b"records of jobs"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    (tmp_path / "state").mkdir()
    (tmp_path / completion_log.LOG.lstrip("/")).parent.mkdir(parents=True)
    return Paths(str(tmp_path))


def put(paths: Paths, name: str, content: bytes) -> Path:
    path = Path(paths.at(f"/state/{name}"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def state(next_job: int) -> bytes:
    return saved_state.empty(next_job) + RECORDS


def none(_path: str) -> bool:
    """slurmctld reads each that begins as it should."""
    return False


def torn(path: str) -> bool:
    """It ends over a body that was cut off."""
    return not Path(path).read_bytes().endswith(RECORDS)


def lost(paths: Paths) -> DshpcError:
    with pytest.raises(DshpcError) as raised:
        saved_state.check(paths, CONF, none)
    return raised.value


def test_a_header_is_what_slurmctld_writes() -> None:
    """The first bytes of a job_state of 24.11.5."""
    seen = bytes.fromhex(
        "00000011" + b"PROTOCOL_VERSION\0".hex() + "2a00" + "000000006b03c2cf" + "00000324"
    )
    made = saved_state.empty(0x324)
    assert made[:23] == seen[:23]
    assert (made[31:35], len(made)) == (seen[31:35], 43)


def test_nothing_is_said_of_a_first_start_and_of_a_state_that_can_be_read(paths: Paths) -> None:
    saved_state.check(paths, CONF, none)
    put(paths, "job_state", state(3))
    saved_state.check(paths, CONF, none)


def test_slurmctld_was_killed_between_two_of_its_steps(paths: Paths) -> None:
    put(paths, "job_state.old", state(3))
    saved_state.check(paths, CONF, none)


@pytest.mark.parametrize("content", [b"", b"garbage" * 99, state(3)[:30], b"\0" * 4096])
def test_an_empty_or_damaged_state_stops_the_start(paths: Paths, content: bytes) -> None:
    put(paths, "job_state", content)
    put(paths, "job_state.old", content)
    put(paths, "hash.7/job.17/script", b"#!/bin/sh")
    error = lost(paths)
    assert "17" in error.details
    assert "give-up" in " ".join(error.resolution)
    assert "restore" not in " ".join(error.resolution)  # there is no copy
    put(paths, "job_state.kept", state(9))
    assert "saved-state restore" in " ".join(lost(paths).resolution)


def test_a_damaged_state_is_not_passed_over_for_its_old_one(paths: Paths) -> None:
    """What the old one does not know would be given up without a word."""
    put(paths, "job_state", b"garbage")
    put(paths, "job_state.old", state(9))
    assert "restore" in " ".join(lost(paths).resolution)


@pytest.mark.parametrize("trace", ["hash.7/job.17/script", "log"])
def test_files_that_are_gone_are_missed_where_there_were_jobs(paths: Paths, trace: str) -> None:
    if trace == "log":
        Path(paths.at(completion_log.LOG)).write_text("JobId=41 UserId=me(1) ...\n")
    else:
        put(paths, trace, b"")
    lost(paths)


def test_a_copy_is_taken_and_no_number_comes_twice(paths: Paths) -> None:
    put(paths, "job_state", b"")
    put(paths, "job_state.old", b"")
    put(paths, "job_state.kept", state(9))
    put(paths, "hash.7/job.17/script", b"#!/bin/sh")
    Path(paths.at(completion_log.LOG)).write_text("JobId=41 UserId=me(1) ...\n")
    done = saved_state.repair(paths, "restore", CONF, ME, none)
    found = Path(paths.at("/state/job_state"))
    header = saved_state.read(str(found))
    assert header is not None
    assert header.next_job == 42
    assert found.read_bytes().endswith(RECORDS)
    assert "42" in done
    saved_state.check(paths, CONF, none)
    (aside,) = Path(paths.at(saved_state.SET_ASIDE)).iterdir()
    names = sorted(path.name for path in aside.iterdir())
    assert names == ["job.17", "job_state", "job_state.old"]  # the copy knows jobs up to 8
    assert "not in the queue any more: 17." in done
    assert f"cat {saved_state.SET_ASIDE}/{aside.name}/job.17/script | dshpc sbatch" in done


def test_giving_up_keeps_the_scripts_and_the_numbers(paths: Paths) -> None:
    put(paths, "job_state", b"garbage")
    put(paths, "hash.7/job.17/script", b"#!/bin/sh")
    saved_state.repair(paths, "give-up", CONF, ME, none)
    header = saved_state.read(paths.at("/state/job_state"))
    assert header is not None
    assert (header.next_job, header.size) == (18, 43)
    (aside,) = Path(paths.at(saved_state.SET_ASIDE)).iterdir()
    assert (aside / "job.17" / "script").read_bytes() == b"#!/bin/sh"


def test_nothing_is_repaired_that_can_be_read_and_no_copy_is_made_up(paths: Paths) -> None:
    put(paths, "job_state", b"garbage")
    with pytest.raises(DshpcError, match="no copy"):
        saved_state.repair(paths, "restore", CONF, ME, none)
    put(paths, "job_state", state(3))
    with pytest.raises(DshpcError, match="can be read"):
        saved_state.repair(paths, "give-up", CONF, ME, none)


def test_a_state_with_a_good_beginning_and_a_torn_body(paths: Paths) -> None:
    """As a power cut leaves it: only slurmctld can tell, once it has ended over it."""
    put(paths, "job_state", state(9)[:-3])
    saved_state.check(paths, CONF, torn)
    with pytest.raises(DshpcError, match="saved queue cannot be read") as told:
        saved_state.check_whole(paths, CONF, torn)
    assert "restore" not in " ".join(told.value.resolution)
    put(paths, "job_state.old", state(7)[:-3])
    put(paths, "job_state.kept", state(6))
    with pytest.raises(DshpcError, match="saved queue cannot be read") as told:
        saved_state.check_whole(paths, CONF, torn)
    assert "saved-state restore" in " ".join(told.value.resolution)
    saved_state.repair(paths, "restore", CONF, ME, torn)
    assert Path(paths.at("/state/job_state")).read_bytes().endswith(RECORDS)
    saved_state.check_whole(paths, CONF, torn)
    with pytest.raises(DshpcError, match="nothing is to be repaired"):
        saved_state.repair(paths, "give-up", CONF, ME, torn)


def test_the_old_one_that_slurmctld_would_take_is_asked_about_too(paths: Paths) -> None:
    put(paths, "job_state.old", state(7)[:-3])
    with pytest.raises(DshpcError, match="saved queue cannot be read"):
        saved_state.check_whole(paths, CONF, torn)


def test_scripts_of_jobs_that_the_copy_knows_stay_where_they_are(paths: Paths) -> None:
    put(paths, "job_state", b"garbage")
    put(paths, "job_state.kept", state(9))
    for number in (7, 8):
        put(paths, f"hash.{number}/job.{number}/script", b"#!/bin/sh")
    done = saved_state.repair(paths, "restore", CONF, ME, none)
    (aside,) = Path(paths.at(saved_state.SET_ASIDE)).iterdir()
    assert [path.name for path in aside.iterdir()] == ["job_state"]
    assert "not in the queue" not in done

from __future__ import annotations

import time
from pathlib import Path

from dshpc_setup.container import unclean
from dshpc_setup.slurm.paths import Paths

NOW = 1_700_000_000


def test_ends_of_the_last_day_are_told_and_a_long_log_is_cut(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path))
    assert unclean.found_at(paths, NOW) == []
    log = Path(f"{paths.state}/slurmctld.unclean")
    log.parent.mkdir(parents=True)
    log.write_text(f"{NOW - 90_000}\n{NOW - 5}\nhalf a line\n{NOW}\n")
    assert unclean.found_at(paths, NOW) == [NOW - 5, NOW]
    log.write_text("1600000000\n" * 10_000)
    log.with_name("slurmctld.runs").touch()
    unclean.trim(paths)
    assert log.read_text() == ""


def test_they_are_told_until_a_start_after_an_end_in_order(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path))
    unclean.trim(paths)  # the first start
    log = Path(f"{paths.state}/slurmctld.unclean")
    log.parent.mkdir(parents=True)
    log.write_text(f"{NOW}\n")
    mark = log.with_name("slurmctld.runs")
    mark.touch()  # it was killed again
    unclean.trim(paths)
    assert unclean.found_at(paths, NOW) == [NOW]
    mark.unlink()  # as services/slurmctld/finish does after an end in order
    unclean.trim(paths)
    assert unclean.found_at(paths, NOW) == []
    unclean.trim(paths)


def test_the_jobs_of_an_end_are_told_with_it_and_go_with_it(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path))
    unclean.note_jobs(paths, {"requeued": ["12"]})  # after an end in order: no word of it
    log = Path(f"{paths.state}/slurmctld.unclean")
    log.parent.mkdir(parents=True)
    now = int(time.time())
    log.write_text(f"{now - 9}\n{now - 5}\n")
    many = [str(number) for number in range(100)]
    unclean.note_jobs(paths, {"requeued": many, "concluded": [], "ended": ["7_1"]})
    log.write_text(f"{now - 9}\n{now - 5}\n{now}\n")
    jobs = log.with_name("slurmctld.unclean.jobs")
    # as services/slurmctld/register does, and one that was cut off as it wrote
    jobs.write_text(f"{jobs.read_text()}{now} continued 17 18_2\nodd line\n{now - 9} continued 1")
    assert unclean.told(paths) == [
        {"at": now - 9, "jobs": None},
        {"at": now - 5, "jobs": {"requeued": many, "concluded": [], "ended": ["7_1"]}},
        {"at": now, "jobs": {"continued": ["17", "18_2"]}},
    ]
    unclean.trim(paths)
    assert not jobs.exists()
    jobs.write_text(f"{now} continued 17\n" * 60_000)
    log.with_name("slurmctld.runs").touch()
    unclean.trim(paths)
    assert jobs.stat().st_size <= 1 << 19
    assert set(jobs.read_text().split("\n")) == {f"{now} continued 17", ""}

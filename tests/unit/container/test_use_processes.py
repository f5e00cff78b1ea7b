"""Memory of jobs' processes, by what /proc says of them."""

from __future__ import annotations

import os
from pathlib import Path

from dshpc_setup.container import use_processes

PAGES = 25600  # 100 MiB of 4 KiB


def process(
    proc: Path, pid: int, parent: int, name: str, title: str = "", pages: int = PAGES
) -> None:
    folder = proc / str(pid)
    folder.mkdir()
    rest = " ".join(["0"] * 18)
    (folder / "stat").write_text(f"{pid} ({name}) S {parent} {rest} 0 {pages} 0\n")
    (folder / "cmdline").write_text(title)


def test_all_below_a_slurmstepd_is_its_jobs(tmp_path: Path) -> None:
    mib = PAGES * os.sysconf("SC_PAGE_SIZE") >> 20
    process(tmp_path, 10, 1, "slurmstepd", "slurmstepd: [17.batch]")
    process(tmp_path, 11, 10, "a) S 1 (b", "slurmstepd: [99.0]")  # a name may hold anything
    process(tmp_path, 12, 11, "python3")
    process(tmp_path, 20, 1, "slurmstepd", "slurmstepd: [17.0]")
    process(tmp_path, 21, 20, "python3")
    process(tmp_path, 30, 1, "slurmstepd", "slurmstepd: [18.extern]")
    process(tmp_path, 40, 1, "bash")
    process(tmp_path, 50, 51, "circle")
    process(tmp_path, 51, 50, "circle")
    (tmp_path / "60").mkdir()  # it has ended
    (tmp_path / "self").mkdir()
    assert use_processes.by_job(str(tmp_path)) == {17: 3 * mib}


def test_another_users_program_of_that_name_is_none(tmp_path: Path) -> None:
    process(tmp_path, 10, 1, "slurmstepd", "slurmstepd: [17.batch]")
    process(tmp_path, 11, 10, "python3")
    if os.geteuid() == 0:
        os.chown(tmp_path / "10", 4321, 4321)
        assert use_processes.by_job(str(tmp_path)) == {}

"""Programs that slurm.conf names: which cannot be run, and how that is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dshpc_setup.container import programs
from dshpc_setup.container.config import Candidate
from dshpc_setup.node import lifecycle
from dshpc_setup.observed.model import NamedProgram
from dshpc_setup.slurm import paths
from dshpc_setup.slurm.paths import Paths

KEYS = (
    "Prolog",
    "Epilog",
    "TaskProlog",
    "TaskEpilog",
    "SrunProlog",
    "SrunEpilog",
    "PrologSlurmctld",
    "EpilogSlurmctld",
)
CHECKED = "HealthCheckInterval=60"  # fmt: skip


def candidate(line: str, *extra: str, own: bool = False) -> Candidate:
    texts = {"slurm.conf": f"ClusterName=a\n{line}\n"}
    return Candidate(texts, {"slurm.conf": "custom"} if own else {}, {}, extra=extra)


def script(folder: Path, text: str = "#!/bin/sh\n", mode: int = 0o755) -> Path:
    path = folder / "script"
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("key", KEYS)
def test_a_program_that_is_not_there_is_named_with_its_line(key: str) -> None:
    line = f"{key}=/no/such"
    error = programs.program_error(candidate(line, line), programs.fault)
    assert error is not None
    assert f"line 2: {line} is not there in the container." in error.brief
    assert any("slurm_conf_extra" in step for step in error.resolution)
    own = programs.program_error(candidate(line, own=True), programs.fault)
    assert own is not None
    assert own.brief.startswith("config/slurm.conf, line 2")


@pytest.mark.parametrize(
    "line",
    [
        "TaskProlog={}", 'taskprolog = "{}"', "Prolog={}*", "SrunProlog=none", "#TaskProlog=/no/such",
        "MailProg=/no/such", "TaskProlog={} # /no/such",
    ],
)  # fmt: skip
def test_a_program_that_can_be_run_is_no_error(tmp_path: Path, line: str) -> None:
    made = candidate(line.format(script(tmp_path)))
    assert programs.program_error(made, programs.fault) is None


def test_a_health_check_counts_where_slurm_runs_it() -> None:
    line = "HealthCheckProgram=/no/such"
    for more in ("", "HealthCheckInterval=0"):
        assert programs.program_error(candidate(f"{line}\n{more}"), programs.fault) is None
    for text in (f"{line}\n{CHECKED}", f"{CHECKED}\n{line}"):
        error = programs.program_error(candidate(text), programs.fault)
        assert error is not None
        assert "HealthCheckProgram=/no/such is not there" in error.brief
        assert "health is not checked" in error.details


@pytest.mark.parametrize(
    ("line", "said", "drained", "brief"),
    [
        ("Prolog=/p.sh", "srun: error: Task launch for StepId=1.0 failed on node a: Prolog failed", True,
         "The Prolog /p.sh failed, so that Slurm drained the node."),
        ("TaskProlog=/t.sh", "slurmstepd: error: TaskProlog failed status=3", False,
         "The TaskProlog /t.sh ended with exit code 3, so that each job fails."),
    ],
)  # fmt: skip
def test_a_program_that_failed_the_first_job_is_named(
    line: str, said: str, drained: bool, brief: str
) -> None:
    error = programs.failed_around(candidate(line, line), said, drained=drained)
    assert error is not None
    assert error.brief == brief
    assert f"line 2: {line}" in error.details
    steps = "\n".join(error.resolution)
    assert "dshpc config unset slurm_conf_extra" in steps
    assert "configure-environment" in steps
    assert "dshpc scontrol release JOB" in steps
    own = programs.failed_around(candidate(line, own=True), said, drained=drained)
    assert own is not None
    assert "config/slurm.conf" in own.details
    assert "slurm_conf_extra" not in "\n".join(own.resolution)


def test_a_first_job_that_failed_by_itself_names_no_program() -> None:
    both = "Prolog=/p.sh\nTaskProlog=/t.sh"
    assert programs.failed_around(candidate(both), "srun: error: Unable", drained=False) is None
    assert programs.failed_around(candidate("Epilog=/e.sh"), "", drained=True) is None


def test_what_can_be_wrong_with_one(tmp_path: Path) -> None:
    assert programs.fault(str(script(tmp_path))) is None
    assert programs.fault(str(script(tmp_path, "\x7fELF"))) is None
    assert programs.fault(str(script(tmp_path, mode=0o644))) == "not_executable"
    assert programs.fault(str(tmp_path)) == "no_file"
    assert programs.fault("script") == "missing"
    os.symlink("nowhere", tmp_path / "link")
    assert programs.fault(str(tmp_path / "link")) == "missing"
    for first in ("#!/no/such\n", "#!/bin/sh\r\n", "#!\n", "#! /no/such -e\n"):
        assert programs.fault(str(script(tmp_path, first))) == "no_interpreter"
    for first in ("#! /bin/sh -e\n", "#!/usr/bin/env python3\n", "#!/bin/sh -e\r\n", "#!/bin/sh"):
        assert programs.fault(str(script(tmp_path, first))) is None


def test_each_that_a_pattern_means_is_looked_at(tmp_path: Path) -> None:
    for name, mode in (("10-a", 0o755), ("20-b", 0o644)):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(mode)
    found = [each for _, each in programs.faults(f"Prolog={tmp_path}/*\n", programs.fault)]
    assert found == [NamedProgram("Prolog", f"{tmp_path}/20-b", "not_executable")]
    assert [
        each.path for _, each in programs.faults("Epilog=/no/such/*\n", programs.fault)
    ] == ["/no/such/*"]  # fmt: skip


def test_status_names_a_program_that_has_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "etc/slurm").mkdir(parents=True)
    monkeypatch.setattr(paths, "Paths", lambda: Paths(str(tmp_path)))
    conf = tmp_path / "etc/slurm/slurm.conf"
    assert lifecycle._programs_that_cannot_run() == []
    conf.write_text("Epilog=/usr/bin/true\n")
    assert lifecycle._programs_that_cannot_run() == []
    conf.write_text("Epilog=/usr/bin/true\nTaskProlog=/no/such\n")
    assert lifecycle._programs_that_cannot_run() == [
        "TaskProlog=/no/such is not there in the container. Each job fails. What helps: dshpc doctor"
    ]

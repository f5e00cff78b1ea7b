"""What is read of a project for its report: files, settings, the container's log; and what is not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dshpc_setup.bundle import contents, scrubbed, sources
from dshpc_setup.diagnose import diagnose
from dshpc_setup.machine import CommandResult
from dshpc_setup.observed.model import ContainerSeen, Observed
from dshpc_setup.project.folder import Project
from dshpc_setup.settings import Settings
from dshpc_setup.terminal.reporter import Silent
from tests.unit.bundle import made


class WithLog(made.Made):
    """Its engine has the log of one container."""

    said: tuple[str, ...] | None = ("first", "second")
    asked: tuple[str, ...] = ()

    def run(
        self,
        argv: Sequence[str],
        *,
        deadline_s: float,
        stdin: bytes | str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> CommandResult:
        if list(argv[:2]) != ["docker", "logs"]:
            return super().run(argv, deadline_s=deadline_s)
        self.asked = tuple(argv)
        if self.said is None:
            return CommandResult(tuple(argv), "present", 1, "", "No such container", 1.0)
        for line in self.said:
            assert on_line is not None
            on_line(line)
        return CommandResult(tuple(argv), "present", 0, "\n".join(self.said), "", 1.0)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "config").mkdir()
    (tmp_path / ".dshpc").mkdir()
    (tmp_path / "config/slurm.conf").write_text("ClusterName=quark\nNodeName=quark-lab\n")
    (tmp_path / "docker-compose.yml").write_text("services: {}\n")
    (tmp_path / ".env").write_text("# a remark\nDB_PASSWORD='Envfile77Pw'\nOTHER=plain-value-7\n")
    (tmp_path / "dshpc.yaml").write_text("prefix: quark-lab\n")
    (tmp_path / ".dshpc/runtime.json").write_text(json.dumps({"container": "quark-lab-slurm"}))
    return Project(tmp_path)


def asked(machine: made.Made, project: Project | None, seen: Observed) -> sources.Sources:
    known = made.known_on(machine, Settings(), seen)
    return sources.ask(machine, project, (known, diagnose(known)), Silent())


def test_the_files_the_settings_and_the_log_are_read(project: Project) -> None:
    machine = WithLog(made.MACHINES / "workstation-rtx4090")
    found = asked(machine, project, Observed())
    assert found.rendered.keys() == {"config/slurm.conf", "docker-compose.yml"}
    assert found.settings is not None
    assert found.settings.prefix == "quark-lab"
    assert found.container_log == ("first", "second")
    assert machine.asked == ("docker", "logs", "--tail", "500", "--", "quark-lab-slurm")
    assert found.variables["DB_PASSWORD"] == "Envfile77Pw"
    files = scrubbed.files(machine, replace(found, container_log=("it used Envfile77Pw",)))
    found_name = re.fullmatch(
        r"ClusterName=word\d+\nNodeName=(host-\d+)\n", files["rendered/config/slurm.conf"]
    )
    assert found_name is not None
    assert files["settings/dshpc.yaml"] == f"prefix: {found_name[1]}\n"
    assert re.fullmatch(r"it used removed-\d+\n", files["log/container.log"])
    assert set(contents.listed(files)) == {
        "CONTENTS.txt", "facts.json", "findings.json", "observed.json", "versions.json",
        "log/container.log", "settings/dshpc.yaml", "settings/settings.json",
        "rendered/config/slurm.conf", "rendered/docker-compose.yml", "machine/machine.yaml",
        "machine/root.txtar", "machine/commands.yaml", "machine/nvml.json",
        "machine/nvml-readings.json", "machine/docker.json", "machine/amdsmi.json",
    }  # fmt: skip
    for text in files.values():
        assert "plain-value-7" not in text
        assert "Envfile" not in text
        assert "quark-lab" not in text


def test_a_log_that_is_not_to_be_had_says_why_or_is_what_was_seen(project: Project) -> None:
    machine = WithLog(made.MACHINES / "workstation-rtx4090")
    machine.said = None
    assert asked(machine, project, Observed()).container_log == (
        "(there is no log: No such container)",
    )
    seen = Observed(container=ContainerSeen("x", "exited", log=("its last words",)))
    assert asked(machine, project, seen).container_log == ("its last words",)
    without = WithLog(made.MACHINES / "vm-no-docker")
    assert asked(without, project, Observed()).container_log == ()
    assert without.asked == (), "an engine that is not there is not asked"


def test_only_the_last_lines_of_a_log_are_kept(project: Project) -> None:
    machine = WithLog(made.MACHINES / "workstation-rtx4090")
    machine.said = tuple(map(str, range(1000)))
    log = asked(machine, project, Observed()).container_log
    assert (len(log), log[0], log[-1]) == (500, "500", "999")
    machine.said = ("x" * 2003, "y" * 2000)
    log = asked(machine, project, Observed()).container_log
    assert log == ("x" * 2000 + " [3 more characters]", "y" * 2000)


def test_files_that_cannot_be_read_or_are_wrong_are_told(project: Project) -> None:
    (project.folder / "dshpc.yaml").write_text("gpu: [\n")
    (project.folder / "config/gres.conf").mkdir()
    (project.folder / "config/cgroup.conf").write_bytes(b"\xff" * (contents.MOST_BYTES + 1))
    machine = WithLog(made.MACHINES / "workstation-rtx4090")
    found = asked(machine, project, Observed())
    assert found.settings is None
    assert found.settings_text == "gpu: [\n"
    assert "cannot be read" in found.rendered["config/gres.conf"]
    files = scrubbed.files(machine, found)
    assert "bytes were left out" in files["rendered/config/cgroup.conf"]
    assert len(files["rendered/config/cgroup.conf"]) < contents.MOST_BYTES + 200


def test_without_a_project_there_is_a_report_of_the_machine() -> None:
    machine, log = made.captured("a100x2")
    found = asked(machine, None, Observed())
    assert (found.folder, found.settings, found.rendered, found.container_log) == (
        None,
        None,
        {},
        (),
    )
    files = scrubbed.files(machine, found)
    assert {name.partition("/")[0] for name in files} == {
        *("facts.json", "findings.json", "observed.json", "versions.json", "machine"),
    }
    assert sum(map(len, files.values())) < 1 << 20
    assert log.commands

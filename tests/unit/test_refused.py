"""Why a run of configure-environment put nothing in force is told again while nothing has changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.cluster import refused, start
from dshpc_setup.errors import DshpcError
from dshpc_setup.project.folder import REFUSED, Project
from dshpc_setup.setup import image_step
from dshpc_setup.setup.pipeline import Configure
from dshpc_setup.setup.report import Report
from dshpc_setup.setup.run import Options
from tests.unit.slow import SlowMachine
from tests.unit.test_slow_machine import Steps

TYPO = DshpcError(
    "/etc/slurm/slurm.conf (rendered), line 70: Slurm knows no 'KillWaitt' there.",
    "The line is: KillWaitt=30",
    ("Did you mean KillWait?",),
)


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> list[DshpcError]:
    """What the trial of a start refuses, while there is something."""
    told: list[DshpcError] = []
    agreed = start.agreed

    def tried(*args: Any) -> Any:
        if told:
            raise told[0]
        return agreed(*args)

    monkeypatch.setattr(start, "agreed", tried)
    return told


def run(folder: Path, machine: SlowMachine) -> Report:
    options = Options(flags={"simulate": "h100:2"})
    return Configure(machine, Project(folder, None), options, Steps()).run()


def standing(folder: Path) -> dict[str, Any] | None:
    project = Project(folder, None)
    return refused.standing(project, project.settings({}))


def test_it_is_told_while_nothing_has_changed(tmp_path: Path, refusing: list[DshpcError]) -> None:
    machine, yaml = SlowMachine(), tmp_path / "dshpc.yaml"
    assert run(tmp_path, machine).error is None
    assert standing(tmp_path) is None
    yaml.write_text("slurm_conf_extra: KillWaitt=30\n")
    assert standing(tmp_path) is None, "nobody has tried it"
    refusing.append(TYPO)
    assert run(tmp_path, machine).error == TYPO
    assert standing(tmp_path) == TYPO.to_json()
    yaml.write_text("slurm_conf_extra: KillWait=30\n")
    assert standing(tmp_path) is None, "it may do now"
    yaml.write_text("slurm_conf_extra: KillWaitt=30\n# the same\n")
    assert standing(tmp_path) is not None
    conf = tmp_path / "config/slurm.conf"
    before = conf.read_text()
    conf.write_text(before + "# by hand\n")
    assert standing(tmp_path) is None, "with another file it may do, too"
    conf.write_text(before)
    refusing.clear()
    assert run(tmp_path, machine).error is None
    assert standing(tmp_path) is None
    assert not (tmp_path / REFUSED).exists()


def test_where_nothing_is_in_force_yet_there_is_nothing_to_compare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise DshpcError("No base image.")

    monkeypatch.setattr(image_step, "ensure_base", fails)
    assert run(tmp_path, SlowMachine()).error == DshpcError("No base image.")
    assert not (tmp_path / REFUSED).exists()


@pytest.mark.parametrize("text", ["{", "[]", '{"settings": {}, "error": {"brief": 3}}', "{}"])
def test_a_damaged_note_says_nothing(tmp_path: Path, text: str) -> None:
    project = Project(tmp_path)
    project.prepare()
    (tmp_path / REFUSED).write_text(text)
    assert standing(tmp_path) is None

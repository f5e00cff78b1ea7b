"""docker-compose.yml in `dshpc status`: whose it is, and whether the container was made from it."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.apply.owned import NEW
from dshpc_setup.cluster import compose_file, operations
from dshpc_setup.cluster.compose_file import seconds
from dshpc_setup.files.atomic import read_plain
from dshpc_setup.project.folder import Project
from tests.unit.cluster.conftest import INSPECT, TEXTS, cluster, configured, container

NAME = "docker-compose.yml"
MADE = datetime(2026, 1, 1, tzinfo=timezone.utc).timestamp()  # as conftest's container says


def notes(project: Project, label: str = "abc1", config_hash: str | None = None) -> str:
    """What `dshpc status` notes, of a container made from the text with that label."""
    machine = cluster(project)
    machine.commands[INSPECT] = container(project, label=label, config_hash=config_hash)
    machine.commands["docker exec p-slurm sinfo"] = machine.commands[INSPECT]
    machine.commands["docker exec p-slurm scontrol"] = machine.commands[INSPECT]
    machine.commands["docker exec p-slurm sh -c squeue"] = machine.commands[INSPECT]
    return "\n".join(operations.status(machine, project).notes)


def edit(project: Project, at: float, text: str = "services: {}\n") -> None:
    path = project.folder / NAME
    path.write_text(text)
    os.utime(path, (at, at))


def test_as_it_was_written_and_started(project: Project) -> None:
    assert notes(project) == ""
    assert compose_file.owner(project) == "ours"


def test_ours_and_newer_than_the_container(project: Project) -> None:
    assert "newer than the container" in notes(project, label="0ld")
    configured(project, **{"docker-compose": TEXTS[NAME].replace("abc1", "abc2")})
    assert "newer than the container" in notes(project)
    compose_file.remember_used(project, None)
    assert notes(project, label="abc2") == ""


def test_an_edit_that_was_taken_back(project: Project) -> None:
    """Its label is that of the rendered text: what compose was given is what counts."""
    edit(project, MADE + 1, f"{TEXTS[NAME]}    mem_limit: 1g\n")
    compose_file.remember_used(project, None)
    edit(project, MADE - 1, TEXTS[NAME])
    assert "newer than the container" in notes(project)


@pytest.mark.parametrize("at", [MADE + 1, MADE - 1])
def test_edited_by_hand(project: Project, at: float) -> None:
    edit(project, at)
    assert compose_file.owner(project) == "edited"
    assert "edited after the container was made: dshpc up" in notes(project)
    compose_file.remember_used(project, None)
    assert notes(project) == "", "compose has seen this text, and kept the container"
    edit(project, MADE + 2, "services: {x: {}}\n")
    assert "edited after" in notes(project)


@pytest.mark.parametrize(("at", "late"), [(MADE + 1, True), (MADE - 1, False)])
def test_where_somebody_called_compose_himself(project: Project, at: float, late: bool) -> None:
    edit(project, at)
    assert ("edited after" in notes(project, config_hash="other")) is late
    (project.folder / compose_file.USED).unlink()
    assert ("edited after" in notes(project)) is late


def test_marked_as_ones_own(project: Project) -> None:
    edit(project, MADE + 1, f"{TEXTS[NAME]}# USER_CUSTOMIZED=true\n")
    assert compose_file.owner(project) == "custom"
    assert "edited after" in notes(project)


def test_a_newer_text_beside_it(project: Project) -> None:
    beside = project.folder / f"{NAME}{NEW}"
    beside.write_text("x")
    assert notes(project) == "", "it is left from an earlier time: the file is ours"
    edit(project, MADE - 1)
    compose_file.remember_used(project, None)
    assert f"dshpc config diff {NAME}" in notes(project)


def test_missing(project: Project) -> None:
    (project.folder / NAME).unlink()
    assert "docker-compose.yml is missing: configure-environment" in notes(project)


@pytest.mark.parametrize(
    ("time", "wanted"),
    [
        ("2026-01-01T00:00:00Z", MADE),
        ("2026-01-01T00:00:00.5Z", MADE + 0.5),
        ("2026-01-01T00:00:00.123456789Z", MADE + 0.123456789),
        ("", None),
        ("2026-01-01", None),
    ],
)
def test_times_of_the_engine(time: str, wanted: float | None) -> None:
    assert seconds(time) == (None if wanted is None else pytest.approx(wanted))


@given(st.integers(0, 7_000_000_000), st.integers(0, 999_999_999))
def test_any_time(whole_s: int, nanoseconds: int) -> None:
    whole = datetime.fromtimestamp(whole_s, timezone.utc)
    text = f"{whole:%Y-%m-%dT%H:%M:%S}.{nanoseconds:09d}Z"
    assert seconds(text) == pytest.approx(whole_s + nanoseconds / 1e9)


def test_another_user_who_may_not_read_the_variables_has_a_status(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended with advice to put the owner's .env aside."""
    closed = project.folder / ".env"
    closed.write_text("PASSWORD=x\n")
    read = read_plain

    def refused(path: Path) -> bytes | None:
        if path == closed:
            raise PermissionError(13, "Permission denied")
        return read(path)

    monkeypatch.setattr("dshpc_setup.cluster.compose_file.read_plain", refused)
    assert notes(project) == ""

"""/run/dshpc/status.json at every moment of a start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dshpc_setup.container import status
from dshpc_setup.container.status import Status
from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.slurm.paths import Paths


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(str(tmp_path))


def test_before_the_start_there_is_none(paths: Paths) -> None:
    assert status.read(paths) is None
    assert status.wait(paths, 0.0) is None


def test_a_step_is_seen_while_it_runs_and_timed_after(paths: Paths, tmp_path: Path) -> None:
    now = Status(paths)
    with now.step("detect"):
        found = status.read(paths)
        assert found is not None
        assert (found["phase"], found["ready"]) == ("starting: detect", False)
        assert (tmp_path / "run/dshpc/phase").read_text().splitlines()[0] == "starting: detect"
    now.ready()
    found = status.wait(paths, 5.0)
    assert found is not None
    assert (found["schema"], found["phase"], found["ready"]) == ("dshpc.start/1", "ready", True)
    assert [step["name"] for step in found["steps"]] == ["detect"]


def test_a_failure_says_what_why_and_what_to_do(paths: Paths) -> None:
    Status(paths).failed(DshpcError("what", "why", ("do this",)))
    found = status.wait(paths, 5.0)
    assert found is not None
    assert found["phase"] == "failed"
    failure = found["failure"]
    assert failure.pop("fixes") == [Fix("do this").to_json()]
    assert failure == {
        "brief": "what",
        "details": "why",
        "resolution": ["do this"],
        "file": None,
    }


def test_waiting_gives_up_in_time(paths: Paths) -> None:
    with Status(paths).step("key"):
        found = status.wait(paths, 0.05)
    assert found is not None
    assert found["phase"] == "starting: key"


def test_notes_go_to_the_log_too(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    now = Status(paths)
    now.note("one\ntwo")
    assert capsys.readouterr().out == "dshpc: one\ndshpc: two\n"
    now.ready()
    assert json.loads(Path(paths.status).read_text())["notes"] == ["one\ntwo"]


def test_parts_of_a_broken_file_are_told_in_text_that_everyone_can_read(tmp_path: Path) -> None:
    broken = b"Foo\xff\x00\x1b[31m".decode("utf-8", "surrogateescape")
    found = status.Status(Paths(str(tmp_path)), say=lambda _: None)
    found.note(broken)
    found.failed(DshpcError(f"Bad: {broken}", broken, (broken,)))
    told = status.read(Paths(str(tmp_path)))
    assert told is not None
    assert told["failure"]["brief"].isprintable()
    assert told["notes"][0].startswith("Foo")
    assert status.printable("ä\n\tb") == "ä\n\tb"


def test_a_cluster_that_runs_stays_ready_while_it_is_reconfigured(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path))
    status.Status(paths).ready()
    again = status.Status(paths, live=False)
    with again.step("check"):
        told = status.read(paths)
    assert told is not None
    assert told["phase"] == "ready"
    assert [step["name"] for step in again.values["steps"]] == ["check"]


def first_process(root: Path, began: int) -> None:
    """Its name is what it wants to be called."""
    (root / "proc/1").mkdir(parents=True, exist_ok=True)
    fields = " ".join(map(str, range(4, 22)))
    (root / "proc/1/stat").write_text(f"1 (a ) S 1 b) S {fields} {began} 99 98\n")


def test_what_an_earlier_start_left_is_not_believed(paths: Paths, tmp_path: Path) -> None:
    first_process(tmp_path, 4711)
    status.Status(paths).ready()
    assert (tmp_path / "run/dshpc/phase").read_text() == "ready\n4711\n"
    found = status.read(paths)
    assert found is not None
    assert (found["phase"], found["container_began"]) == ("ready", "4711")
    first_process(tmp_path, 4712)
    assert status.read(paths) is None
    assert status.wait(paths, 0.0) is None

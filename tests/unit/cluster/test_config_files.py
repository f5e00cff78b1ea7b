"""`dshpc config show FILE` and `diff`: what is in force, whose it is, and how config/ differs."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.apply.owned import OWNABLE
from dshpc_setup.cluster.config_diff import differences, unified
from dshpc_setup.cluster.config_files import SHOWN, parse_texts, path_of, show
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.project.folder import Project
from tests.unit.cluster.conftest import (
    GONE,
    INSPECT,
    TEXTS,
    cluster,
    configured,
    container,
    in_slurm,
)
from tests.unit.engine.fake import Answer

MARKED = "# USER_CUSTOMIZED=true\nNodeName=p\n"
KEPT = {"brief": "Line 3 is wrong.", "details": "", "resolution": []}


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("slurm.conf", "config/slurm.conf"),
        ("config/gres.conf", "config/gres.conf"),
        ("./docker-compose.yml", "docker-compose.yml"),
        ("cgroup.conf.dshpc-new", "config/cgroup.conf"),
        (".env", ".env"),
    ],
)
def test_names_of_files(name: str, path: str) -> None:
    assert path_of(name, OWNABLE) == path


@pytest.mark.parametrize("name", ["../config/slurm.conf", "../config/slurm.conf.dshpc-new"])
def test_a_path_from_where_we_stand(
    project: Project, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = project.folder / "work"
    monkeypatch.chdir(work)
    assert path_of(name, OWNABLE, project.folder) == "config/slurm.conf"
    assert path_of(str(project.folder / ".env"), OWNABLE, project.folder) == ".env"
    monkeypatch.chdir("/")
    with pytest.raises(DshpcError, match="There is no configuration file"):
        path_of(name, OWNABLE, project.folder)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("slum.conf", "Did you mean slurm.conf?"), ("/etc/passwd", "There are:"), ("", "There are:")],
)
def test_names_that_are_none(name: str, hint: str) -> None:
    with pytest.raises(DshpcError) as caught:
        path_of(name, SHOWN)
    assert caught.value.exit_code == Exit.USAGE
    assert hint in caught.value.details


def test_what_is_in_force_comes_from_the_container(project: Project) -> None:
    text = "NodeName=other\r\n\udcff no newline"
    found = show(cluster(project, {"slurm.conf": text}), project, "config/slurm.conf")
    raw = text.encode("utf-8", "surrogateescape")
    assert (found.path, found.text, found.owner) == ("config/slurm.conf", text, "rendered")
    assert found.to_json()["sha256"] == hashlib.sha256(raw).hexdigest()
    assert (found.where, found.in_force) == ("p-slurm:/etc/slurm/slurm.conf", True)
    assert found.note is None
    lua = show(cluster(project, {"job_submit.lua": "-- x\n"}), project, "job_submit.lua")
    assert (lua.path, lua.text, lua.owner) == ("job_submit.lua", "-- x\n", "rendered")


def test_whose_it_is(project: Project) -> None:
    edited = cluster(project, customized={"gres.conf": "edited"})
    assert show(edited, project, "gres.conf").owner == "edited"
    assert show(edited, project, "slurm.conf").owner == "rendered"
    custom = cluster(project, {"slurm.conf": MARKED}, customized={"slurm.conf": "custom"})
    assert show(custom, project, "slurm.conf").owner == "custom"
    # Edited since the start, and not in force yet
    (project.folder / "config/gres.conf").write_text("# mine\n")
    assert show(cluster(project), project, "gres.conf").owner == "rendered"


def test_whose_it_is_where_the_last_good_one_was_kept(project: Project) -> None:
    (project.folder / "config/gres.conf").write_text("Name=broken\n")
    report: dict[str, Any] = {"customized": {"gres.conf": "edited"}, "kept_last_good": KEPT}
    found = show(cluster(project, **report), project, "gres.conf")
    assert (found.owner, found.text) == (None, TEXTS["config/gres.conf"])
    assert "last good" in (found.note or "")
    both = cluster(project, {"gres.conf": "Name=broken\n"}, **report)
    assert show(both, project, "gres.conf").owner == "edited"


def test_a_cluster_that_is_down_shows_what_would_be_used(project: Project) -> None:
    machine = cluster(project)
    machine.commands[INSPECT] = GONE
    found = show(machine, project, "slurm.conf")
    assert (found.text, found.in_force) == (TEXTS["config/slurm.conf"], False)
    assert found.where == str(project.folder / "config/slurm.conf")
    assert "The cluster is down" in (found.note or "")
    assert "writes its own" in (found.note or "")
    (project.folder / "config/slurm.conf").write_text(MARKED)
    found = show(machine, project, "slurm.conf")
    assert (found.owner, found.text) == ("custom", MARKED)
    assert "writes its own" not in (found.note or "")
    for name in ("job_submit.lua", "gres.conf"):
        (project.folder / "config/gres.conf").unlink(missing_ok=True)
        with pytest.raises(DshpcError) as caught:
            show(machine, project, name)
        assert "at its start" in caught.value.details


@pytest.mark.parametrize(
    ("status", "report", "word"),
    [
        ("paused", {}, "The container is paused"),
        ("running", {"phase": "failed", "ready": False, "failure": KEPT}, "Line 3 is wrong"),
        ("running", {"phase": "starting: check", "ready": False}, "still starting"),
    ],
)
def test_where_nothing_is_in_force(
    project: Project, status: str, report: dict[str, Any], word: str
) -> None:
    machine = cluster(project, **report)
    machine.commands[INSPECT] = container(project, status)
    machine.commands["docker exec p-slurm sh -c cd"] = Answer()
    found = show(machine, project, "slurm.conf")
    assert not found.in_force
    assert word in (found.note or "")
    assert any(word in note for note in differences(machine, project).notes)


def test_after_a_start_that_failed_its_files_are_not_in_force(project: Project) -> None:
    failed = cluster(project, phase="failed", ready=False, failure=KEPT)
    found = show(failed, project, "slurm.conf")
    assert (found.in_force, found.where) == (False, str(project.folder / "config/slurm.conf"))
    assert "The start failed (Line 3 is wrong)" in (found.note or "")
    assert any("Line 3 is wrong" in note for note in differences(failed, project).notes)
    assert show(cluster(project, failure=None), project, "slurm.conf").in_force


def test_the_compose_file_is_that_of_the_folder(project: Project) -> None:
    found = show(cluster(project), project, "docker-compose.yml")
    assert (found.text, found.owner, found.note) == (TEXTS["docker-compose.yml"], "rendered", None)
    older = cluster(project)
    older.commands[INSPECT] = container(project, label="abc0")
    found = show(older, project, "docker-compose.yml")
    assert (found.in_force, "dshpc up" in (found.note or "")) == (False, True)


def test_a_container_that_does_not_answer_is_told(project: Project) -> None:
    machine = cluster(project)
    machine.commands["docker exec p-slurm sh -c cd"] = Answer(code=None, state="timeout")
    with pytest.raises(DshpcError) as caught:
        show(machine, project, "slurm.conf")
    assert caught.value.exit_code == Exit.INCOMPLETE


# diff


def test_without_a_difference(project: Project) -> None:
    found = differences(cluster(project), project)
    assert (found.found, found.notes, found.exit_code) == ((), (), 0)
    assert found.to_json()["differences"] == []


def test_in_force_against_the_folder(project: Project) -> None:
    machine = cluster(project, {"gres.conf": "AutoDetect=off\nName=gpu\n"})
    found = differences(machine, project)
    assert found.exit_code == Exit.WARNING
    (item,) = found.found
    assert (item.path, item.kind) == ("config/gres.conf", "in-force")
    assert item.text.splitlines()[:2] == [
        "--- /etc/slurm/gres.conf (in force in p-slurm)",
        "+++ config/gres.conf (in the project folder)",
    ]
    assert "\n-Name=gpu\n" in item.text
    assert differences(machine, project, ("slurm.conf",)).exit_code == 0


def test_an_edited_file_against_the_new_text(project: Project) -> None:
    (project.folder / "config/slurm.conf").write_text("ClusterName=mine")
    configured(project)
    machine = cluster(project, {"slurm.conf": "ClusterName=mine"})
    (item,) = differences(machine, project).found
    assert (item.path, item.kind) == ("config/slurm.conf", "new")
    assert "-ClusterName=mine\n\\ No newline at end of file\n" in item.text
    machine.commands[INSPECT] = GONE
    found = differences(machine, project, ("config/slurm.conf",))
    assert [each.kind for each in found.found] == ["new"]
    assert "nothing is in force" in found.notes[0]


def test_a_missing_file_and_one_that_is_marked(project: Project) -> None:
    (project.folder / "config/gres.conf").unlink()
    (project.folder / "config/slurm.conf").write_text(MARKED)
    found = differences(cluster(project, {"slurm.conf": MARKED}), project)
    assert [item.path for item in found.found] == ["config/gres.conf"]
    assert "\n+++ /dev/null\n" in found.found[0].text
    assert "config/gres.conf is missing" in found.notes[0]


@given(st.text(max_size=60), st.text(max_size=60))
def test_a_diff_is_empty_exactly_where_the_texts_are_the_same(old: str, new: str) -> None:
    text = unified(old, new, "a", "b")
    assert (text == "") == (old == new)
    assert text == "" or text.endswith("\n")


@given(st.binary(max_size=200))
def test_texts_come_byte_for_byte(raw: bytes) -> None:
    text = raw.decode("utf-8", "surrogateescape")
    found = parse_texts(in_slurm({"slurm.conf": text}).stdout)
    assert found["slurm.conf"].encode("utf-8", "surrogateescape") == raw


@given(st.text())
def test_any_answer_is_texts(text: str) -> None:
    assert set(parse_texts(text)) <= set(SHOWN)

"""`dshpc config ...` as it is typed: what goes to stdout, what to stderr, and the exit codes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dshpc_setup import cli
from dshpc_setup.cli import config, inspect, running
from dshpc_setup.errors import DshpcError
from dshpc_setup.files import atomic as files
from dshpc_setup.project.folder import REMEMBERED, Project
from dshpc_setup.terminal import command_names
from tests.unit.cluster.conftest import GONE, INSPECT, TEXTS, cluster, configured, project
from tests.unit.cluster.test_reconfigure import RECONFIGURE
from tests.unit.cluster.test_reconfigure import machine as running_cluster
from tests.unit.engine.fake import Answer, FakeMachine

__all__ = ["project"]


@pytest.fixture(autouse=True)
def _here(nowhere: None, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.folder)


def uses(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (config, running):
        monkeypatch.setattr(module, "machine_of", lambda _: machine)


def test_a_file_is_printed_and_nothing_else(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    text = "NodeName=x\r\n\udcff"
    uses(cluster(project, {"slurm.conf": text}), monkeypatch)
    assert cli.run(["config", "show", "slurm.conf"], "dshpc") == 0
    assert capfdbinary.readouterr() == (b"NodeName=x\r\n\xff", b"")
    assert cli.run(["config", "show", "config/gres.conf", "--json"], "dshpc") == 0
    value = json.loads(capfdbinary.readouterr().out)
    assert (value["schema"], value["path"]) == ("dshpc.config-file/1", "config/gres.conf")
    assert (value["owner"], value["where"]) == ("rendered", "p-slurm:/etc/slurm/gres.conf")


def test_what_is_not_in_force_is_said_on_stderr(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    machine = cluster(project)
    machine.commands[INSPECT] = GONE
    uses(machine, monkeypatch)
    assert cli.run(["config", "show", "slurm.conf"], "dshpc") == 0
    out, err = capsys.readouterr()
    assert out == TEXTS["config/slurm.conf"]
    assert err.startswith("dshpc: The cluster is down, so nothing is in force.")
    assert cli.run(["config", "show", "nothing.conf"], "dshpc") == 64


def test_diff_and_its_exit_codes(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    uses(cluster(project), monkeypatch)
    assert cli.run(["config", "diff"], "dshpc") == 0
    assert capsys.readouterr() == ("", "")
    uses(cluster(project, {"gres.conf": "Name=gpu\n"}), monkeypatch)
    assert cli.run(["config", "diff", "gres.conf"], "dshpc") == 1
    out = capsys.readouterr().out
    assert out.startswith("--- /etc/slurm/gres.conf (in force in p-slurm)\n+++ config/gres.conf")
    assert "\033" not in out, "colour is for terminals"
    assert cli.run(["config", "diff", "slurm.conf"], "dshpc") == 0
    capsys.readouterr()
    assert cli.run(["config", "diff", "--json"], "dshpc") == 1
    value = json.loads(capsys.readouterr().out)
    assert (value["schema"], len(value["differences"])) == ("dshpc.config-diff/1", 1)


def test_colours() -> None:
    text = "--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n z\n"
    said = inspect.coloured(text)
    assert "\033[32m+y\033[0m\n z\n" in said
    assert said.startswith("\033[1m--- a\033[0m\n")


def test_accept_and_reject(
    project: Project,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("slurm.conf", "gres.conf"):
        (project.folder / "config" / name).write_text("# mine\n")
    configured(project)
    assert cli.run(["config", "accept", "slurm.conf"], "dshpc") == 0
    out = capsys.readouterr().out
    assert "Accepted: config/slurm.conf" in out
    assert "dshpc reconfigure" in out
    assert cli.run(["config", "reject", "--all"], "dshpc") == 2, "nobody is there to ask"
    assert (project.folder / "config/gres.conf.dshpc-new").exists()
    assert cli.run(["config", "reject", "--all", "--yes", "--json"], "dshpc") == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["schema"], value["answer"]) == ("dshpc.config-answer/1", "rejected")
    assert value["files"] == ["config/gres.conf"]
    assert not (project.folder / "config/gres.conf.dshpc-new").exists()
    assert cli.run(["config", "accept"], "dshpc") == 64
    assert cli.run(["config", "accept", "--all", "gres.conf"], "dshpc") == 64


def test_reconfigure(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fake = running_cluster(project, stdout="Nothing has changed.\n")
    uses(fake, monkeypatch)
    assert cli.run(["reconfigure"], "dshpc") == 0
    out = capsys.readouterr().out
    assert out.startswith("Nothing has changed.\nContainer")
    assert cli.run(["reconfigure", "--json"], "dshpc") == 0
    assert json.loads(capsys.readouterr().out)["reconfigure"]["exit_code"] == 0
    fake.commands[RECONFIGURE] = Answer(code=2, stdout="gres.conf, line 3: no device.\n")
    assert cli.run(["reconfigure"], "dshpc") == 2
    assert "line 3" in capsys.readouterr().out
    fake.commands[INSPECT] = GONE
    assert cli.run(["reconfigure"], "dshpc") == 2
    assert "dshpc up" in capsys.readouterr().err


def test_settings_with_lists_and_lines(
    project: Project,
    capsys: pytest.CaptureFixture[str],
) -> None:
    set_ = ["config", "set"]
    assert cli.run([*set_, "partitions", "short=1:00:00", "long"], "dshpc") == 0
    assert cli.run([*set_, "slurm_conf_extra", "MaxJobCount=20", "MaxTime=1:0"], "dshpc") == 0
    assert cli.run([*set_, "devices", "0,2"], "dshpc") == 0
    assert cli.run([*set_, "work", "a", "b"], "dshpc") == 64
    capsys.readouterr()
    assert cli.run(["config", "show"], "dshpc") == 0
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[:2] for row in rows if row.startswith(("part", "dev"))] == [
        ["devices", "0,2"], ["partition", "debug"], ["partitions", "short=1:00:00,long"]
    ]  # fmt: skip
    at = next(n for n, row in enumerate(rows) if row.startswith("slurm_conf_extra"))
    assert (rows[at].split()[1], rows[at + 1].strip()) == ("MaxJobCount=20", "MaxTime=1:0")
    assert cli.run(["config", "show", "--json"], "dshpc") == 0
    values = json.loads(capsys.readouterr().out)["settings"]
    assert values["partitions"]["value"] == ["short=1:00:00", "long"]
    assert values["slurm_conf_extra"]["value"] == "MaxJobCount=20\nMaxTime=1:0"
    assert Path("dshpc.yaml").read_text().count("\n- ") == 4


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("slurm_conf_extra", "GresTypes=gpu,license", "GresTypes is written here"),
        ("partitions", "debug", "debug"),
    ],
)
def test_what_would_clash_is_not_written_down(
    project: Project, name: str, value: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path.name for path in project.folder.iterdir())
    assert cli.run(["config", "set", name, value], "dshpc") == 64
    assert said in capsys.readouterr().err
    assert sorted(path.name for path in project.folder.iterdir()) == before


def test_wrong_lines_are_corrected_one_by_one(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    path = project.folder / "dshpc.yaml"
    wrong = "# ours\nprefix: p\ngpuu: amd\nisolation: enforce\nshm_size: big\nshm_size: 2g\n"
    path.write_text(wrong)
    assert cli.run(["config", "set", "isolation", "strict"], "dshpc") == 64
    assert path.read_text() == wrong
    capsys.readouterr()
    assert cli.run(["config", "set", "isolation", "enforced"], "dshpc") == 0
    out, err = capsys.readouterr()
    assert "Run configure-environment" not in out, "which would refuse it"
    assert [line.split(": ")[1] for line in err.splitlines()] == [
        "dshpc.yaml:3:1",
        "dshpc.yaml:5:1",
        "dshpc.yaml:6:1",
    ]
    assert path.read_text() == wrong.replace("enforce", "enforced")
    assert cli.run(["config", "unset", "gpuu"], "dshpc") == 0
    assert cli.run(["config", "set", "shm_size", "4g"], "dshpc") == 0
    out, err = capsys.readouterr()
    assert out.endswith("Run configure-environment to put it into effect.\n")
    assert path.read_text() == "# ours\nprefix: p\nisolation: enforced\nshm_size: 4g\n"
    path.write_text(wrong)
    assert cli.run(["config", "unset", "shm_size", "isolation", "gpuu"], "dshpc") == 0
    assert path.read_text() == "# ours\nprefix: p\n"
    path.write_text("gpu: [")
    for typed in (["unset", "gpu"], ["set", "gpu", "amd"]):
        assert cli.run(["config", *typed], "dshpc") == 64
        assert path.read_text() == "gpu: ["


def test_clashing_lines_can_be_replaced(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    path = project.folder / "dshpc.yaml"
    path.write_text("slurm_conf_extra: ClusterName=x\npartitions: [debug]\n")
    assert cli.run(["config", "set", "slurm_conf_extra", "KillWait=9"], "dshpc") == 0
    assert "Still wrong: dshpc.yaml:2:14: partitions" in capsys.readouterr().err
    assert cli.run(["config", "unset", "partitions"], "dshpc") == 0
    assert path.read_text() == "slurm_conf_extra: KillWait=9\n"


def test_advice_names_the_new_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSHPC_COMMAND", os.path.abspath("configure-environment"))
    assert "./dshpc reconfigure" in command_names.as_called("Then: dshpc reconfigure")


def test_what_is_wrong_in_the_file_goes_and_the_flag_that_is_in_force_stays(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    """The advice of doctor and status, typed: it dropped the cluster's own prefix."""
    project.write_json(REMEMBERED, {"prefix": "lab"})
    (project.folder / "dshpc.yaml").write_text("prefix: 5\n")
    assert cli.run(["config", "unset", "prefix"], "dshpc") == 0
    said = capsys.readouterr()
    assert "Taken out of" in said.out
    assert "Forgotten" not in said.out
    assert "Still wrong" not in said.err
    assert project.remembered == {"prefix": "lab"}
    assert cli.run(["config", "unset", "prefix"], "dshpc") == 0
    assert "Forgotten: prefix." in capsys.readouterr().out


def test_a_value_that_was_typed_stands_in_no_file(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    """A place in dshpc.yaml was named where there was no such file."""
    assert cli.run(["config", "set", "slurm_conf_extra", "GresTypes=gpu,license"], "dshpc") == 64
    said = capsys.readouterr().err
    assert said.startswith("dshpc: slurm_conf_extra, line 1 clashes: GresTypes is written here.")
    assert "dshpc.yaml" not in said
    (project.folder / "dshpc.yaml").write_text("# mine\npartitions: short\n")
    assert cli.run(["config", "set", "partitions", "long,debug"], "dshpc") == 64
    said = capsys.readouterr().err
    assert said.startswith("dshpc: partitions, item 2: 'debug'")
    assert "dshpc.yaml" not in said
    assert cli.run(["config", "set", "partition", "short"], "dshpc") == 64
    assert "dshpc.yaml:2:1: partitions, item 1" in capsys.readouterr().err, "that one is in it"


def test_an_unreadable_file_is_not_one_without_the_setting(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    path = project.folder / "dshpc.yaml"
    path.write_text("prefix: lab\n\tshm_size: 2g\n")
    assert cli.run(["config", "unset", "shm_size"], "dshpc") == 64
    assert "dshpc.yaml:2:1: this is not valid YAML" in capsys.readouterr().err
    project.write_json(REMEMBERED, {"gpu": "none"})
    assert cli.run(["config", "unset", "gpu"], "dshpc") == 0
    said = capsys.readouterr()
    assert "Forgotten: gpu." in said.out
    assert "Still wrong: dshpc.yaml:2:1" in said.err
    path.write_bytes(b"prefix: l\xe9b\n")
    assert cli.run(["config", "unset", "prefix"], "dshpc") == 64
    assert "it is not UTF-8 text" in capsys.readouterr().err


def test_who_may_not_write_is_told_whose_the_file_is(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ended in "[Errno 13]" and the name of a temporary file."""

    def refused(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied", "/x/.dshpc.yaml.0.dshpc-tmp")

    folder = project.folder
    monkeypatch.setattr(os, "open", refused)
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    with pytest.raises(DshpcError) as caught:
        files.write_temporary(folder / "dshpc.yaml", "")
    told = caught.value
    assert told.brief == f"Cannot write {folder}/dshpc.yaml: permission denied."
    assert told.details.startswith(f"{folder} belongs to ")
    assert told.resolution[0].startswith("Ask ")
    assert "Errno" not in str(told)
    monkeypatch.undo()
    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(DshpcError) as caught:
        files.write_temporary(folder / "dshpc.yaml", "")
    assert caught.value.resolution[0] == f"Allow yourself to write there: chmod u+w {folder}"


def test_what_a_file_of_ones_own_keeps_out_is_said(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    """The setting was listed as if it were in force, and to be applied by a run that could not."""
    (project.folder / "config/slurm.conf").write_text("# USER_CUSTOMIZED=true\nClusterName=p\n")
    assert cli.run(["config", "set", "slurm_conf_extra", "KillWait=60"], "dshpc") == 0
    out, err = capsys.readouterr()
    assert "put it into effect" not in out
    assert "is not in force: config/slurm.conf is your own file" in err
    assert cli.run(["config", "show"], "dshpc") == 0
    out, err = capsys.readouterr()
    rows = out.splitlines()
    at = next(n for n, row in enumerate(rows) if row.startswith("slurm_conf_extra"))
    assert rows[at + 1].strip() == "(not in force: config/slurm.conf is your own file)"
    assert out.count("not in force") == 1
    assert "dshpc reconfigure" in err
    assert cli.run(["config", "show", "--json"], "dshpc") == 0
    values = json.loads(capsys.readouterr().out)["settings"]
    assert values["slurm_conf_extra"]["kept_out_by"] == ["config/slurm.conf"]
    assert values["shm_size"]["kept_out_by"] == []


def test_one_setting_is_shown_by_its_name(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    (project.folder / "dshpc.yaml").write_text("array_limit: 77\n")
    assert cli.run(["config", "show", "array_limit"], "dshpc") == 0
    assert capsys.readouterr().out.split() == ["array_limit", "77", "file:", "dshpc.yaml:1:1"]
    assert cli.run(["config", "show", "array_limit", "--json"], "dshpc") == 0
    assert list(json.loads(capsys.readouterr().out)["settings"]) == ["array_limit"]
    assert cli.run(["config", "show", "array_limits"], "dshpc") == 64
    assert "Did you mean 'array_limit'?" in capsys.readouterr().err


def test_homes_that_nobody_chose_are_shown_as_they_are(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    runtime = project.runtime()
    for homes, shown in (([], "kept"), (["/home"], "host")):
        project.write_json(".dshpc/runtime.json", {**runtime, "homes": homes})
        assert cli.run(["config", "show", "home"], "dshpc") == 0
        assert capsys.readouterr().out.split() == ["home", shown, "default"]

"""`dshpc record`, and `--machine DIR` in every command."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup import cli
from dshpc_setup.cli.record import lines
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.machine import Reply, local
from dshpc_setup.machine.recorded import Unrecorded
from dshpc_setup.project.folder import Project
from dshpc_setup.record.recorder import Recorded
from tests.unit.machine.in_place import InPlace

MACHINES = Path(__file__).parents[2] / "machines"
H100 = str(MACHINES / "h100x8")


pytestmark = pytest.mark.usefixtures("nowhere")


def asked_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = cli.run([*arguments, "--json"], "dshpc")
    return code, json.loads(capsys.readouterr().out)


# record


class Here(InPlace):
    """This machine without processes and engines, which unit tests may not have."""

    def __init__(self, root: str = "/") -> None:
        super().__init__(root)

    def which(self, program: str) -> str | None:
        return None

    def nvml(self, deadline_s: float) -> Any:
        return Reply("absent", None, "libnvidia-ml.so.1", "not there", 12)

    nvml_readings = amdsmi = docker = nvml


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "tree"
    (root / "proc").mkdir(parents=True)
    (root / "proc/meminfo").write_text("MemTotal: 16281600 kB\n")
    (root / "proc/cpuinfo").write_text("processor : 0\nSerial : 1234567890\n")
    monkeypatch.setattr(local, "LocalMachine", Here)
    return root


def test_record_says_what_it_did(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["record", "r", "--root", str(tree), "--yes"], "dshpc") == 0
    out = capsys.readouterr().out
    assert "Recorded in r: " in out
    assert "dshpc detect --machine r" in out
    assert "Look through it before you send it: r/root.txtar" in out
    assert "1234567890" not in Path("r/root.txtar").read_text()
    assert cli.run(["detect", "--machine", "r"], "dshpc") == 0
    assert "15.5 GiB" in capsys.readouterr().out


def test_record_as_json(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, value = asked_json(capsys, "record", "r", "--root", str(tree))
    assert (code, value["schema"], value["folder"], value["differs"]) == (
        0,
        "dshpc.record/1",
        "r",
        [],
    )
    assert value["bytes"] == sum(Path("r", item["name"]).stat().st_size for item in value["files"])
    code, value = asked_json(capsys, "record", "r", "--root", str(tree))
    assert (code, value["schema"]) == (64, "dshpc.error/1")
    assert "not empty" in value["error"]["brief"]


def test_what_a_recording_lacks_is_said() -> None:
    done = Recorded(
        "a b", {"root.txtar": 1234, "machine.yaml": 12}, {"file": 2, "link": 0, "command": 1},
        {"IPv4 address": 2, "UUID": 1}, tuple(f"/d{n}" for n in range(10)), ("nvidia-smi -L",), ("gpus",),
    )  # fmt: skip
    text = "\n".join(lines(done))
    assert "1.2 KiB" in text
    assert "Captured  2 files, 1 command" in text
    assert "Replaced  2 IPv4 addresses, 1 UUID" in text
    assert "/d7, and 2 more" in text
    assert "No answer nvidia-smi -L" in text
    assert "not replay all facts as they were: gpus" in text
    assert "--machine 'a b'" in text


# --machine


def test_commands_that_look_replay(capsys: pytest.CaptureFixture[str]) -> None:
    code, facts = asked_json(capsys, "detect", "--machine", H100)
    assert (code, len(facts["gpus"]["devices"])) == (0, 8)
    code, findings = asked_json(capsys, "doctor", "--machine", H100)
    assert code == findings["exit_code"]
    assert any("H100" in str(item["evidence"]) for item in findings["findings"])
    code, value = asked_json(capsys, "config", "show", "--machine", H100)
    assert (code, value["schema"]) == (0, "dshpc.settings/1")


def test_configure_shows_what_it_would_do_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["configure", "--machine", H100, "--diff"], "dshpc") == 0
    out = capsys.readouterr().out
    assert f"The machine recorded in {H100} is replayed: nothing is started or written." in out
    assert "+NodeName=" in out
    assert "gpu:h100:8" in out
    assert "Nothing was changed" in out
    code, value = asked_json(capsys, "configure", "--machine", H100)
    assert (code, {item["action"] for item in value["files"]}) == (0, {"would-create"})
    assert any("replayed" in note for note in value["notes"])
    assert list(tmp_path.iterdir()) == []


def test_configure_takes_settings_from_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DSHPC_GPU", "none")
    assert cli.run(["configure", "--machine", H100, "--prefix", "zeta", "--diff"], "dshpc") == 0
    out = capsys.readouterr().out
    assert 'container_name: "zeta-slurm"' in out
    assert "gpu:h100" not in out


@pytest.mark.parametrize(
    "command",
    [["up"], ["down"], ["restart"], ["destroy", "--yes"], ["logs"], ["record", "r"]],
)
def test_commands_that_act_refuse(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*command, "--machine", H100], "dshpc") == 64
    out, err = capsys.readouterr()
    assert out == ""
    assert "A recorded machine can be looked at, not run." in err


def test_they_do_not_offer_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["up", "--help"], "dshpc") == 0
    assert "--machine" not in capsys.readouterr().out
    assert cli.run(["status", "--help"], "dshpc") == 0
    assert "--machine" in capsys.readouterr().out


def test_status_says_what_is_not_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Project(tmp_path).prepare()
    Project(tmp_path).write_json(
        ".dshpc/runtime.json", {"container": "dshpc-slurm", "prefix": "dshpc", "work": "/x"}
    )
    code, value = asked_json(capsys, "status", "--machine", H100)
    assert (code, value["schema"]) == (2, "dshpc.error/1")
    assert "commands.yaml" in value["error"]["details"]
    assert "docker" in value["error"]["details"]
    assert "dshpc-slurm" in value["error"]["details"]


def test_status_answers_from_what_was_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Project(tmp_path).prepare()
    Project(tmp_path).write_json(
        ".dshpc/runtime.json", {"container": "dshpc-slurm", "prefix": "dshpc", "work": "/x"}
    )
    shutil.copytree(H100, tmp_path / "m")
    with (tmp_path / "m/commands.yaml").open("a") as file:
        file.write(
            "- argv: [docker, inspect, --type, container, --, dshpc-slurm]\n"
            "  code: 1\n  stderr: 'Error: No such container: dshpc-slurm'\n"
        )
    assert cli.run(["status", "--machine", "m"], "dshpc") == 2
    assert "The cluster is down" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["detect", "doctor", "configure", "gpus"])
@pytest.mark.parametrize("as_json", [True, False])
def test_what_was_not_recorded_is_told_in_a_sentence(
    command: str, as_json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(H100, "m")
    with Path("m/root.txtar").open("a") as file:
        file.write("-- proc/meminfo there --\n")
    text = Path("m/root.txtar").read_text().replace("-- proc/meminfo --", "-- proc/old --")
    Path("m/root.txtar").write_text(text)
    code = cli.run([command, "--machine", "m", *(["--json"] if as_json else [])], "dshpc")
    out, err = capsys.readouterr()
    if command == "gpus" and code == 0:
        return  # it does not ask for the memory
    assert code == 2
    assert "m/root.txtar does not hold what is in /proc/meminfo" in err
    assert "another version of dshpc" in err
    assert "Traceback" not in err
    if as_json:
        assert json.loads(out)["error"]["exit_code"] == 2


@pytest.mark.parametrize("command", [["detect"], ["doctor"], ["configure"], ["status"], ["gpus"],
                                     ["config", "show"]])  # fmt: skip
@pytest.mark.parametrize(
    ("make", "code", "word"),
    [
        ("none", 64, "no such folder"),
        ("file", 64, "a file"),
        ("empty", 64, "machine.yaml"),
        ("newer", 64, "newer version"),
        ("damaged", 64, "nvml.json"),
    ],
)
def test_bad_folders(
    command: list[str], make: str, code: int, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    good = "system: Linux\nrelease: '6'\nmachine: x86_64\n"
    Path("file").write_text("x")
    for name, files in (
        ("empty", {}),
        ("newer", {"machine.yaml": f"format: 2\n{good}"}),
        ("damaged", {"machine.yaml": f"format: 1\n{good}", "nvml.json": "{"}),
    ):
        Path(name).mkdir()
        for file, text in files.items():
            Path(name, file).write_text(text)
    found, value = asked_json(capsys, *command, "--machine", make)
    assert (found, value["schema"], value["exit_code"]) == (code, "dshpc.error/1", code)
    said = value["error"]["brief"] + value["error"]["details"]
    assert word in said
    assert make in said


# --root


@pytest.mark.parametrize("command", [["detect"], ["record", "r"], ["gpus"]])
@pytest.mark.parametrize(
    ("root", "word"),
    [("none", "none of that name"), ("file", "a file"), ("bare", "proc, sys, dev")],
)
def test_a_root_with_no_machine_under_it(
    command: list[str], root: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("file").write_text("x")
    Path("bare/stuff").mkdir(parents=True)
    code, value = asked_json(capsys, *command, "--root", root)
    assert (code, value["schema"]) == (64, "dshpc.error/1")
    assert word in value["error"]["brief"] + value["error"]["details"]


def test_a_root_that_may_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from dshpc_setup.cli.seen import seen_machine

    def listdir(path: str) -> list[str]:
        raise PermissionError(13, "Permission denied", path)

    Path("tree/sys").mkdir(parents=True)
    monkeypatch.setattr(os, "listdir", listdir)
    with pytest.raises(DshpcError, match="cannot be read") as caught:
        seen_machine("tree", None, "")
    assert caught.value.exit_code == Exit.ERROR


def test_two_machines_are_one_too_many(capsys: pytest.CaptureFixture[str]) -> None:
    Path("tree/sys").mkdir(parents=True)
    code, value = asked_json(capsys, "detect", "--root", "tree", "--machine", H100)
    assert (code, value["exit_code"]) == (64, 64)


def test_the_error_of_what_is_not_recorded() -> None:
    error = Unrecorded("m/commands.yaml does not hold the command ['x']").told()
    assert "m/commands.yaml does not hold the command ['x']" in error.details
    assert error.resolution

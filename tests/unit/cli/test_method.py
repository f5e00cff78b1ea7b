from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.cli import run
from dshpc_setup.methods.schema import published
from dshpc_setup.project.folder import Project
from tests.unit.methods.made import folder, shut, text_of

Captured = tuple[int, str, str]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DSHPC_DIR", raising=False)


@pytest.fixture
def dshpc(capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    def called(*words: str) -> Captured:
        code = run(["method", *words], "dshpc")
        out, err = capsys.readouterr()
        return code, out, err

    return called


def test_a_method_from_the_first_to_the_last_command(dshpc, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert dshpc("init", "first", "--gpus", "2")[0] == 0
    code, out, _ = dshpc("list")
    assert code == 0
    assert "first                0.1" in out
    assert "gpu-report" in out
    own, shipped = out.split("These come with dsHPC:")
    assert "first" in own
    assert "gpu-report" in shipped
    assert max(map(len, out.splitlines())) <= 110
    code, out, _ = dshpc("show", "first")
    assert code == 0
    assert "2 GPUs" in out
    assert "Run it    dshpc method run first" in out
    code, out, _ = dshpc("validate", "first", "./methods/first", "methods/first/method.json")
    assert code == 0
    assert out.count("valid\n") == 3
    assert dshpc("init", "first")[0] == 64


def test_a_method_of_ones_own_is_made_and_shown_by_its_path(dshpc, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = dshpc("init", "./mine/train")
    assert (code, f"Made {tmp_path}/mine/train/method.json" in out) == (0, True)
    assert "Run it: dshpc method run ./mine/train" in out
    code, out, _ = dshpc("show", "./mine/train")
    assert (code, "Run it    dshpc method run ./mine/train" in out) == (0, True)
    assert dshpc("show", "train")[0] == 64


@pytest.mark.parametrize(
    "foreign", [4711, None]
)  # root's is no other user's, and closed all the same
def test_another_users_methods_are_told_to_be_his(  # type: ignore[no-untyped-def]
    dshpc, tmp_path: Path, monkeypatch, foreign: int | None
) -> None:
    project = Project(tmp_path, foreign=foreign)
    monkeypatch.setattr("dshpc_setup.cli.method._owner_of", lambda _folder: 4711)
    monkeypatch.setattr("os.access", lambda *_: False)
    monkeypatch.setattr("dshpc_setup.cli.method.found_project", lambda _named: project)
    monkeypatch.setattr("os.geteuid", lambda: 4712)
    code, _, err = dshpc("init", "train")
    assert code == 64
    assert "belong to user 4711" in err
    assert "dshpc method init ~/methods/train" in err
    assert not (tmp_path / "methods").exists()


def test_broken_ones_are_listed_and_said(dshpc, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    folder(tmp_path / "methods", "bad", text=text_of(name="bad", comand=1))
    folder(tmp_path / "methods", "good")
    code, out, _ = dshpc("list", "--json")
    listed = {each["name"]: each for each in json.loads(out)["methods"]}
    assert (code, listed["bad"]["state"], listed["good"]["state"]) == (0, "broken", "valid")
    assert listed["bad"]["problems"][0]["line"] == 5
    assert listed["gpu-report"]["origin"] == "shipped"
    assert "BROKEN  1 problem: dshpc method validate bad" in dshpc("list")[1]
    code, out, _ = dshpc("validate", "--all")
    assert code == 2
    assert f"{tmp_path}/methods/bad/method.json:5: $.comand" in out
    assert f"{tmp_path}/methods/good/method.json: valid" in out
    code, out, _ = dshpc("validate", "bad", "--json")
    checked = json.loads(out)
    assert checked["schema"] == "dshpc.method-validation/1"
    assert (code, checked["exit_code"], checked["methods"][0]["valid"]) == (2, 2, False)
    code, _, err = dshpc("show", "bad")
    assert code == 2
    assert "$.comand" in err


def test_show_as_json_has_all_that_is_declared(dshpc, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    one = {"name": "lr", "type": "number", "required": True}
    keys: dict[str, Any] = {
        "parameters": [one],
        "input_modes": ["multi_file"],
        "resources": {"time_limit": "2h"},
    }
    folder(tmp_path / "methods", "train", **keys)
    shown = json.loads(dshpc("show", "train", "--json")[1])["method"]
    assert shown["resources"]["time_limit"] == 120
    assert shown["run"] == "dshpc method run train -p lr=NUMBER --input FILE ..."
    assert shown["folder"] == str(tmp_path / "methods" / "train")


@pytest.mark.parametrize(
    "words",
    [
        ("validate",),
        ("validate", "--all", "x"),
        ("validate", "nothere"),
        ("validate", "./nothere"),
        ("show", "nothere"),
        ("init", "a b"),
        ("init", "x", "--command", "perl"),
    ],
)
def test_wrong_usage(dshpc, words: tuple[str, ...]) -> None:  # type: ignore[no-untyped-def]
    code, out, err = dshpc(*words)
    assert (code, out) == (64, "")
    assert "What to do:" in err


def test_the_projects_folder_counts_from_within(  # type: ignore[no-untyped-def]
    dshpc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".dshpc").mkdir()
    (tmp_path / "data").mkdir()
    folder(tmp_path / "methods", "train")
    monkeypatch.chdir(tmp_path / "data")
    assert dshpc("show", "train")[0] == 0


def test_a_description_cannot_write_over_the_terminal(dshpc, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    folder(tmp_path / "methods", "train", description="a\x1b[2Jb\nc")
    for words in (("list",), ("show", "train")):
        out = dshpc(*words)[1]
        assert "\x1b" not in out
        assert "a [2Jb c" in out


def test_the_schema(dshpc) -> None:  # type: ignore[no-untyped-def]
    assert dshpc("schema")[:2] == (0, published())


def test_a_method_in_r_says_how_r_gets_into_the_image(dshpc) -> None:  # type: ignore[no-untyped-def]
    assert "dshpc env add --apt r-base-core" in dshpc("init", "stats", "--command", "Rscript")[1]
    assert "r-base-core" not in dshpc("init", "other")[1]


def test_what_may_not_be_looked_at_is_said(dshpc, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    closed = folder(tmp_path / "closed", "train")
    shut(monkeypatch, tmp_path / "closed")
    code, out, _ = dshpc("validate", f"{closed}/method.json")
    assert (code, "It cannot be read: Permission denied." in out) == (2, True)
    code, _, err = dshpc("list", "--dir", str(closed))
    assert (code, "you may not look there" in err) == (64, True)
    monkeypatch.undo()
    assert dshpc("validate", f"{closed}/main.py/method.json")[0] == 64  # a file is no folder

"""action.yml and what it starts: inputs travel as variables, and each becomes one word of a command line."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.errors import DshpcError
from dshpc_setup.project import on_path
from scripts import ci_setup

ROOT = Path(__file__).parents[2]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
# any character but NUL: what a variable can hold
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
HOSTILE = st.one_of(
    TEXTS, st.sampled_from(["h100:2; rm -rf /", "$(id)", "`id`", "--dir=/", "x' '", '"', "a\nb"])
)


def test_no_input_stands_in_a_script() -> None:
    for step in ACTION["runs"]["steps"]:
        assert step["shell"] == "bash"
        assert "${{" not in step["run"]


def test_each_input_reaches_the_script_as_a_variable() -> None:
    (step,) = ACTION["runs"]["steps"]
    handed = {
        name: re.fullmatch(r"\$\{\{ inputs\.(\w+) \}\}", text)[1]  # type: ignore[index]
        for name, text in step["env"].items()
    }
    assert set(handed.values()) == set(ACTION["inputs"])
    source = (ROOT / "scripts/ci_setup.py").read_text()
    assert [name for name in handed if f'env.get("{name}"' not in source] == []


def test_its_own_values_are_understood() -> None:
    (step,) = ACTION["runs"]["steps"]
    defaults = {name: item["default"] for name, item in ACTION["inputs"].items()}
    env = {name: defaults[text[11:-3]] for name, text in step["env"].items()}
    assert ci_setup.wanted(env, "/w").flags == ("--simulate=none", "--nodes=1", "--engine=auto")
    assert ci_setup.wanted({}, "/w").flags == ("--simulate=none", "--nodes=1", "--engine=auto")


@given(HOSTILE, HOSTILE)
def test_an_input_is_one_word(simulate: str, engine: str) -> None:
    env = {"DSHPC_CI_SIMULATE": simulate, "DSHPC_CI_ENGINE": engine}
    assert ci_setup.wanted(env, "/w").flags == (
        f"--simulate={simulate.strip() or 'none'}",
        "--nodes=1",
        f"--engine={engine.strip() or 'auto'}",
    )


@given(HOSTILE)
def test_so_is_a_number_or_a_list_of_nodes(nodes: str) -> None:
    flags = ci_setup.wanted({"DSHPC_CI_NODES": nodes}, "/w").flags
    assert f"--nodes={nodes.strip() or '1'}" in flags
    assert ("--simulate=none" in flags) == (nodes.strip() or "1").isdecimal()


def test_a_list_of_nodes_says_what_the_first_one_simulates() -> None:
    env = {"DSHPC_CI_NODES": "h100:2,none"}
    assert ci_setup.wanted(env, "/w").flags == ("--nodes=h100:2,none", "--engine=auto")
    both = ci_setup.wanted({**env, "DSHPC_CI_SIMULATE": "h100:2"}, "/w").flags
    assert both == ("--simulate=h100:2", "--nodes=h100:2,none", "--engine=auto")


@pytest.mark.parametrize(
    ("env", "work"),
    [
        ({"GITHUB_WORKSPACE": "/g", "CI_PROJECT_DIR": "/l"}, "/g"),
        ({"CI_PROJECT_DIR": "/l"}, "/l"),
        ({}, "/w"),
    ],
)
def test_jobs_see_the_checkout(env: dict[str, str], work: str) -> None:
    assert ci_setup.wanted(env, "/w").work == work


@given(HOSTILE, HOSTILE, st.sampled_from(on_path.SLURM))
def test_a_wrapper_hands_everything_over(dshpc: str, folder: str, command: str) -> None:
    """Whatever stands in the paths. tests/integration/test_ci.py runs some."""
    text = on_path.wrapper(dshpc, command, "DSHPC_DIR", folder)
    words = shlex.split(text, comments=True)
    at = words.index("exec", words.index("export"))
    assert words[at:] == ["exec", dshpc, command, "$@"]
    assert f"DSHPC_DIR={folder}" in words
    assert words[at - 2 : at] == ["export", "DSHPC_DIR"]


def test_dshpc_itself_has_one() -> None:
    words = shlex.split(on_path.wrapper("/r/dshpc", "dshpc", "DSHPC_DIR", "/f"), comments=True)
    assert words[-3:] == ["exec", "/r/dshpc", "$@"]


def test_places_are_tried_in_order() -> None:
    env = {"RUNNER_TEMP": "/t", "HOME": "relative"}
    assert ci_setup.candidates(env, "/home/u") == ["/t/dshpc-ci", "/home/u/dshpc-ci"]


def test_a_place_that_others_can_write_is_passed_over(tmp_path: Path) -> None:
    open_to_all, own = tmp_path / "open", tmp_path / "own"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    own.mkdir()
    chosen = ci_setup.choose([str(open_to_all / "x"), str(own / "x")])
    assert chosen == own / "x"
    assert chosen.stat().st_mode & 0o777 == 0o700
    with pytest.raises(DshpcError) as told:
        ci_setup.choose([str(open_to_all / "x")])
    assert "can be written by everybody" in told.value.details


def test_a_file_in_its_place_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert ci_setup.choose([f"{tmp_path}/file/x", f"{tmp_path}/y"]) == tmp_path / "y"


def test_one_line_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "path"
    file.write_text("/before\n")
    ci_setup.tell_runner(str(file), "/a b/bin")
    ci_setup.tell_runner(None, "/nowhere")
    assert file.read_text() == "/before\n/a b/bin\n"
    with pytest.raises(DshpcError):
        ci_setup.tell_runner(str(file), "/a\n/b")
    with pytest.raises(DshpcError):
        ci_setup.tell_runner(str(tmp_path / "none/path"), "/a")

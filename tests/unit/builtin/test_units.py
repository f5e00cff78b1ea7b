"""The supervisor as a service of systemd: where that keeps it, and how it is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.builtin import units
from tests.unit.engine.fake import Answer, FakeMachine

HERE = {
    "/run/systemd/system": "",
    "/var/lib/systemd/linger/ada": "",
    "/run/user/1000/systemd/private": "",
}
RUN = Path("/home/ada/p/.dshpc/engine/containers/lab-slurm")


def machine(*without: str, uid: int = 1000) -> FakeMachine:
    files = {path: text for path, text in HERE.items() if path not in without}
    return FakeMachine(uid=uid, files=files, programs={"systemd-run"})


def test_a_user_has_a_manager_where_that_outlives_the_login() -> None:
    assert units.manager(machine(), "ada") == ("env", "XDG_RUNTIME_DIR=/run/user/1000")
    assert units.manager(machine(), "eve") is None
    assert units.manager(machine(uid=1001), "ada") is None
    assert units.manager(machine(uid=0), "root") == ("env",)


@pytest.mark.parametrize("path", HERE)
def test_without_each_of_its_signs_there_is_none(path: str) -> None:
    assert units.manager(machine(path), "ada") is None


def test_the_whole_call() -> None:
    asked = FakeMachine(
        uid=1000,
        env={"PATH": "/usr/bin", "HOME": "/home/ada", "SECRET": "x"},
        files=dict(HERE),
        programs={"systemd-run"},
        commands={
            "env XDG_RUNTIME_DIR=/run/user/1000 systemctl --user stop": Answer(code=5),
            "env XDG_RUNTIME_DIR=/run/user/1000 systemd-run": Answer(),
            "env XDG_RUNTIME_DIR=/run/user/1000 systemctl --user show": Answer("0\n"),
        },
    )
    assert units.start(asked, RUN, ["python3", "x"], "ada") is None, "it has no process"
    stop, run, show = asked.ran
    unit = units.name_of(RUN)
    assert stop[-2:] == ("stop", unit)
    assert show[-1] == unit
    assert run[2:4] == ("systemd-run", "--user")
    assert f"--unit={unit}" in run
    assert "--property=Restart=on-failure" in run
    assert "--property=OOMPolicy=continue" in run
    assert f"--property=StandardError=append:{RUN}/supervisor.log" in run
    assert [each for each in run if each.startswith("--setenv")] == [
        "--setenv=PATH=/usr/bin",
        "--setenv=HOME=/home/ada",
    ]
    assert run[-3:] == ("--", "python3", "x")


def test_a_manager_that_refuses_leaves_it_to_a_process_of_its_own() -> None:
    asked = machine()
    asked.commands["env"] = Answer(code=1, stderr="Failed to start transient service unit")
    assert units.start(asked, RUN, ["python3"], "ada") is None


def kept(home: Path, enable: Answer) -> FakeMachine:
    told = "env XDG_RUNTIME_DIR=/run/user/1000 systemctl --user"
    return FakeMachine(
        uid=1000,
        env={"PATH": "/usr/bin", "HOME": str(home), "XDG_CONFIG_HOME": "/elsewhere"},
        files=dict(HERE),
        programs={"systemd-run"},
        commands={f"{told} enable": enable, "env": Answer("0\n")},
    )


def verbs(asked: FakeMachine) -> list[str]:
    words = ([word for word in line[2:] if not word.startswith("--")] for line in asked.ran)
    return [first if first == "systemd-run" else second for first, second, *_ in words]


def test_one_that_starts_with_the_machine_has_a_file_until_it_is_removed(tmp_path: Path) -> None:
    asked = kept(tmp_path, Answer())
    units.start(asked, RUN, ["python3", "x y"], "ada", with_machine=True)
    file = tmp_path / ".config/systemd/user" / units.name_of(RUN)
    lines = file.read_text().splitlines()
    assert 'ExecStart="python3" "x y"' in lines
    assert f"ConditionPathIsDirectory={RUN}" in lines
    assert f'Environment="HOME={tmp_path}"' in lines
    assert "Restart=on-failure" in lines
    assert lines[-1] == "WantedBy=default.target"
    assert verbs(asked) == ["stop", "daemon-reload", "enable", "show"]
    units.forget(asked, RUN, "ada")
    assert not file.exists()
    assert verbs(asked)[4:] == ["disable", "daemon-reload"]
    units.forget(asked, RUN, "ada")
    assert len(asked.ran) == 6


def test_where_its_manager_does_not_take_the_file_it_is_a_transient_unit(tmp_path: Path) -> None:
    asked = kept(tmp_path, Answer(code=1, stderr="Unit file does not exist."))
    units.start(asked, RUN, ["python3"], "ada", with_machine=True)
    assert not list((tmp_path / ".config/systemd/user").iterdir())
    assert "systemd-run" in verbs(asked)
    other = kept(tmp_path / "file", Answer())
    (tmp_path / "file").write_text("")
    units.start(other, RUN, ["python3"], "ada", with_machine=True)
    assert verbs(other) == ["stop", "systemd-run", "show"]


@given(
    program=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"))), name=st.text()
)
def test_any_word_reaches_the_program_as_it_is(program: list[str], name: str) -> None:
    line = units.argv(("env",), units.name_of(Path("/p") / "x"), program, "/log", [name], user=True)
    words = line[line.index("--") + 1 :]
    assert [word.replace("$$", "$") for word in words] == [
        word.replace("$$", "$") for word in (each.replace("$", "$$") for each in program)
    ]
    assert all(word.replace("$$", "").count("$") == 0 for word in words)


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1))
def test_a_unit_s_name_is_one_whatever_the_folder(name: str) -> None:
    unit = units.name_of(Path("/p") / name)
    assert unit == units.name_of(Path("/p") / name)
    assert unit.startswith("dshpc-")
    assert unit.removesuffix(".service").replace("-", "").isalnum()


def unquoted(text: str) -> list[str]:
    """The words of a line as systemd.syntax(7) has them: each in double quotes."""
    words, at = [], 0
    while at < len(text):
        assert text[at] == '"', text[at:]
        at, word = at + 1, ""
        while text[at] != '"':
            escaped = text[at] == "\\"
            word += {"n": "\n"}.get(text[at + 1], text[at + 1]) if escaped else text[at]
            at += 2 if escaped else 1
        words.append(word)
        at += 2
    return words


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")), min_size=1))
def test_any_word_in_the_file_reaches_the_program_as_it_is(program: list[str]) -> None:
    lines = units.text(program, RUN, [], user=True).split("\n")
    (line,) = [each for each in lines if each.startswith("ExecStart=")]
    words = unquoted(line.removeprefix("ExecStart="))
    for mark in "%$":
        assert all(word.replace(mark * 2, "").count(mark) == 0 for word in words)
        words = [word.replace(mark * 2, mark) for word in words]
    assert words == program

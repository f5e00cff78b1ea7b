from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dshpc_setup import resources
from dshpc_setup.errors import DshpcError
from dshpc_setup.methods import new, store
from dshpc_setup.methods.check import read
from dshpc_setup.methods.store import Entry, find, folders, survey
from tests.unit.methods.made import folder, shut, text_of


def names(entries: tuple[Entry, ...]) -> list[tuple[str, bool]]:
    return [(each.name, each.method is not None) for each in entries]


def refused(top: Path, name: str) -> DshpcError:
    with pytest.raises(DshpcError) as caught:
        find([top], name)
    return caught.value


def test_which_folders(tmp_path: Path) -> None:
    shipped = resources.methods()
    assert folders(tmp_path) == (tmp_path / "methods", shipped)
    assert folders(None) == folders(shipped.parent) == (shipped,)
    assert "gpu-report" in dict(names(survey(folders(tmp_path))))
    assert find(folders(tmp_path), "gpu-report").folder == shipped / "gpu-report"


def test_a_broken_one_hides_no_other(tmp_path: Path) -> None:
    folder(tmp_path, "good")
    folder(tmp_path, "bad", text="{")
    folder(tmp_path, "worse", text=text_of(name="declared", command=""))
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "README.md").touch()
    assert names(survey([tmp_path])) == [("bad", False), ("declared", False), ("good", True)]
    assert find([tmp_path], "good").name == "good"


def test_one_that_may_not_be_read_is_told_and_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder(tmp_path, "good")
    folder(tmp_path, "closed")
    shut(monkeypatch, tmp_path / "closed")
    assert names(survey([tmp_path])) == [("closed", False), ("good", True)]
    assert find([tmp_path], "good").name == "good"
    assert "It cannot be read: Permission denied." in refused(tmp_path, "closed").details


def test_the_declared_name_counts(tmp_path: Path) -> None:
    folder(tmp_path, "here", text=text_of(name="there"))
    assert find([tmp_path], "there").folder == tmp_path / "here"
    assert refused(tmp_path, "here").exit_code == 64
    escaped = text_of(name="there").replace("there", r"\u0074here")
    folder(tmp_path, "here", text=escaped)
    assert find([tmp_path], "there").name == "there"


def test_the_projects_own_comes_before_a_shipped_one(tmp_path: Path) -> None:
    for top in ("own", "shipped"):
        folder(tmp_path / top, "train")
    both = [tmp_path / "own", tmp_path / "shipped"]
    assert find(both, "train").folder == tmp_path / "own" / "train"
    assert [each.folder.parent.name for each in survey(both)] == ["own"]


def test_two_of_one_name_are_both_named(tmp_path: Path) -> None:
    for each in ("a", "b"):
        folder(tmp_path, each, text=text_of(name="train"))
    entries = survey([tmp_path])
    assert names(entries) == [("train", False), ("train", False)]
    assert str(tmp_path / "b" / "method.json") in entries[0].problems[0].what
    assert entries[0].problems[0].line == 2
    assert str(tmp_path / "b" / "method.json") in refused(tmp_path, "train").details


def test_a_folder_that_says_no_name_takes_none_from_others(tmp_path: Path) -> None:
    folder(tmp_path, "train", text="{")
    folder(tmp_path, "valid", text=text_of(name="train"))
    assert find([tmp_path], "train").folder == tmp_path / "valid"
    assert names(survey([tmp_path])) == [("train", False), ("train", True)]


def test_what_is_not_there(tmp_path: Path) -> None:
    folder(tmp_path, "train")
    error = refused(tmp_path, "trian")
    assert error.exit_code == 64
    assert error.resolution[0] == "Did you mean train?"
    assert "dshpc method init" not in str(refused(tmp_path, "a b\x1b").resolution)
    assert "\x1b" not in refused(tmp_path, "a b\x1b").brief
    assert refused(tmp_path, "\udcff").brief == r'There is no method "\udcff".'
    assert refused(tmp_path / "nowhere", "train").exit_code == 64


def test_a_folders_name_is_no_methods_name(tmp_path: Path) -> None:
    folder(tmp_path, "mine", text=text_of(name="train"))
    error = refused(tmp_path, "mine")
    assert error.resolution == ("In the folder mine is the method train: method.json names it so.",)


def test_one_of_ones_own_beside_the_shipped_ones_is_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder(tmp_path, "collect", text=text_of(name="collect"))
    folder(tmp_path, "train")
    monkeypatch.setattr("dshpc_setup.resources.methods", lambda: tmp_path)
    there = survey([tmp_path])
    assert [(each.name, each.origin) for each in there] == [
        ("collect", "shipped"),
        ("train", "project"),
    ]


def test_a_broken_one_is_refused_with_all_its_problems(tmp_path: Path) -> None:
    folder(tmp_path, "train", text=text_of(comand=1, resources={"gpus": -1}))
    error = refused(tmp_path, "train")
    assert error.exit_code == 2
    assert f"{tmp_path}/train/method.json:5: $.comand: There is no key" in error.details
    assert "$.resources.gpus" in error.details


def test_a_link_to_elsewhere_is_not_seen_by_jobs(tmp_path: Path) -> None:
    folder(tmp_path / "elsewhere", "train")
    (tmp_path / "methods").mkdir()
    (tmp_path / "methods" / "train").symlink_to(tmp_path / "elsewhere" / "train")
    (tmp_path / "methods" / "loop").symlink_to("loop")
    assert "symbolic link" in refused(tmp_path / "methods", "train").details
    assert names(survey([tmp_path / "methods"])) == [("train", False)]


def test_what_a_method_requires_is_there_and_no_circle(tmp_path: Path) -> None:
    folder(tmp_path, "one", requires=["two"])
    folder(tmp_path, "two", requires=["three"])
    folder(tmp_path, "three")
    assert all(valid for _, valid in names(survey([tmp_path])))
    folder(tmp_path, "three", requires=["one"])
    circle = survey([tmp_path])
    assert not any(valid for _, valid in names(circle))
    assert "one -> two -> three -> one" in circle[0].problems[0].what
    folder(tmp_path, "three", requires=["on"])
    broken = [each for each in survey([tmp_path]) if each.method is None]
    assert [each.name for each in broken] == ["three"]
    assert broken[0].problems[0].right == 'Did you mean "one"?'


@pytest.mark.parametrize("command", new.SCRIPTS)
def test_a_new_method_is_valid_from_the_start(tmp_path: Path, command: str) -> None:
    made = new.make(tmp_path / "methods", "first", command, 1)
    method, problems = read(tmp_path / "methods" / "first")
    assert method is not None
    assert not problems
    assert method.resources.gpus == 1
    assert all(each.is_file() for each in made)
    assert (tmp_path / "methods" / "first" / ".." / "method.schema.json").is_file()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    folder(tmp_path, "train")
    before = (tmp_path / "train" / "method.json").read_text()
    for name in ("train", "../train", "a b", ""):
        with pytest.raises(DshpcError) as caught:
            new.make(tmp_path, name)
        assert caught.value.exit_code == 64
    assert (tmp_path / "train" / "method.json").read_text() == before
    assert [each.name for each in tmp_path.iterdir()] == ["train"]


def test_a_name_that_another_folder_has_makes_no_second_method(tmp_path: Path) -> None:
    folder(tmp_path, "elsewhere", text=text_of(name="train"))
    with pytest.raises(DshpcError, match="There is a method train already") as caught:
        new.make(tmp_path, "train")
    assert caught.value.exit_code == 64
    assert [each.name for each in tmp_path.iterdir()] == ["elsewhere"]
    new.make(tmp_path, "elsewhere-2")


def test_what_could_not_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, *_: Any) -> None:
        raise DshpcError(f"Cannot write {path}: the disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(new, "write_atomic", full)
        with pytest.raises(DshpcError, match="the disk is full"):
            new.make(tmp_path, "first")
    assert list(tmp_path.iterdir()) == []
    new.make(tmp_path, "first")


def test_the_folder_that_one_is_in_has_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    found = store.read(Path())
    assert found.name == "empty"
    assert found.problems[0].what == f"There is no method.json in {tmp_path / 'empty'}."


def test_the_python_script_of_a_new_method_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    new.make(tmp_path / "methods", "first")
    (tmp_path / "params.json").write_text('{"who": "you"}')
    monkeypatch.setenv("PARAMS_FILE", str(tmp_path / "params.json"))
    monkeypatch.setenv("JOB_WORKSPACE", str(tmp_path))
    script = (tmp_path / "methods" / "first" / "main.py").read_text()
    exec(compile(script, "main.py", "exec"), {})
    assert "Hello, you!" in capsys.readouterr().out
    assert (tmp_path / "result.json").read_text() == '{"greeted": "you"}'


def test_a_broken_one_that_was_asked_for_by_its_path_is_validated_by_it(tmp_path: Path) -> None:
    """Its name leads nowhere: it lies in none of the folders."""
    folder(tmp_path / "my jobs", "bad", text="{")
    for asked in (tmp_path / "my jobs/bad", tmp_path / "my jobs/bad/method.json"):
        with pytest.raises(DshpcError) as caught:
            store.named([tmp_path / "methods"], str(asked))
        assert caught.value.resolution[0].endswith(f": dshpc method validate '{asked}'")
    assert refused(tmp_path / "my jobs", "bad").resolution[0].endswith("dshpc method validate bad")

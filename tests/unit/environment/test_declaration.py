"""The files of environment/: read strictly, written so that what is there stays."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dshpc_setup import resources
from dshpc_setup.environment import declaration, editing
from dshpc_setup.environment.model import Declaration
from dshpc_setup.environment.schema import SCHEMAS, published
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.project.folder import Project


def lay(project: Path, **files: str) -> None:
    folder = project / "environment"
    folder.mkdir(exist_ok=True)
    names = {"python": "python.json", "apt": "system_deps.json", "r": "r.json"}
    for name, text in files.items():
        (folder / names.get(name, "requirements.txt")).write_text(text)


def problems(project: Path) -> str:
    with pytest.raises(DshpcError) as caught:
        declaration.load(project)
    return caught.value.details


def test_nothing_is_declared_without_a_file(tmp_path: Path) -> None:
    assert declaration.load(tmp_path) is None
    (tmp_path / "environment").mkdir()
    assert declaration.load(tmp_path) is None


def test_the_files_of_dshpc_are_understood(tmp_path: Path) -> None:
    lay(
        tmp_path,
        python='{"python_version": "3.13", "libraries": {"numpy": "2.1.0", "SciPy": ""}}',
        apt='{"apt_packages": ["libgomp1", "libgomp1"]}',
        r='{"packages": {"dplyr": ""}}',
        requirements="# a comment\n\npandas >= 2  # why\n",
    )
    found = declaration.load(tmp_path)
    assert found is not None
    assert found.texts() == {
        "python": ("numpy==2.1.0", "pandas>=2", "scipy"),
        "apt": ("libgomp1",),
        "r": ("dplyr",),
    }


def test_all_that_is_wrong_is_said_with_file_line_and_what_would_be_right(tmp_path: Path) -> None:
    lay(
        tmp_path,
        python='{\n "librarys": {},\n "python_version": "3.8.10",\n "libraries": {"a b": ""}\n}',
        apt='{"apt_packages": ["--allow-unauthenticated", "Libx"]}',
        r='{"packages": {"dplyr": ">=1.0"}}',
        requirements="numpy\n--index-url http://evil\nNumPy==2\n",
    )
    said = problems(tmp_path)
    assert 'python.json:2: $.librarys: There is no key "librarys" here.' in said
    assert 'Did you mean "libraries"?' in said
    assert "python.json:4: $.libraries" in said
    assert 'system_deps.json:1: $.apt_packages[0]: "--allow-unauthenticated"' in said
    assert 'system_deps.json:1: $.apt_packages[1]: "Libx"' in said
    assert "r.json:1: $.packages.dplyr" in said
    assert 'requirements.txt:2: "--index-url http://evil": An option of pip' in said
    assert "requirements.txt:3: NumPy is declared twice, first in requirements.txt:1." in said


def test_another_python_than_the_images_is_refused(tmp_path: Path) -> None:
    lay(tmp_path, python='{"python_version": "3.8.10"}')
    assert "The image has Python 3.13, Debian's own, and no 3.8.10." in problems(tmp_path)
    lay(tmp_path, python='{"python_version": "3.13.5"}')
    assert declaration.load(tmp_path) == Declaration()


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '{"libraries": []}', "\ufeff{}"])
def test_what_is_no_such_file_is_refused(tmp_path: Path, text: str) -> None:
    lay(tmp_path, python=text)
    assert "python.json:1:" in problems(tmp_path)


@given(st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_bytes_are_a_crash(tmp_path: Path, data: bytes) -> None:
    folder = tmp_path / "environment"
    folder.mkdir(exist_ok=True)
    for name in declaration.FILES:
        (folder / name).write_bytes(data)
    try:
        found = declaration.load(tmp_path)
    except DshpcError as error:
        assert str(folder) in error.details
    else:
        assert found is not None


def test_adding_keeps_what_is_there(tmp_path: Path) -> None:
    lay(
        tmp_path,
        python='{"libraries": {"zlib-ng": "0.5", "Numpy": "1.0"}, "python_version": "3.13"}',
    )
    editing.add(Project(tmp_path), "python", ["numpy>=2", "attrs==24.1", "uvicorn[standard]"])
    text = (tmp_path / "environment/python.json").read_text()
    assert json.loads(text) == {
        "libraries": {"zlib-ng": "0.5", "numpy": ">=2", "attrs": "24.1", "uvicorn[standard]": ""},
        "python_version": "3.13",
    }
    assert text.index("zlib-ng") < text.index("attrs")
    editing.add(Project(tmp_path), "apt", ["libgomp1", "libgomp1"])
    editing.add(Project(tmp_path), "r", ["dplyr"])
    found = declaration.load(tmp_path)
    assert found is not None
    assert (found.apt, found.r) == (("libgomp1",), ("dplyr",))


def test_a_project_with_a_requirements_file_keeps_it(tmp_path: Path) -> None:
    lay(tmp_path, requirements="# ours\nnumpy==1  # old\nattrs\n\n")
    editing.add(Project(tmp_path), "python", ["numpy==2"])
    assert (tmp_path / "environment/requirements.txt").read_text() == "# ours\nattrs\nnumpy==2\n"
    assert not (tmp_path / "environment/python.json").exists()


def test_removing_takes_out_what_is_named(tmp_path: Path) -> None:
    lay(tmp_path, python='{"libraries": {"NumPy": "2.1", "attrs": ""}}', requirements="scipy\n")
    editing.remove(Project(tmp_path), "python", ["numpy", "scipy"])
    found = declaration.load(tmp_path)
    assert found is not None
    assert found.texts()["python"] == ("attrs",)
    with pytest.raises(DshpcError) as caught:
        editing.remove(Project(tmp_path), "python", ["numpy"])
    assert caught.value.exit_code == Exit.USAGE


@pytest.mark.parametrize(
    ("kind", "word"),
    [("python", "--pre"), ("python", "./x"), ("apt", "-y"), ("apt", "a=1"), ("r", "dplyr==1")],
)
def test_a_word_that_is_no_name_changes_nothing(tmp_path: Path, kind: str, word: str) -> None:
    with pytest.raises(DshpcError) as caught:
        editing.add(Project(tmp_path), kind, ["good", word])
    assert caught.value.exit_code == Exit.USAGE
    assert not (tmp_path / "environment").exists()


def test_a_broken_file_is_not_written_over(tmp_path: Path) -> None:
    lay(tmp_path, python='{"libraries": {"numpy": 2}}')
    with pytest.raises(DshpcError, match="1 problem"):
        editing.add(Project(tmp_path), "python", ["attrs"])
    assert (tmp_path / "environment/python.json").read_text() == '{"libraries": {"numpy": 2}}'


def test_a_file_that_holds_none_of_it_stays_as_it_is(tmp_path: Path) -> None:
    text = '{"libraries":{"attrs":""}}'
    lay(tmp_path, python=text, requirements="scipy\n")
    changed = editing.remove(Project(tmp_path), "python", ["scipy"])
    assert changed == [tmp_path / "environment/requirements.txt"]
    assert (tmp_path / "environment/python.json").read_text() == text


@pytest.mark.parametrize("words", [["numpy==1", "NumPy==2"], ["numpy", "numpy>=2"]])
def test_a_package_that_is_named_in_two_ways_is_refused(tmp_path: Path, words: list[str]) -> None:
    with pytest.raises(DshpcError, match="numpy is named twice") as caught:
        editing.add(Project(tmp_path), "python", words)
    assert caught.value.exit_code == Exit.USAGE
    assert not (tmp_path / "environment").exists()
    editing.add(Project(tmp_path), "python", ["numpy==2", "numpy==2"])


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path: Path) -> None:
    lay(tmp_path, requirements="\ufeffnumpy\nscipy\n")
    editing.add(Project(tmp_path), "python", ["attrs"])
    editing.remove(Project(tmp_path), "python", ["numpy"])
    found = declaration.load(tmp_path)
    assert found is not None
    assert found.texts()["python"] == ("attrs", "scipy")


def test_many_at_once_lose_nothing(tmp_path: Path) -> None:
    lay(tmp_path, python='{"libraries": {"gone": ""}}')
    names = [f"package{number}" for number in range(12)]
    runs = [
        threading.Thread(target=editing.add, args=(Project(tmp_path), "python", [name]))
        for name in names
    ]
    runs.append(
        threading.Thread(target=editing.remove, args=(Project(tmp_path), "python", ["gone"]))
    )
    for each in runs:
        each.start()
    for each in runs:
        each.join()
    found = declaration.load(tmp_path)
    assert found is not None
    assert found.texts()["python"] == tuple(sorted(names))


def test_an_edit_that_takes_too_long_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(editing, "WAIT_S", 0.1)
    project = Project(tmp_path)
    with editing._alone(project), pytest.raises(DshpcError, match="is changing") as caught:
        editing.add(project, "apt", ["libgomp1"])
    assert caught.value.exit_code == Exit.INCOMPLETE
    assert declaration.load(tmp_path) is None
    editing.add(project, "apt", ["libgomp1"])


@pytest.mark.parametrize("file", SCHEMAS)
def test_the_published_schema_is_the_one_in_force(file: str) -> None:
    """Made anew by: dshpc env schema FILE > docs/schemas/environment-FILE.schema.json"""
    name = f"environment-{file.removesuffix('.json')}.schema.json"
    assert (resources.share() / "docs/schemas" / name).read_text() == published(file)

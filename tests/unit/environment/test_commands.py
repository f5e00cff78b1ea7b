"""`dshpc env` as it is typed; no engine is asked where no cluster was configured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dshpc_setup.cli import run
from dshpc_setup.environment.schema import SCHEMAS


def typed(*words: str) -> int:
    return run(list(words), "dshpc")


def test_add_show_and_remove(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DSHPC_DIR", raising=False)
    assert typed("env", "show") == 0
    assert "Nothing is declared" in capsys.readouterr().out
    assert typed("env", "add", "numpy==2.1", "scipy") == 0
    assert typed("env", "add", "--apt", "libgomp1") == 0
    assert "dshpc env lock" in capsys.readouterr().out
    assert typed("env", "show", "--json") == 0
    now = json.loads(capsys.readouterr().out)
    assert now["declared"] == {"python": ["numpy==2.1", "scipy"], "apt": ["libgomp1"], "r": []}
    assert (now["locked"], now["in_image"], now["next"]) == (None, False, "dshpc env lock")
    assert typed("env", "remove", "SciPy", "--json") == 0
    assert json.loads(capsys.readouterr().out)["names"] == ["SciPy"]
    text = (tmp_path / "environment/python.json").read_text()
    assert json.loads(text) == {"libraries": {"numpy": "2.1"}}


@pytest.mark.parametrize(
    "words",
    [
        ("add", "--", "--index-url=x"),
        ("add", "git+https://example.org/x"),
        ("add", "--apt", "--r", "x"),
        ("add", "--tools", "x"),
        ("add", "--tools", "--apt"),
        ("add",),
        ("remove", "never-declared"),
        ("schema", "other.json"),
    ],
)
def test_what_is_wrong_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DSHPC_DIR", raising=False)
    assert typed("env", *words) == 64
    assert "What to do:" in capsys.readouterr().err
    assert not (tmp_path / "environment").exists()


def test_tools_are_packages_like_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DSHPC_DIR", raising=False)
    assert typed("env", "add", "--apt", "libgomp1") == 0
    assert typed("env", "add", "--tools") == 0
    assert typed("env", "remove", "--apt", "vim") == 0
    capsys.readouterr()
    assert typed("env", "show", "--json") == 0
    declared = json.loads(capsys.readouterr().out)["declared"]
    assert {"git", "libgomp1", "tmux"} <= set(declared["apt"])
    assert "vim" not in declared["apt"]
    assert declared["python"] == ["uv"]


@pytest.mark.parametrize("file", SCHEMAS)
def test_the_schema_is_printed(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("env", "schema", file) == 0
    assert json.loads(capsys.readouterr().out)["additionalProperties"] is False


def test_what_stood_there_before_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DSHPC_DIR", raising=False)
    typed("env", "add", "numpy", "Pandas>=2")
    capsys.readouterr()
    typed("env", "add", "numpy", "pandas==2.2", "scipy")
    assert capsys.readouterr().out.splitlines()[0] == (
        f"Added in {tmp_path}/environment/python.json: numpy (there already), "
        "pandas==2.2 (in place of pandas>=2), scipy"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", "../x", "numpy", "a;b"), ('"../x"', '"a;b"')),
        (("add", "--apt", "lib gomp", "zlib1g", "foo=1"), ('"lib gomp", "foo=1" are no names',)),
        (("remove", "a", "b"), ('"a", "b" are not declared',)),
    ],
)
def test_all_that_is_wrong_is_said_at_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    said: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DSHPC_DIR", raising=False)
    assert typed("env", *words) == 64
    err = capsys.readouterr().err
    assert all(each in err for each in said)
    assert "numpy" not in err.partition("What to do:")[0]

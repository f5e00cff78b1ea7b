"""Which folders declare an environment, and when two are the same."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.environment import declared_folder
from dshpc_setup.environment.declared_folder import LOCK, PROJECT, REQUIREMENTS, read
from dshpc_setup.errors import DshpcError, Exit

GOOD = (
    "numpy",
    "numpy==2.4.0 \\\n    --hash=sha256:00 \\\n    --hash=sha256:11\n    # via -r requirements.in",
    "--extra-index-url https://download.pytorch.org/whl/cu128\ntorch",
    "a @ https://example.org/a-1-py3-none-any.whl",
    "",
)
BAD = (
    "-r other.txt", "-rother.txt", "--requirement=other.txt", "-c limits.txt", "-e .", "./local",
    "../local", "/srv/x.whl", ".", "file:///srv/x.whl", "a @ file:///srv/a.whl", "  -r other.txt",
    "numpy\r\n-r other.txt",
)  # fmt: skip


def folder(tmp_path: Path, **files: str) -> str:
    for name, text in files.items():
        (tmp_path / name.replace("_", ".")).write_text(text)
    return str(tmp_path)


@pytest.mark.parametrize("text", GOOD)
def test_a_requirements_file(tmp_path: Path, text: str) -> None:
    found = read(folder(tmp_path, requirements_txt=text))
    assert (found.kind, found.texts) == ("requirements", ((REQUIREMENTS, text.encode()),))


@pytest.mark.parametrize("text", BAD)
def test_a_line_that_leads_to_another_file_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(DshpcError) as refused:
        read(folder(tmp_path, requirements_txt=f"six\n{text}\n"))
    assert refused.value.exit_code == Exit.USAGE
    assert "requirements.txt:" in refused.value.details


def test_a_locked_project_comes_before_requirements(tmp_path: Path) -> None:
    path = folder(
        tmp_path, uv_lock="version = 1\n", pyproject_toml="[project]\n", requirements_txt="six"
    )
    assert [name for name, _ in read(path).texts] == [PROJECT, LOCK]
    (tmp_path / PROJECT).unlink()
    with pytest.raises(DshpcError, match="no pyproject"):
        read(path)


@pytest.mark.parametrize(
    ("specifiers", "fits"),
    [
        (">=3.10", True), (">=3.13", True), (">=3.13.5", True), (">=3.14", False), (">=3.13.6", False),
        (">=3.10, <3.13", False), (">=3.10, <3.14", True), ("<3.13.5", False), ("<=3.13.5", True),
        ("==3.13.*", True), ("==3.12.*", False), ("==3.13.5", True), ("==3.13.4", False),
        ("!=3.13.*", False), ("~=3.10", True), ("~=3.13.2", True), ("~=3.12.2", False), (">3.13", True),
        (">=4", False), (">=3", True), ("whatever", True),
    ],
)  # fmt: skip
def test_the_images_python_has_to_be_allowed(tmp_path: Path, specifiers: str, fits: bool) -> None:
    assert declared_folder.allows(specifiers, "3.13.5") == fits
    lock = f'version = 1\nrequires-python = "{specifiers}"\n'
    path = folder(tmp_path, uv_lock=lock, pyproject_toml="[project]\n")
    if fits:
        assert read(path).kind == "lock"
    else:
        with pytest.raises(DshpcError, match=r"and jobs have 3\.13") as refused:
            read(path)
        assert refused.value.exit_code == Exit.USAGE


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "declares no environment"),
        ({"pyproject_toml": "[project]\n"}, "no uv.lock"),
    ],
)
def test_what_cannot_be_had_says_why(tmp_path: Path, files: dict[str, str], says: str) -> None:
    with pytest.raises(DshpcError, match=says) as refused:
        read(folder(tmp_path, **files))
    assert refused.value.exit_code == Exit.USAGE


def test_conda_comes_after_what_uv_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(declared_folder.OVERRIDE, raising=False)
    found = read(folder(tmp_path, environment_yaml="dependencies: [x]\n", pyproject_toml=""))
    assert (found.kind, found.texts) == (
        "conda",
        (("environment.yaml", b"dependencies: [x]\n"),),
    )
    monkeypatch.setenv(declared_folder.OVERRIDE, "12.4")
    assert read(str(tmp_path)).digest != found.digest
    assert read(folder(tmp_path, requirements_txt="six")).kind == "requirements"


def test_no_folder_and_no_plain_file(tmp_path: Path) -> None:
    with pytest.raises(DshpcError, match="is not there") as refused:
        read(str(tmp_path / "A=1"))
    assert "env NAME=VALUE" in refused.value.resolution[0]
    os.mkfifo(tmp_path / REQUIREMENTS)
    with pytest.raises(DshpcError, match="is not a file"):
        read(str(tmp_path))


@given(st.lists(st.tuples(st.sampled_from(["a", "ab", "b"]), st.binary(max_size=6)), max_size=3),
       st.lists(st.tuples(st.sampled_from(["a", "ab", "b"]), st.binary(max_size=6)), max_size=3))  # fmt: skip
def test_other_files_are_another_environment(
    one: list[tuple[str, bytes]], other: list[tuple[str, bytes]]
) -> None:
    def digest(texts: list[tuple[str, bytes]]) -> str:
        return declared_folder.Declared("/x", "requirements", tuple(texts)).digest

    assert (digest(one) == digest(other)) == (one == other)

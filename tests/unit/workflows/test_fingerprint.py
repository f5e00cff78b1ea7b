"""Fingerprints: another one where anything that a job is made from is another, and only there."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.files import tree
from dshpc_setup.methods.model import Resources
from dshpc_setup.workflows import fingerprint
from dshpc_setup.workflows.fingerprint import prints
from dshpc_setup.workflows.model import Job, Need, Workflow
from tests.unit.workflows.made import method, valid

_TEXT = """
jobs:
  data: {method: prepare, parameters: {rows: 3, table: t.csv}, inputs: [in.csv]}
  a:
    command: python3
    args: [train.py]
    requires: [data]
    resources: {cpus: 1}
"""


def _project(top: Path) -> Path:
    kinds = [{"name": "rows", "type": "integer"}, {"name": "table", "type": "file"}]
    method(top, "prepare", parameters=kinds)
    for name in ("t.csv", "in.csv", "train.py"):
        (top / name).write_text(f"what is in {name}")
    return top


def _prints(top: Path, text: str = _TEXT) -> dict[str, str | None]:
    return dict(prints(valid(text, top)).of)


def _write(name: str, text: str) -> Callable[[Path], str]:
    def change(top: Path) -> str:
        (top / name).parent.mkdir(exist_ok=True)
        (top / name).write_text(text)
        return _TEXT

    return change


def _say(old: str, new: str) -> Callable[[Path], str]:
    return lambda _: _TEXT.replace(old, new)


def _touch(top: Path) -> str:
    os.utime(top / "in.csv", (1, 1))
    return _TEXT


def _make_executable(top: Path) -> str:
    (top / "methods/prepare/main.py").chmod(0o755)
    return _TEXT


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        (_write("methods/prepare/main.py", "other"), {"data", "a"}),
        (_write("methods/prepare/more.txt", "new"), {"data", "a"}),
        (_make_executable, {"data", "a"}),
        (_write("t.csv", "other"), {"data", "a"}),
        (_write("in.csv", "other"), {"data", "a"}),
        (_say("rows: 3", "rows: 4"), {"data", "a"}),
        (_write("train.py", "other"), {"a"}),
        (_say("[train.py]", "[train.py, --x]"), {"a"}),
        (_say("cpus: 1", "cpus: 2"), {"a"}),
        (_say("cpus: 1", "env: {A: b}"), {"a"}),
        (_say("[data]", "[{data: FINISHED}]"), {"a"}),
        (_say("requires: [data]", ""), {"a"}),
    ],
)
def test_what_changes_it(change: Callable[[Path], str], changed: set[str], tmp_path: Path) -> None:
    before = _prints(_project(tmp_path))
    after = _prints(tmp_path, change(tmp_path))
    assert {name for name in before if before[name] != after[name]} == changed


@pytest.mark.parametrize(
    "change",
    [
        lambda _: _TEXT,
        lambda _: _TEXT.replace("jobs:", "description: other\njobs:"),
        lambda _: _TEXT + "  more: {command: x}\n",
        lambda _: _TEXT.replace("cpus: 1", "max_cpu: 100"),
        _touch,
        _write("methods/other.txt", "beside"),
        _write("methods/prepare/__pycache__/main.pyc", "compiled"),
    ],
)
def test_what_does_not_change_it(change: Callable[[Path], str], tmp_path: Path) -> None:
    before = _prints(_project(tmp_path))
    after = _prints(tmp_path, change(tmp_path))
    assert {name: after[name] for name in before} == before


_JOBS = st.builds(
    Job,
    name=st.just("a"),
    argv=st.lists(st.text(max_size=3), max_size=3).map(tuple),
    parameters=st.dictionaries(st.text(max_size=2), st.none() | st.integers() | st.text(max_size=2)),
    resources=st.builds(Resources, cpus=st.none() | st.integers(0, 3), gpus=st.integers(0, 2)),
)  # fmt: skip


@given(_JOBS, _JOBS)
def test_two_jobs_have_one_print_where_they_are_equal(one: Job, other: Job) -> None:
    both = [prints(Workflow("w", Path("/w"), (job,))).of["a"] for job in (one, other)]
    same = (one.argv, one.resources) == (other.argv, other.resources)
    same &= {k: repr(v) for k, v in one.parameters.items()} == {
        k: repr(v) for k, v in other.parameters.items()
    }
    assert (both[0] == both[1]) == same


def test_a_file_behind_a_sign_counts(tmp_path: Path) -> None:
    text = "jobs: {a: {command: x, args: [--config=c.yaml]}}"
    (tmp_path / "c.yaml").write_text("one")
    before = _prints(tmp_path, text)
    assert _prints(tmp_path, text) == before
    (tmp_path / "c.yaml").write_text("two")
    assert _prints(tmp_path, text) != before


def test_what_is_not_followed_is_said(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (note,) = prints(valid("jobs: {a: {command: x, args: [data]}}", tmp_path)).notes
    assert note.startswith('a: "data" stays as it is')


def test_huge_files_count_by_size_and_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "HUGE_BYTES", 8)
    before = prints(valid(_TEXT, _project(tmp_path)))
    assert "say whether it is the same" in before.notes[-1]
    text = (tmp_path / "in.csv").read_text()
    stamp = (tmp_path / "in.csv").stat().st_mtime_ns
    (tmp_path / "in.csv").write_text(text.upper())
    os.utime(tmp_path / "in.csv", ns=(stamp, stamp))
    assert _prints(tmp_path)["data"] == before.of["data"]
    os.utime(tmp_path / "in.csv", (1, 1))
    assert _prints(tmp_path)["data"] != before.of["data"]


def test_a_folder_with_too_many_files_is_run_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fingerprint, "MOST_FILES", 1)
    found = prints(valid(_TEXT, _project(tmp_path)))
    assert found.of == {"data": None, "a": None}
    assert "are run each time" in found.notes[0]


def test_links_and_files_that_cannot_be_read(tmp_path: Path) -> None:
    folder = method(_project(tmp_path), "prepare")
    (folder / "gone").symlink_to("nowhere")
    (folder / "up").symlink_to("..")
    os.mkfifo(folder / "pipe")
    text = "jobs: {a: {method: prepare}}"
    before = _prints(tmp_path, text)
    (folder / "gone").unlink()
    (folder / "gone").symlink_to("elsewhere")
    assert _prints(tmp_path, text) != before


def test_names_of_what_is_required_count() -> None:
    first = Job("x", ("1",))
    jobs = (first, Job("a", ("2",), needs=(Need("x"),)))
    found = prints(Workflow("w", Path("/w"), jobs)).of
    renamed = (replace(first, name="y"), Job("a", ("2",), needs=(Need("y"),)))
    assert prints(Workflow("w", Path("/w"), renamed)).of["a"] != found["a"]


@pytest.mark.parametrize("other", ["/dev/zero", "other"])
def test_what_a_file_was_replaced_by_is_not_read(
    other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a link, just before it is opened."""
    file = tmp_path / "in"
    file.write_text("x")
    (tmp_path / "other").write_text("other")
    realpath = os.path.realpath

    def swapped(path: str) -> str:
        real = realpath(path)
        file.unlink()
        file.symlink_to(other)
        return real

    monkeypatch.setattr(os.path, "realpath", swapped)
    assert fingerprint._Files().of(str(file)).startswith("unread")
    assert file.is_symlink()


def test_what_has_no_end_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fingerprint._Files().of("/dev/zero").startswith("unread")
    monkeypatch.setattr(fingerprint, "HUGE_BYTES", 8)
    path = tmp_path / "grows"
    path.touch()
    fstat, files = os.fstat, fingerprint._Files()

    def grown(at: int) -> os.stat_result:
        found = fstat(at)
        path.write_text("more than eight bytes")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(os, "fstat", grown)
        assert " bytes of " in files.of(str(path))
    assert files.huge == {str(path)}


def test_a_methods_folder_without_an_end_is_run_each_time(tmp_path: Path) -> None:
    folder = _project(tmp_path) / "methods/prepare"
    folder.joinpath(*["d"] * (tree.MOST_DEPTH + 1)).mkdir(parents=True)
    assert _prints(tmp_path) == {"data": None, "a": None}

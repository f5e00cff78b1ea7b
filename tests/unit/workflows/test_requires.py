"""Which result each name in REQUIRES_FILE stands for."""

from __future__ import annotations

from pathlib import Path

import pytest

from dshpc_setup.workflows.run import by_method
from tests.unit.workflows.made import job, method, only, problems

_TWO = "{one: {method: train}, two: {method: train}, "


def test_a_job_called_as_the_method_of_another_one_is_refused(tmp_path: Path) -> None:
    method(tmp_path, "train")
    method(tmp_path, "prepare")
    text = "{train: {method: prepare}, model: {method: train}, "
    last = "a: {command: x, requires: [train, model]}}"
    found = only(f"jobs: {text}{last}", tmp_path)
    assert (found.path, found.right) == ("$.jobs.a.requires", "Call the job train otherwise.")
    assert "of the method train, which the job model runs" in found.what
    # Only among those that the same job requires
    assert len(job(f"jobs: {text}a: {{command: x, requires: [train]}}}}", tmp_path).needs) == 1


def test_a_job_called_as_the_method_that_it_and_another_one_run(tmp_path: Path) -> None:
    method(tmp_path, "train")
    text = "jobs: {train: {method: train}, two: {method: train}, "
    found = only(f"{text}a: {{command: x, requires: [train, two]}}}}", tmp_path)
    assert "the jobs train and two run the method train" in found.what
    assert len(job(f"{text}a: {{command: x, requires: [train]}}}}", tmp_path).needs) == 1


def test_the_result_of_a_method_that_two_jobs_run(tmp_path: Path) -> None:
    method(tmp_path, "train")
    method(tmp_path, "reads", requires=["train"])
    found = only(f"jobs: {_TWO}a: {{method: reads, requires: [one, two]}}}}", tmp_path)
    assert "train, which one and two run" in found.what
    assert job(f"jobs: {_TWO}a: {{method: reads, requires: [one]}}}}", tmp_path).needs
    # Who does not read it by the method's name may wait for both
    assert len(job(f"jobs: {_TWO}a: {{command: x, requires: [one, two]}}}}", tmp_path).needs) == 2


def test_both_collisions_are_told(tmp_path: Path) -> None:
    method(tmp_path, "train")
    method(tmp_path, "reads", requires=["train"])
    text = "jobs: {train: {method: train}, two: {method: train}, a: {method: reads, requires: [train, two]}}"
    assert len(problems(text, tmp_path)) == 2


@pytest.mark.parametrize(
    ("methods", "folders", "found"),
    [
        ({"a": "train"}, {"a": "/a"}, {"train": "/a"}),
        ({"a": None}, {"a": "/a"}, {}),
        ({"a": "train", "b": "train"}, {"a": "/a", "b": "/b"}, {}),
        # b was not run, and could have been meant
        ({"a": "train", "b": "train"}, {"a": "/a"}, {}),
        ({"a": "train", "b": "prepare"}, {"a": "/a", "b": "/b"}, {"train": "/a", "prepare": "/b"}),
    ],
)
def test_a_methods_name_stands_for_one_result(
    methods: dict[str, str | None], folders: dict[str, str], found: dict[str, str]
) -> None:
    assert by_method(folders, list(methods), methods) == found

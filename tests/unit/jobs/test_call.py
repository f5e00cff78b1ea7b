from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.errors import DshpcError
from dshpc_setup.jobs import call
from dshpc_setup.jobs.fit import Fit, fit
from dshpc_setup.jobs.request import Request
from dshpc_setup.methods.model import Resources
from tests.unit.jobs.offers import offer

TEXT = st.one_of(
    st.text(max_size=60),
    st.sampled_from(
        [
            "--wrap=id",
            "-x",
            "a\nb",
            "#SBATCH --wrap=id",
            "%j",
            "$(id)",
            "`id`",
            "../..",
            "\0",
            "é,=;",
        ]
    ),
)
SAFE = re.compile(r"--[a-z-]+(=[A-Za-z0-9._:%,/-]+)?")


def plain(name: str = "train", **more: object) -> Request:
    return Request("command", name, ("true",), "/lab", **more)  # type: ignore[arg-type]


def test_the_whole_call() -> None:
    wanted = Resources(
        cpus=4, memory_mb=1024, time_limit=90, gpus=2, gpu_type="h100", tasks=2, exclusive=True
    )
    found = fit(wanted, offer("h100", "h100"), None)
    assert isinstance(found, Fit)
    asked = plain(resources=wanted, partition="debug", dependency="afterok:17:18_3")
    assert call.argv(asked, found, "/lab/jobs/train-1") == (
        "sbatch", "--parsable", "--requeue", "--open-mode=append", "--job-name=train",
        "--chdir=/lab/jobs/train-1", "--output=/lab/jobs/train-1/output.log",
        "--partition=debug", "--time=90", "--nodes=1", "--ntasks=2",
        "--cpus-per-task=4", "--mem=32000M", "--gres=gpu:h100:2", "--dependency=afterok:17:18_3",
        "--kill-on-invalid-dep=yes", "--exclusive",
    )  # fmt: skip


def test_an_array_has_a_log_for_each_task() -> None:
    words = call.argv(plain(is_array=True, parameters=({}, {}, {})), Fit(), "/lab/jobs/a")
    assert "--array=0-2" in words
    assert "--output=/lab/jobs/a/output-%a.log" in words
    assert not any(word.startswith("--array") for word in call.argv(plain(), Fit(), "/lab/jobs/a"))


@given(TEXT, TEXT, st.lists(TEXT, max_size=3), TEXT)
def test_nothing_of_the_users_is_in_it(
    name: str, value: str, argv: list[str], variable: str
) -> None:
    asked = Request(
        "method",
        name,
        tuple(argv),
        "/lab",
        Resources(env={"X": variable}),
        ({"p": value},),
        inputs=(f"/lab/{value}",),
        method_dir=f"/m/{name}",
        fingerprint=value,
        workflow=name,
    )
    words = call.argv(asked, Fit(), "/lab/jobs/w-1")
    assert words[0] == "sbatch"
    for word in (*words[1:4], *words[5:]):
        assert SAFE.fullmatch(word), word
    job_name = words[4].removeprefix("--job-name=")
    assert words == (
        "sbatch", "--parsable", "--requeue", "--open-mode=append", f"--job-name={job_name}",
        "--chdir=/lab/jobs/w-1", "--output=/lab/jobs/w-1/output.log", "--nodes=1",
    )  # fmt: skip
    assert job_name.isprintable()
    assert 0 < len(job_name) <= 80


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("größe-日本 x", "größe-日本 x"),
        ("a\u3000b\u00a0c", "a b c"),
        ("a\nb\x1b[2J\u202e", "a?b?[2J?"),
        (" ", "job"),
        ("x" * 100, "x" * 80),
    ],
)
def test_the_name_is_the_users_where_no_terminal_obeys_it(name: str, shown: str) -> None:
    assert f"--job-name={shown}" in call.argv(plain(name), Fit(), "/lab/jobs/a")


@given(TEXT)
def test_a_dependency_is_slurms_own_words_or_refused(text: str) -> None:
    try:
        words = call.argv(plain(dependency=text), Fit(), "/lab/jobs/a")
    except DshpcError:
        return
    assert words[-1] == "--kill-on-invalid-dep=yes"
    assert SAFE.fullmatch(words[-2])


@pytest.mark.parametrize("text", ["afterok", "afterok:", "afterok:x", "singleton,--wrap=id", ""])
def test_near_misses_of_a_dependency(text: str) -> None:
    if text == "afterok":  # a word without a job: Slurm's to refuse
        assert "--dependency=afterok" in call.argv(plain(dependency=text), Fit(), "/w")
        return
    with pytest.raises(DshpcError, match="no dependency"):
        call.argv(plain(dependency=text), Fit(), "/w")


@pytest.mark.parametrize("work", ["/wo\nrk", "/wo\x1brk", "/wo\\rk"])
def test_a_work_folder_that_slurm_would_read_otherwise_is_refused(work: str) -> None:
    with pytest.raises(DshpcError, match="cannot be printed"):
        call.argv(plain(), Fit(), f"{work}/jobs/a")


def test_patterns_in_the_work_folders_path_mean_themselves() -> None:
    words = call.argv(plain(is_array=True), Fit(), "/my work/ü/%j")
    assert "--chdir=/my work/ü/%j" in words
    assert "--output=/my work/ü/%%j/output-%a.log" in words

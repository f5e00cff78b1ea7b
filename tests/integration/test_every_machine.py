"""Every machine's rendered files, accepted by the real daemons of two Slurm releases and worked with."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from dshpc_setup.errors import DshpcError
from dshpc_setup.plan import plan_cluster
from dshpc_setup.render.configuration import render_slurm
from dshpc_setup.settings import Settings
from tests.integration.slurms.asks import asks
from tests.integration.slurms.cases import ALL, EXTRAS, Case, cases
from tests.integration.slurms.cluster import Answer, Runs, run
from tests.integration.slurms.hardware import hybrid
from tests.integration.slurms.judge import answer_complaints, bad_lines, complaints, gres_shown
from tests.integration.slurms.roots import SUITES, SlurmRoot
from tests.unit.machine.test_machines import FOLDER, NAMES, look

pytest_plugins = ("tests.integration.slurms.fixtures",)


def test_the_releases(slurms: dict[str, SlurmRoot]) -> None:
    assert slurms["trixie"].release == (24, 11)
    assert slurms["sid"].release >= (26, 5)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every machine on both releases with --full; else on one of them, by turns."""
    if {"name", "suite"} <= set(metafunc.fixturenames):
        both = [(name, suite) for name in ALL for suite in SUITES]
        turns = [(name, SUITES[place % len(SUITES)]) for place, name in enumerate(ALL)]
        whole = metafunc.config.getoption("--full")
        metafunc.parametrize(("name", "suite"), both if whole else turns)


def test_all_that_is_promised_is_had(name: str, suite: str, runs: Runs) -> None:
    case = cases()[name]
    if isinstance(case, DshpcError):
        # The golden file has its words (test_rendered.py); there is nothing to start
        assert (FOLDER / name / "expected" / "error.txt").exists()
        return
    found = complaints(case, runs(suite, name))
    assert not found, "\n".join(found)


def test_every_machine_has_a_run() -> None:
    """None is left out, and the runs that machines share are few enough to be of use."""
    made = {name: case for name, case in cases().items() if isinstance(case, Case)}
    without = {name for name in ALL if name not in made}
    refused = {path.parts[-3] for path in FOLDER.glob("*/expected/error.txt")}
    assert without == refused
    assert set(NAMES) | set(EXTRAS) == set(made) | refused
    distinct = {case.key for case in made.values()}
    assert len(EXTRAS) < len(distinct) < len(made)


def test_the_machines_bring_every_kind_of_gpu() -> None:
    """So that a run over all of them says something of each."""
    plans = [case.plan for case in cases().values() if isinstance(case, Case)]
    assert {plan.vendor for plan in plans} == {"none", "nvidia", "amd", "intel", "mixed"}
    assert {plan.sharing.kind if plan.sharing else None for plan in plans} == {None, "shard", "mps"}
    assert max(len(plan.gres) for plan in plans) >= 16
    assert any(len(line.files) > 1 for plan in plans for line in plan.gres)
    assert any(plan.oversubscribe > 1 for plan in plans)
    assert any(plan.features for plan in plans)
    assert any(len(plan.partitions) > 1 for plan in plans)


def test_a_card_too_many_is_found_out(slurms: dict[str, SlurmRoot], tmp_path: Path) -> None:
    """The near miss: a set of texts that does not hold what it says."""
    case = cases()["a100x2"]
    assert isinstance(case, Case)
    spoiled = {**case.texts}
    spoiled["slurm.conf"] = spoiled["slurm.conf"].replace("gpu:a100:2", "gpu:a100:3")
    assert spoiled != case.texts
    for suite, root in slurms.items():
        outcome = run(root, replace(case, texts=spoiled), tmp_path / suite)
        found = "\n".join(complaints(case, outcome))
        assert "INVALID_REG" in found, found
        assert not outcome.answers


def test_a_file_named_twice_is_found_out(slurms: dict[str, SlurmRoot], tmp_path: Path) -> None:
    case = cases()["a100x2"]
    assert isinstance(case, Case)
    spoiled = {**case.texts}
    spoiled["gres.conf"] = spoiled["gres.conf"].replace("/dev/nvidia1", "/dev/nvidia0")
    assert spoiled != case.texts
    outcome = run(slurms["trixie"], replace(case, texts=spoiled), tmp_path / "run")
    assert outcome.accepted.code != 0
    assert "slurmd ended with 1" in complaints(case, outcome)


# What slurmd says of such a processor as it counts it
_UNEVEN = re.compile(r"differs from hardware|Thread count .* not multiple of core count")


def test_cpus_of_two_kinds_are_all_counted(slurms: dict[str, SlurmRoot], tmp_path: Path) -> None:
    """Unasked, slurmd counts none but the fast cores of such a processor, and refuses the node."""
    facts = look("hybrid-cpu")
    assert facts.memory.limit_mib is not None
    plan = plan_cluster(facts, Settings(reserve_mib=facts.memory.limit_mib - 600))
    case = Case(plan, render_slurm(plan))
    assert plan.cpus == 24
    files = hybrid(fast=8, slow=8)
    for suite, root in slurms.items():
        found = complaints(case, run(root, case, tmp_path / suite, files))
        assert [text for text in found if not _UNEVEN.search(text)] == [], found
    unasked = {**case.texts}
    unasked["slurm.conf"] = unasked["slurm.conf"].replace("SlurmdParameters=allow_ecores\n", "")
    assert unasked != case.texts
    outcome = run(slurms["trixie"], replace(case, texts=unasked), tmp_path / "unasked", files)
    assert "Low socket*core" in outcome.node


# What the judge itself makes of words: a positive and a near miss each


def test_complaints_are_told_from_harmless_words() -> None:
    harmless = "slurmctld: error: Could not open node state file /x: No such file or directory"
    assert bad_lines(harmless) == []
    for bad in (
        "slurmctld: error: Could not open the door",
        "slurmd: fatal: Invalid GRES record",
        "slurmd: warning: A line has 1 more than expected in slurm.conf. Ignoring extra GRES.",
    ):
        assert bad_lines(f"{harmless}\n{bad}\nslurmd: all is well") == [bad]


def test_gres_are_counted_as_the_plan_counts_them() -> None:
    assert gres_shown("gpu:h100:2(S:0-1),gpu:1g.10gb:1,shard:h100:8,shard:1g.10gb:4") == {
        "gpu:h100": 2,
        "gpu:1g.10gb": 1,
        "shard": 12,
    }
    assert gres_shown("gpu:h100:1") != gres_shown("gpu:h200:1")


@pytest.mark.parametrize(
    ("said", "well"),
    [
        ("CUDA_VISIBLE_DEVICES=2", True),  # h100, h100, t4
        ("CUDA_VISIBLE_DEVICES=2 ROCR_VISIBLE_DEVICES=", True),
        ("CUDA_VISIBLE_DEVICES=1", False),
        ("CUDA_VISIBLE_DEVICES=1,2", False),
        ("CUDA_VISIBLE_DEVICES=2 ROCR_VISIBLE_DEVICES=2", False),
        ("ROCR_VISIBLE_DEVICES=2", False),
        ("", False),
    ],
)
def test_a_job_is_judged_by_the_cards_that_its_variables_name(said: str, well: bool) -> None:
    case = cases()["mixed-h100-t4"]
    assert isinstance(case, Case)
    ask = next(ask for ask in asks(case.plan) if ask.name == "one t4")
    found = answer_complaints(case, ask, Answer(0, f"job {said}\n", ""))
    assert (found == []) is well, found


def test_jobs_beside_each_other_are_judged_together() -> None:
    case = cases()["a100x2"]
    assert isinstance(case, Case)
    ask = next(ask for ask in asks(case.plan) if ask.at_once)
    for numbers, well in (((0, 1), True), ((1, 0), True), ((1, 1), False), ((0,), False)):
        text = "".join(f"a100 CUDA_VISIBLE_DEVICES={number}\n" for number in numbers)
        assert (answer_complaints(case, ask, Answer(0, text, "")) == []) is well, numbers


def test_a_refusal_is_told_from_a_failure() -> None:
    case = cases()["a100x2"]
    assert isinstance(case, Case)
    ask = next(ask for ask in asks(case.plan) if ask.refused)
    refusal = (
        "srun: error: Unable to allocate resources: Requested node configuration is not available"
    )
    gres_refused = "Invalid generic resource (gres) specification"
    for answer, well in (
        (Answer(1, "", refusal), True),
        (Answer(0, "job CUDA_VISIBLE_DEVICES=0,1,2\n", ""), False),
        (Answer(124, "", "no answer within 40 s"), False),
        (Answer(1, "", f"Unable to create step for job 9: {gres_refused}"), False),
        (Answer(1, "", f"srun: error: {gres_refused}"), True),
        (Answer(1, "", "srun: error: Unable to contact slurm controller"), False),
    ):
        assert (answer_complaints(case, ask, answer) == []) is well, answer

"""What fixes a fault, for who reads it in the container: what can be typed there, what is the host's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.cli.doctor import lines
from dshpc_setup.cli.terminal import Ink
from dshpc_setup.container import status
from dshpc_setup.diagnose import Finding
from dshpc_setup.diagnose.report import Report
from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.facts import Unanswered
from dshpc_setup.node import main, typed_inside
from dshpc_setup.slurm import paths

RESUME = "scontrol update NodeName=p State=RESUME"


@pytest.mark.parametrize(
    ("command", "typed"),
    [
        ("dshpc reconfigure", "dshpc-node reconfigure"),
        ("dshpc status", "dshpc-node status"),
        ("dshpc key rotate", "dshpc-node rotate-key"),
        (f"dshpc {RESUME}", RESUME),
        ("dshpc exec -- slurmd -C", "slurmd -C"),
        (f"dshpc exec --root -- {RESUME}", RESUME),
        ("nvidia-smi", "nvidia-smi"),
        ("ls -ln /dev/nvidia0", "ls -ln /dev/nvidia0"),
        ("cat /proc/self/cgroup", "cat /proc/self/cgroup"),
    ],
)
def test_what_can_be_typed_in_the_container(command: str, typed: str) -> None:
    assert typed_inside.fixes([Fix("Do it", command)]) == (Fix("Do it", typed),)


@pytest.mark.parametrize(
    "command",
    [
        "dshpc up",
        "dshpc restart",
        "dshpc shell",
        "dshpc config diff",
        "dshpc gpus",
        "configure-environment",
        "dshpc logs",
        "dshpc exec --root -- rm /var/lib/dshpc/key/slurm.key && dshpc restart",
        "sudo nvidia-smi --gpu-reset -i 0",
        "ls -ld config/slurm.conf",
        "nvidia-smi-x",
        "dshpc squeuex",
    ],
)
def test_what_is_the_hosts(command: str) -> None:
    assert typed_inside.fixes([Fix("Do it", command)]) == (Fix("Do it (on the host)", command),)


def test_a_step_for_root_and_for_others_is_one_in_the_container() -> None:
    steps = (
        Fix("As root", f"dshpc {RESUME}"),
        Fix("Or", f"dshpc exec --root -- {RESUME}"),
        Fix("A"),
    )
    assert typed_inside.fixes([*steps, Fix("B")]) == (Fix("As root", RESUME), Fix("A"), Fix("B"))


def test_the_project_folder_is_the_hosts() -> None:
    steps = (
        Fix("Correct config/slurm.conf", place="project"),
        Fix("Then put it into effect", "dshpc reconfigure", place="project"),
        Fix("Did you mean X?"),
    )
    assert typed_inside.fixes(steps) == (
        Fix("Correct config/slurm.conf, in the project folder (on the host)"),
        Fix("Then put it into effect", "dshpc-node reconfigure"),
        Fix("Did you mean X?"),
    )


def test_what_says_so_itself_is_not_said_twice() -> None:
    step = Fix("Have the devices handed in", "configure-environment", place="host")
    assert typed_inside.fixes([step]) == (step,)


def test_the_steps_of_an_error() -> None:
    assert typed_inside.steps(
        DshpcError(
            "Refused.",
            steps=(
                "Did you mean NodeName?",
                Fix("Correct config/slurm.conf", place="project"),
                Fix("Then put it into effect", "dshpc reconfigure", place="project"),
                Fix("Start the cluster again", "dshpc restart"),
                Fix("End them", "dshpc exec --root -- scancel 17"),
            ),
        )
    ) == (
        "Did you mean NodeName?",
        "Correct config/slurm.conf, in the project folder (on the host)",
        "Then put it into effect: dshpc-node reconfigure",
        "Start the cluster again (on the host): dshpc restart",
        "End them: scancel 17",
    )


@pytest.mark.parametrize("asker", ["host", "person"])
def test_a_refusal_names_the_commands_of_who_asked(
    asker: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The cluster's start failed, so that there is nothing to reconfigure."""
    here = paths.Paths(str(tmp_path))
    found = status.Status(here).values
    found.update(phase="failed", failure={"brief": "No key.", "details": "", "resolution": []})
    Path(here.run).mkdir(parents=True)
    Path(here.status).write_text(json.dumps(found))
    monkeypatch.setattr(paths, "Paths", lambda: here)
    variable, _, value = paths.FROM_HOST.partition("=")
    monkeypatch.delenv(variable, raising=False)
    if asker == "host":
        monkeypatch.setenv(variable, value)
    assert main.main(["reconfigure"]) == 3
    said = capsys.readouterr().err.splitlines()
    assert said[1] == "  No key."
    assert said[2:] == (
        ["  See why: dshpc status", "  When that is fixed: dshpc restart"]
        if asker == "host"
        else ["  See why: dshpc-node status", "  When that is fixed (on the host): dshpc restart"]
    )


def test_the_screen_sends_nobody_to_a_command_that_is_not_there() -> None:
    finding = Finding("DSH-SL-006", "slurm", "error", "It failed", fix=(Fix("Go on", "dshpc up"),))
    made = typed_inside.report(
        Report((finding,), (finding,), (Unanswered("nvml", "timeout", "no answer"),))
    )
    said = lines(made, Ink())
    assert "   -> Go on (on the host):" in said
    assert "  Where each answer came from (on the host): dshpc detect --explain" in said
    assert said[-1] == "1 problem. Details, on the host: dshpc explain DSH-SL-006"
    assert made.to_json()["findings"][0]["fix"][0]["text"] == "Go on (on the host)"


@given(st.lists(st.builds(Fix, st.text(), st.none() | st.text()), max_size=5))
def test_no_step_is_lost_but_one_that_is_there_already(steps: list[Fix]) -> None:
    kept = typed_inside.fixes(steps)
    assert len([step for step in steps if step.command is None]) == len(
        [step for step in kept if step.command is None]
    )
    commands = [step.command for step in kept if step.command is not None]
    assert len(commands) == len(set(commands))
    assert len(commands) <= len({step.command for step in steps} - {None})
    assert bool(kept) == bool(steps)

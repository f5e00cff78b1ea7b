"""What mends a fault, for who reads it in the container: what can be typed there, what is the host's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.cli.checking import Report
from dshpc_setup.cli.doctor import lines
from dshpc_setup.cli.terminal import Ink
from dshpc_setup.container import typed_inside
from dshpc_setup.diagnose import Finding
from dshpc_setup.fixes import Fix

RESUME = "scontrol update NodeName=p State=RESUME"


@pytest.mark.parametrize(
    ("command", "typed"),
    [
        ("dshpc reconfigure", "dshpc-node reconfigure"),
        ("dshpc status", "dshpc-node status"),
        ("dshpc key rotate", "dshpc-node rotate-key"),
        (f"dshpc {RESUME}", RESUME),
        ("dshpc exec -- slurmd -C", "slurmd -C"),
        (f"docker exec p-slurm {RESUME}", RESUME),
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
        "docker logs p-slurm",
        "docker exec p-slurm rm /var/lib/dshpc/key/slurm.key && dshpc restart",
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
        Fix("Or", f"docker exec p-slurm {RESUME}"),
        Fix("A"),
    )
    assert typed_inside.fixes([*steps, Fix("B")]) == (Fix("As root", RESUME), Fix("A"), Fix("B"))


def test_the_project_folder_is_the_hosts() -> None:
    steps = (
        Fix("Correct config/slurm.conf, in the project folder"),
        Fix("Then put it into effect, in the project folder", "dshpc reconfigure"),
        Fix("Did you mean X?"),
    )
    assert typed_inside.fixes(steps) == (
        Fix("Correct config/slurm.conf, in the project folder (on the host)"),
        Fix("Then put it into effect", "dshpc-node reconfigure"),
        Fix("Did you mean X?"),
    )


def test_the_screen_sends_nobody_to_a_command_that_is_not_there() -> None:
    finding = Finding("DSH-SL-006", "slurm", "error", "It failed", fix=(Fix("Go on", "dshpc up"),))
    made = typed_inside.report(Report((finding,), (finding,), ("nvml: no answer",)))
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

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup import verify
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.machine import CommandResult
from dshpc_setup.verify import Node, parse_nodes


class Answers:
    def __init__(
        self, code: int | None, stdout: str = "", stderr: str = "", state: Any = "present"
    ):
        self.result = CommandResult((), state, code, stdout, stderr, 1.0)
        self.argv: list[str] = []

    def run(self, argv: list[str], *, deadline_s: float, **_: Any) -> CommandResult:
        self.argv = argv
        return self.result


def test_nodes_as_sinfo_prints_them() -> None:
    text = (
        "dshpc|gpu:h100:2|idle\ndshpc|gpu:h100:2|idle\nb|(null)|drained*\nc|gpu:t4:1(S:0)|mixed-\n"
    )
    assert parse_nodes(text) == (
        Node("dshpc", "gpu:h100:2", "idle"),
        Node("b", "", "drained"),
        Node("c", "gpu:t4:1", "mixed"),
    )


@given(st.text())
def test_any_text_is_nodes(text: str) -> None:
    assert all(node.name for node in parse_nodes(text))


def test_a_drained_node_is_not_ready() -> None:
    assert verify.ask_cluster(Answers(0, "a||idle\n"), "c").ready  # type: ignore[arg-type]
    assert not verify.ask_cluster(Answers(0, "a||drained\n"), "c").ready  # type: ignore[arg-type]
    assert not verify.ask_cluster(Answers(0, ""), "c").ready  # type: ignore[arg-type]


def test_a_failed_start_speaks_in_the_containers_own_words() -> None:
    failure = {"brief": "No key.", "details": "slurm.key is empty", "resolution": ["Remove it."]}
    machine = Answers(2, json.dumps({"ready": False, "failure": failure}))
    with pytest.raises(DshpcError) as caught:
        verify.wait_ready(machine, "c")  # type: ignore[arg-type]
    assert caught.value == DshpcError("No key.", "slurm.key is empty", ("Remove it.",))


def test_a_start_that_takes_too_long_is_incomplete() -> None:
    machine = Answers(3, json.dumps({"ready": False, "phase": "slurmd"}))
    with pytest.raises(DshpcError) as caught:
        verify.wait_ready(machine, "c", 1)  # type: ignore[arg-type]
    assert caught.value.exit_code == Exit.INCOMPLETE
    assert "slurmd" in caught.value.details


def test_the_first_job() -> None:
    machine = Answers(0, "0\n")
    assert verify.run_first_job(machine, "c", gpu=True) == "srun --gres=gpu:1 passed, GPU 0"  # type: ignore[arg-type]
    assert "--gres=gpu:1" in machine.argv
    assert verify.run_first_job(Answers(0, "\n"), "c", gpu=False) == "srun passed"  # type: ignore[arg-type]
    with pytest.raises(DshpcError, match="no variable"):
        verify.run_first_job(Answers(0, "\n"), "c", gpu=True)  # type: ignore[arg-type]
    with pytest.raises(DshpcError, match="test job failed"):
        verify.run_first_job(Answers(1, "", "srun: error"), "c", gpu=True)  # type: ignore[arg-type]


def test_busy_gpus_are_no_failure() -> None:
    machine = Answers(1, "", "srun: error: Unable to allocate resources: Requested nodes are busy")
    assert "busy" in verify.run_first_job(machine, "c", gpu=True)  # type: ignore[arg-type]

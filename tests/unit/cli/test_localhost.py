"""`localhost` in Slurm's own commands, as `dshpc` hands them on."""

from __future__ import annotations

import json

import pytest

from dshpc_setup.cli import exec as exec_command
from dshpc_setup.cli import localhost
from dshpc_setup.engine_client import DOCKER
from dshpc_setup.machine import local
from tests.unit.engine.fake import Answer, FakeMachine

RUNTIME = {"container": "c", "work": "/w", "prefix": "p"}


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("scontrol show node localhost", "scontrol show node lab"),
        ("scontrol -o show nodes localhost", "scontrol -o show nodes lab"),
        ("scontrol show node=localhost", "scontrol show node=lab"),
        (
            "scontrol update NodeName=localhost State=RESUME",
            "scontrol update NodeName=lab State=RESUME",
        ),
        ("srun -w localhost hostname", "srun -w lab hostname"),
        ("srun -wlocalhost hostname", "srun -wlab hostname"),
        ("srun --nodelist=localhost hostname", "srun --nodelist=lab hostname"),
        ("srun --nodelist localhost hostname", "srun --nodelist lab hostname"),
        ("srun --nodel=localhost hostname", "srun --nodel=lab hostname"),
        ("salloc -x localhost", "salloc -x lab"),
        (
            "sbatch -J localhost -w localhost job.sh localhost",
            "sbatch -J localhost -w lab job.sh localhost",
        ),
        ("squeue -w localhost", "squeue -w lab"),
        ("sinfo -N -n localhost", "sinfo -N -n lab"),
        ("sinfo --nodes=localhost", "sinfo --nodes=lab"),
        ("scancel --nodelist=localhost", "scancel --nodelist=lab"),
    ],
)
def test_it_is_the_node(typed: str, expected: str) -> None:
    command, *words = typed.split()
    assert localhost.meant(command, words)
    assert [command, *localhost.with_node(command, words, "lab")] == expected.split()


@pytest.mark.parametrize(
    "typed",
    [
        "srun curl localhost",
        "srun -w lab curl -w localhost",
        "srun -J localhost hostname",
        "srun --job-name=localhost hostname",
        "srun -- -w localhost",
        "sbatch job.sh -w localhost",
        "scontrol show hostnames localhost",
        "scontrol update JobId=7 Comment=localhost",
        "exec curl localhost",
        "shell -c localhost",
        "sinfo -o localhost",
        "srun -w localhost.localdomain hostname",
    ],
)
def test_what_is_no_node_stays(typed: str) -> None:
    command, *words = typed.split()
    assert not localhost.meant(command, words)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Answer(stdout=json.dumps({"node": "box"})), "box"),
        (Answer(stdout=json.dumps({"node": None})), "p"),
        (Answer(stdout="{"), "p"),
        (Answer(code=1), "p"),
    ],
)
def test_what_the_node_is_called(answer: Answer, expected: str) -> None:
    machine = FakeMachine(commands={"docker exec c cat": answer})
    assert localhost.node(machine, DOCKER, RUNTIME) == expected


def test_the_command_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exec_command, "runtime", lambda _: RUNTIME)
    monkeypatch.setattr(exec_command, "_open_streams", lambda: None)
    seen: list[list[str]] = []

    def run(call: exec_command.Call) -> int:
        seen.append(call.argv)
        return 0

    monkeypatch.setattr(exec_command, "run", run)
    machine = FakeMachine(
        commands={"docker exec c cat": Answer(stdout=json.dumps({"node": "box"}))}
    )
    monkeypatch.setattr(local, "LocalMachine", lambda: machine)
    assert exec_command.main(["scontrol", "show", "node", "localhost"]) == 0
    assert exec_command.main(["srun", "curl", "localhost"]) == 0
    assert seen == [["scontrol", "show", "node", "box"], ["srun", "curl", "localhost"]]
    assert len(machine.ran) == 1, "nothing is asked where no node is meant"

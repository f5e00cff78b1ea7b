"""`localhost` in a gres.conf of the user's own is the node, whatever that is called."""

from __future__ import annotations

import pytest

from dshpc_setup.container import own_node
from dshpc_setup.container.config import Candidate

SLURM = "SlurmctldHost=lab\nNodeName=lab CPUs=8 Gres=gpu:2\n"


def taken(gres: str, slurm: str = SLURM, own: str = "gres.conf") -> tuple[str, str | None]:
    texts = {"slurm.conf": slurm, "gres.conf": gres}
    found, said = own_node.with_own_name(Candidate(texts, {own: "custom"}, {}), "lab")
    assert found.texts["slurm.conf"] == slurm
    return found.texts["gres.conf"], said


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "NodeName=localhost Name=gpu File=/dev/nvidia0",
            "NodeName=lab Name=gpu File=/dev/nvidia0",
        ),
        ("  nodename = LOCALHOST Name=gpu", "  nodename = lab Name=gpu"),
        (
            "Name=gpu File=/dev/nvidia0 NodeName=localhost",
            "Name=gpu File=/dev/nvidia0 NodeName=lab",
        ),
        ('NodeName="localhost" Name=gpu', 'NodeName="lab" Name=gpu'),
        ("NodeName=localhost#mine", "NodeName=lab#mine"),
    ],
)
def test_it_is_the_node(line: str, expected: str) -> None:
    text, said = taken(f"# NodeName=localhost\n{line}\n")
    assert text == f"# NodeName=localhost\n{expected}\n", "a comment stays"
    assert said == "config/gres.conf: NodeName=localhost is taken as this node, lab."


@pytest.mark.parametrize(
    "line",
    ["NodeName=lab Name=gpu", "NodeName=localhost2 Name=gpu", "NodeName=localhost[0-1] Name=gpu",
     "Name=gpu File=/dev/localhost", "Name=gpu # NodeName=localhost"],
)  # fmt: skip
def test_another_name_stays(line: str) -> None:
    assert taken(line) == (line, None)


def test_a_node_that_bears_the_name_keeps_it() -> None:
    line = "NodeName=localhost Name=gpu"
    assert taken(line, "NodeName=localhost CPUs=8\n") == (line, None)
    assert taken(line, "NodeName=a CPUs=8\nNodeName=b CPUs=8\n") == (line, None)


def test_a_node_with_a_name_of_the_users_own() -> None:
    assert (
        taken("NodeName=localhost Name=gpu", "NodeName=box CPUs=8\n")[0] == "NodeName=box Name=gpu"
    )


def test_a_rendered_file_is_not_touched() -> None:
    assert taken("NodeName=localhost", own="slurm.conf") == ("NodeName=localhost", None)

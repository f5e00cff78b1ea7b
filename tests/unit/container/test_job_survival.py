"""Changes of a configuration that jobs which run would not outlive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from dshpc_setup.container import job_survival
from dshpc_setup.container.config import Candidate
from dshpc_setup.container.run import Run
from dshpc_setup.container.status import Status
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import CommandResult
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.settings import Settings
from dshpc_setup.slurm.paths import Paths
from tests.unit.slurm.asked import rows

HOLDS = "7 |gres/gpu:1 | | | |\n8 | | | | |\n"
RUNS = "8 | | | | |\n"
TWO = "Name=gpu Type=h100 File=/dev/nvidia[0-1]\n"
MIG = "Name=gpu Type=1g MultipleFiles=/dev/nvidia0,/dev/cap{}\n"


class Slurm(LocalMachine):
    """Answers every squeue alike."""

    def __init__(self, queue: str) -> None:
        super().__init__()
        self.queue = queue

    def run(self, argv: Sequence[str], **_: Any) -> CommandResult:
        assert argv[0] == "squeue"
        return CommandResult(tuple(argv), "present", 0, rows(argv, self.queue), "", 1.0)


def change(queue: str, old: str, new: str, gres: tuple[str, str] = (TWO, TWO)) -> DshpcError | None:
    paths = Paths("/nowhere")
    run = Run(Slurm(queue), paths, Status(paths), Settings(), (0, 0))
    before, after = (
        Candidate({"slurm.conf": f"NodeName=lab {line}\n", "gres.conf": text}, {}, {})
        for line, text in zip((old, new), gres, strict=True)
    )
    try:
        job_survival.ensure(run, before, after, "lab")
    except DshpcError as error:
        return error
    return None


@pytest.mark.parametrize(
    "after",
    [
        "Name=gpu Type=h100 File=/dev/nvidia[1-2]\n",
        "Name=gpu Type=h100 File=/dev/nvidia1,/dev/nvidia0\n",
        "Name=gpu Type=other File=/dev/nvidia[0-1]\n",
        f"AutoDetect=nvml\n{TWO}",
        "NodeName=other Name=gpu Type=h100 File=/dev/nvidia[0-1]\n",
        "",
    ],
)
def test_places_of_gpus_do_not_shift_under_jobs(after: str) -> None:
    line = "CPUs=8 Gres=gpu:h100:2"
    error = change(HOLDS, line, line, (TWO, after))
    assert error is not None
    assert error.brief.startswith("gres.conf lists the node's GPUs by other device files")
    assert error.brief.endswith("and jobs hold GPUs: 7.")
    assert change(RUNS, line, line, (TWO, after)) is None  # nobody has one


@pytest.mark.parametrize(
    "after",
    [
        "# mine\nAutoDetect=off\nName=gpu Type=h100 File=/dev/nvidia0 Cores=0\n"
        "Name=gpu Type=h100 File=/dev/nvidia1 # the second\n",
        f"{TWO}Name=shard Count=8\nNodeName=other Name=gpu File=/dev/nvidia3\n",
        "NodeName=lab,other Name=gpu Type=h100 File=/dev/nvidia0,/dev/nvidia1\n",
    ],
)
def test_the_same_gpus_in_other_words_are_no_change(after: str) -> None:
    assert change(HOLDS, "CPUs=8", "CPUs=8", (TWO, after)) is None


def test_files_of_an_instance_are_one_gpu() -> None:
    error = change(HOLDS, "CPUs=8", "CPUs=8", (MIG.format(1) + MIG.format(2), MIG.format(1)))
    assert error is not None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("CPUs=8", "CPUs=6", "from 8 to 6"),
        ("Sockets=2 CoresPerSocket=4", "Sockets=1 CoresPerSocket=4", "from 8 to 4"),
        ("CPUs=8 ThreadsPerCore=2", "CPUs=8", "from 4 to 8"),
        ("CPUs=8", "Sockets=2 CoresPerSocket=4 ThreadsPerCore=2", None),
        ("CPUs=8 RealMemory=100", "CPUs=8 RealMemory=200", None),
    ],
)
def test_cores_of_the_node_do_not_change_under_jobs(old: str, new: str, words: str | None) -> None:
    error = change(RUNS, old, new)
    assert (error.brief if error else None) == (
        f"The node's cores change {words}, and jobs run: 8." if words else None
    )
    assert change("", old, new) is None


def test_what_is_advised_is_for_root() -> None:
    error = change(RUNS, "CPUs=8", "CPUs=6")
    assert error is not None
    drain, end, last = error.resolution
    assert "dshpc exec --root -- scontrol update nodename=lab state=drain" in drain
    assert end.endswith("dshpc exec --root -- scancel 8")
    assert last == "Then: dshpc reconfigure"

"""Many starts of one cluster with another machine each time: the node idle, the GRES right, no job lost.

A sample of them, and 200 with --full. `DSHPC_SOAK_SEED` and `DSHPC_SOAK_STARTS` repeat one that failed.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.cluster import Cluster, docker, made
from tests.integration.saved import SAVED
from tests.integration.soak.hardware import Hardware, in_place, random_hardware
from tests.integration.soak.ledger import Ledger
from tests.integration.soak.node import Node, build_image, gres_of

pytestmark = [
    pytest.mark.engines("docker", why="containers are made and limited by Docker's flags"),
    pytest.mark.timeout(5400),
]
SAMPLE, WHOLE = 5, 200
# In a machine of these, whatever the soak has queued can run, one kind after the other.
LAST = (
    *(Hardware(f"{name}:16") for name in ("h100", "a100", "t4", "l40s", "rtx4090")),
    *(Hardware(f"{name}:16") for name in ("mi300x", "mi210", "h100-mig", "h100-mig7")),
    Hardware("h100-mig:4+h100-mig7:12"),
    Hardware("a100-mig:8+a100-40-mig:8"),
)


@pytest.fixture
def node(standard: Cluster) -> Iterator[Node]:
    with made("soak") as cluster:
        yield Node(cluster, build_image(cluster))


class Soak:
    """The starts so far: what the machine is, and what jobs there are."""

    def __init__(self, node: Node, choose: random.Random) -> None:
        self.node, self.choose = node, choose
        self.ledger = Ledger(node, node.cluster.work, choose)
        self.hardware = Hardware()
        self.memory_mib = 0
        self.took: list[float] = []

    def first(self) -> None:
        self.node.run(self.hardware)
        self._look(self.node.ready(), changed=False)

    def move(self, hardware: Hardware) -> None:
        """The container is removed and made anew on another machine."""
        if self.choose.random() < 0.15:
            self.node.shell(SAVED)
            docker("kill", self.node.name)
            docker("rm", self.node.name)
        else:
            self.node.remove()
        changed, self.hardware = hardware.seen != self.hardware.seen, hardware
        began = time.monotonic()
        self.node.run(hardware)
        self._started(began, changed)

    def again(self) -> None:
        """The same container starts anew, with other limits or as it is."""
        before = self.hardware
        if self.choose.random() < 0.5:
            self.hardware = in_place(before, self.choose)
            docker("update", *self.hardware.limits(), self.node.name)
        began = time.monotonic()
        self.node.restart()
        self._started(began, self.hardware.seen != before.seen)

    def _started(self, began: float, changed: bool) -> None:
        status = self.node.ready()
        self.took.append(time.monotonic() - began)
        self._look(status, changed)

    def _look(self, status: dict[str, Any], changed: bool) -> None:
        """What has to be so after every start."""
        node, hardware = self.node, self.hardware
        assert status["kept_last_good"] is None, node.log()
        assert gres_of(status["gres"]) == hardware.gres
        shown = node.said("scontrol", "-o", "show", "node", node.cluster.prefix)
        words = dict(re.findall(r"\b(Gres|CPUTot|RealMemory|State)=(\S+)", shown))
        assert gres_of(words["Gres"]) == hardware.gres, shown
        assert int(words["CPUTot"]) == hardware.cpu_count, shown
        self.memory_mib = int(words["RealMemory"])
        assert self.memory_mib <= (hardware.memory_mib or 2**40), shown
        assert not {"DRAIN", "DOWN", "INVALID_REG", "NOT_RESPONDING"} & set(
            words["State"].split("+")
        ), shown
        assert bool(status["drift"]) is changed, (status["drift"], node.log())
        self.ledger.check(hardware, self.memory_mib)
        self._idle()
        node.stays()

    def _idle(self) -> None:
        node, here = self.node, self.hardware
        gres = ["--gres=gpu:1"] if here.gres else []
        node.said("srun", "--quiet", "--mem=16", "-n1", *gres, "true")
        until = time.monotonic() + 60
        while node.said("sinfo", "-h", "-N", "-o", "%T") != "idle":
            assert time.monotonic() < until, node.said("scontrol", "show", "node")
        if not here.gres:
            assert node.exec("srun", "--gres=gpu:1", "true").code != 0
        left = node.shell("find /var/lib/dshpc /etc /run /config -name '*.dshpc-tmp' 2>/dev/null")
        assert left == ""

    def queue(self) -> None:
        self.ledger.queue(self.hardware, self.memory_mib)


def test_every_start_on_any_machine_ends_idle_with_the_right_gpus(node: Node, full: bool) -> None:
    starts = int(os.environ.get("DSHPC_SOAK_STARTS", WHOLE if full else SAMPLE))
    fresh_seed = random.SystemRandom().randrange(10**6) if full else 3
    seed = int(os.environ.get("DSHPC_SOAK_SEED", fresh_seed))
    print(f"DSHPC_SOAK_SEED={seed} DSHPC_SOAK_STARTS={starts}")
    choose = random.Random(seed)
    soak = Soak(node, choose)
    soak.first()
    for number in range(starts):
        soak.queue()
        hardware = random_hardware(choose)
        if choose.random() < 0.25:
            soak.again()
        else:
            soak.move(hardware)
        print(f"{number}: {soak.hardware}: {soak.took[-1]:.2f} s, {soak.ledger.proven} jobs ran")
    _everything_runs_in_the_end(soak)
    took = sorted(soak.took)
    print(
        f"{starts} starts, median {took[len(took) // 2]:.2f} s, slowest {took[-1]:.2f} s, "
        f"{soak.ledger.count} jobs, {soak.ledger.count - soak.ledger.proven} lost"
    )
    assert soak.ledger.proven == soak.ledger.count


def _everything_runs_in_the_end(soak: Soak) -> None:
    """Once what they asked for is back, the last of the jobs runs as well."""
    soak.ledger.release_all()
    for hardware in LAST:
        if any(job.fits(hardware, 2**40) for job in soak.ledger.jobs.values()):
            soak.move(hardware)

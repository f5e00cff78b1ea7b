"""Whose jobs are told of a container that has one user."""

from __future__ import annotations

import json
import shlex

import pytest

from dshpc_setup import codec, engine_client
from dshpc_setup.cluster import use
from dshpc_setup.metrics import look
from dshpc_setup.project.folder import Project
from dshpc_setup.usage.sums import Sum
from tests.unit.cluster.conftest import INSPECT, container, project
from tests.unit.engine.fake import Answer, FakeMachine

__all__ = ["project"]
ROWS = [{"user": "root"}]
METRICS = {"schema": "dshpc.node-metrics/1", "queue": ROWS, "gpu_seconds": ROWS, "at": 1}


@pytest.mark.parametrize(("way", "wanted"), [("single", "ada"), ("mapped", "root")])
def test_root_of_a_container_with_one_user_is_who_asks(
    way: str, wanted: str, project: Project
) -> None:
    value = json.loads(container(project).stdout)
    value[0]["Config"]["Labels"][engine_client.IDS_LABEL] = way
    told = codec.to_json(use.NodeUse(sums=(Sum("root", jobs=1),)), "dshpc.node-use/1")
    asks = shlex.join(engine_client.DOCKER.run_in("p-slurm", "dshpc-node", "use", user="0"))
    machine = FakeMachine(
        commands={
            INSPECT: Answer(json.dumps(value)),
            asks: Answer(json.dumps(told)),
            shlex.join(engine_client.DOCKER.run_in("p-slurm", "dshpc-node", "metrics", user="0")): (
                Answer(json.dumps(METRICS))
            ),
            "docker exec p-slurm dshpc-node status": Answer("{}"),
            "getent passwd 1000": Answer("ada:x:1000:1000::/home/ada:/bin/sh"),
        },
        uid=1000,
    )
    assert [each.user for each in use.ask(machine, project).sums] == [wanted]
    asked, _, _ = look._of_cluster(machine, project)
    assert asked is not None
    assert [row["user"] for row in (*asked["queue"], *asked["gpu_seconds"])] == [wanted, wanted]

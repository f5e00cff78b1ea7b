"""`dshpc node`: what is told of each node, by what its controller, its container and its start say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from dshpc_setup.cluster import nodes, targets
from dshpc_setup.cluster.nodes import NodeNow, NodesNow
from dshpc_setup.cluster.targets import Target
from dshpc_setup.container import far
from dshpc_setup.diagnose.model import CheckInput
from dshpc_setup.diagnose.slurm_node import _down
from dshpc_setup.engine.containers import Container
from dshpc_setup.errors import DshpcError
from dshpc_setup.jobs.offer import Offer
from dshpc_setup.machine import CommandResult
from dshpc_setup.project.folder import Project
from dshpc_setup.slurm.nodes import parse_line
from dshpc_setup.terminal.reporter import Silent

CONTAINER = Container(
    "1", "lab-slurm-2", "i", "lab-slurm:none", True, "running", None, "healthy", "", None
)
LINE = (
    "NodeName=lab-2 Arch=x86_64 Gres=gpu:h100:2(S:0) NodeAddr=172.19.0.3 NodeHostName=lab-2 "
    "State=IDLE+DYNAMIC_NORM ThreadsPerCore=1 SlurmdStartTime=2026-11-26T10:20:38"
)
DOWN = LINE.replace("IDLE", "DOWN") + " Reason=dshpc:stopped [root@2026-11-26T10:39:00]"
DRIFT = {"what": "GPUs of type h100", "was": "1", "is": "2", "done": "", "gpus": None}


def told(line: str | None, container: Container | None = CONTAINER, **report: object) -> NodeNow:
    return nodes._node("lab-2", "here", "worker", container, line, report)


def test_one_that_is_up() -> None:
    found = told(LINE, drift=[DRIFT, "x"], notes=["n"])
    assert found.last_seen is not None
    assert {**found.to_json(), "last_seen": "now"} == {
        "name": "lab-2",
        "host": "here",
        "role": "worker",
        "state": "idle",
        "gres": "gpu:h100:2",
        "address": "172.19.0.3",
        "last_seen": "now",
        "drift": [{"what": "GPUs of type h100", "was": "1", "is": "2", "done": ""}],
    }


@pytest.mark.parametrize(
    ("silent", "code", "said"),
    [(None, 64, "has no node x"), (targets.DOWN, 3, "is not known: the cluster is down")],
)
def test_a_node_is_called_unknown_only_where_all_are_known(
    silent: str | None, code: int, said: str
) -> None:
    with pytest.raises(DshpcError) as refused:
        NodesNow((told(LINE),), silent).named("x")
    assert (refused.value.exit_code, said in refused.value.brief) == (code, True)


def test_one_that_is_down_was_seen_last_when_slurm_set_it_so() -> None:
    found = told(DOWN)
    assert (found.state, found.last_seen, found.reason) == (
        "down", "2026-11-26T10:39:00Z", "dshpc:stopped",
    )  # fmt: skip


def test_one_whose_container_is_gone_is_down_whatever_slurm_says_yet() -> None:
    assert told(LINE, replace(CONTAINER, running=False, status="exited")).state == "down"


def test_one_that_never_registered_is_unknown() -> None:
    assert (told(None).state, told(None).address, told(None).last_seen) == ("unknown", None, None)


def test_one_elsewhere_says_that_its_work_folder_is_another() -> None:
    own = Offer("lab9", 8, 1024, own_work=True)
    for each, count in ((own, 1), (replace(own, own_work=False), 0)):
        line = f"{LINE} Extra={far.packed(json.dumps(each.to_json()) + chr(10) + 'places')} "
        assert len(told(line, None).work) == count
    assert told(f"{LINE} Extra=dshpc1:junk ", None).work == ()


def test_one_elsewhere_is_resumed_by_slurm_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    resumed: list[str] = []

    class Known:
        usable = False

    class Slurm:
        def __init__(self, *_: object, **__: object) -> None: ...

        def node(self, *_: object, **__: object) -> Known:
            return Known()

        def resume(self, name: str, **__: object) -> CommandResult:
            resumed.append(name)
            return CommandResult((), "present", 0, "", "", 1.0)

    found = NodesNow((replace(told(LINE, None), name="lab9"),))
    monkeypatch.setattr(nodes, "Slurm", Slurm)
    monkeypatch.setattr(nodes, "look", lambda *_: found)
    monkeypatch.setattr(
        targets, "target", lambda _: Target(Project(tmp_path), "lab-slurm", "lab", "/work")
    )
    nowhere: Any = object()
    nodes.resume(nowhere, nowhere, "lab9", Silent())
    assert resumed == ["lab9"]


def test_each_line_is_a_nodes() -> None:
    assert list(nodes._by_name(f"{LINE}\n\n{DOWN.replace('lab-2', 'lab-3')}\n")) == [
        "lab-2",
        "lab-3",
    ]


def test_a_table_and_a_name_that_is_none() -> None:
    now = NodesNow((told(LINE), told(DOWN)))
    assert nodes.lines(now)[0].split() == [
        "NODE",
        "ROLE",
        "STATE",
        "GPUS",
        "ADDRESS",
        "LAST",
        "SEEN",
    ]
    assert nodes.lines(now)[-1] == "lab-2: dshpc:stopped"
    with pytest.raises(DshpcError, match="no node x"):
        now.named("x")
    assert NodesNow((), "silent").exit_code == 3


def test_doctor_says_how_one_that_was_stopped_is_started() -> None:
    up, down = parse_line(LINE.replace("lab-2", "lab")), parse_line(DOWN)
    assert up is not None
    assert down is not None
    assert down.stopped
    found = _down(cast(CheckInput, None), (up, down))
    assert [fix.command for fix in found.fix] == ["dshpc node resume lab-2"]
    silent = parse_line(
        LINE.replace("State=IDLE+DYNAMIC_NORM", "State=DOWN+DYNAMIC_NORM+NOT_RESPONDING")
    )
    assert silent is not None
    commands = [fix.command for fix in _down(cast(CheckInput, None), (up, silent)).fix]
    assert commands == ["dshpc logs --node lab-2 --tail 50", "dshpc node resume lab-2"]

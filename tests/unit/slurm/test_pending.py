"""Queued jobs that cannot run: what the controller answers, and what is made of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.slurm import blocked_jobs
from dshpc_setup.slurm.blocked_jobs import Stuck, held, judge, lines, not_held, to_json
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.slurm.nodes import Node
from dshpc_setup.slurm.pending import NodeResources, Queue, Request, parse, parse_tres
from tests.unit.engine.fake import Answer, FakeMachine

CUT, NEXT = "\x1f", "\x1e"


def row(*cells: str) -> str:
    return CUT.join((*cells, "")) + "\n"


# Slurm 24.11.5's own answers
HOLDS = row("4", "debug", "Resources", "cpu=1,mem=10847M,node=1,billing=1", "N/A",
            "gres/gpu:h100:2", "N/A", "N/A", "gpu:9492", "gpu:1", "1", "(null)", "(null)", "",
            "root", "wrap")  # fmt: skip
ARRAY = row("7_[1-4]", "debug", "DependencyNeverSatisfied", "cpu=2,mem=21694M,node=1,billing=2",
            "N/A", "N/A", "N/A", "gres/gpu=1", "gpu:9492", "gpu:1", "2", "(null)",
            "afternotok:2(failed)", "", "root", "wrap")  # fmt: skip
HELD = row("5", "debug", "JobHeldUser", "cpu=1,mem=10847M,node=1,billing=1", "gres/gpu:2", "N/A",
           "N/A", "N/A", "N/A", "N/A", "1", "(null)", "(null)", "", "ada", "a|b c")  # fmt: skip
NODE = row("lab", "2", "21695", "gpu:h100:2", "mixed", "nvidia,h100,gpumem80g", "none")
PARTITIONS = row("debug*", "up") + row("long", "down")


def answer(*jobs: str, node: str = NODE, partitions: str = PARTITIONS) -> str:
    return f"{''.join(jobs)}{NEXT}{node}{NEXT}{partitions}"


def room(gres: dict[str, int] | None = None, state: str = "idle", **more: str) -> NodeResources:
    counts = {"gpu:h100": 2} if gres is None else gres
    status = Node("lab", state, more.get("reason"), counts, {})
    return NodeResources(status, 8, 16000, more.get("features", "nvidia,h100"))


JOB = Request("1", "ada", "train", ("debug",), "Resources", cpus=1, memory_mib=100)


def why(job: Request, node: NodeResources | None = None) -> str | None:
    found = judge(Queue((job,), (node or room(),), {"debug": "up", "night": "inact"}))
    return found[0].why if found else None


def test_the_answers_of_a_real_controller() -> None:
    queue = parse(answer(HOLDS, ARRAY, HELD))
    first, array, by_user = queue.jobs
    assert (first.job, first.partitions, first.reason) == ("4", ("debug",), "Resources")
    assert (first.gres_per_node, first.gres) == ({"gpu:h100": 2}, {})
    assert first.memory_mib == 2 * 9492, "memory per GPU counts, not what it would have without"
    assert (array.id, array.gres, array.dependency) == ("7", {"gpu": 2}, "afternotok:2(failed)")
    assert (by_user.gres, by_user.memory_mib, by_user.name, by_user.user) == (
        {"gpu": 2},
        10847,
        "a|b c",
        "ada",
    )
    (node,) = queue.nodes
    assert (node.status.gres_total, node.cpus, node.memory_mib) == ({"gpu:h100": 2}, 2, 21695)
    assert queue.partitions == {"debug": "up", "long": "down"}
    assert [item.job for item in judge(queue)] == ["7_[1-4]", "5"]


def test_it_is_asked_in_one_call() -> None:
    machine = FakeMachine(commands={"docker exec p-slurm sh -c squeue": Answer(answer(HOLDS))})
    queue = Slurm(machine, "p-slurm").pending(deadline_s=1).value
    assert queue is not None
    assert (len(queue.jobs), len(machine.ran)) == (1, 1)
    silent = FakeMachine(commands={"docker exec": Answer(code=1, stderr="slurm_load_jobs error")})
    assert Slurm(silent, "p-slurm").pending(deadline_s=1).value is None


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("cpu=2,mem=10847M,node=1,billing=2", {"cpu": 2, "mem": 10847, "node": 1, "billing": 2}),
        ("gres/gpu:h100:2,gres/gpu:t4:1", {"gpu:h100": 2, "gpu:t4": 1}),
        ("gres/gpu=1", {"gpu": 1}),
        ("gres:gpu:1g.10gb:3", {"gpu:1g.10gb": 3}),
        ("gres/gpu", {"gpu": 1}),
        ("gpu:h100:2,gpu:h100:1", {"gpu:h100": 3}),
        ("mem=2G", {"mem": 2048}),
        ("mem=1.50G", {"mem": 1536}),
        ("mem=1K", {"mem": 1}),
        ("mem=nonsense", {}),
        ("", {}),
    ],
)
def test_tres(text: str, wanted: dict[str, int]) -> None:
    assert {name: count for name, count in parse_tres(text).items() if count} == wanted


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gres_per_node": {"gpu:h100": 4}}, "asks for gpu:h100:4, the node has gpu:h100:2"),
        ({"gres": {"gpu": 3}}, "asks for gpu:3, the node has gpu:h100:2"),
        ({"gres": {"gpu:t4": 1}}, "asks for gpu:t4:1, the node has gpu:h100:2"),
        ({"gres": {"shard": 1}}, "asks for shard:1, the node has no shard"),
        ({"cpus": 9}, "asks for 9 CPUs, the node has 8"),
        ({"memory_mib": 16001}, "asks for 16001 MiB of memory, the node has 16000 MiB for jobs"),
        ({"nodes": 2}, "asks for 2 nodes, there is 1"),
        ({"partitions": ("gone",)}, "there is no partition gone any more, only debug, night"),
        ({"partitions": ("night",)}, "the partition night is not up: inact"),
        ({"reason": "PartitionTimeLimit"}, "more time than the partition debug allows"),
        ({"reason": "JobHeldUser"}, "it is held; to release it: dshpc scontrol release 1"),
        ({"reason": "JobHeldAdmin"}, "held by an administrator"),
        ({"reason": "launch failed requeued held"}, "fixed, release it: dshpc scontrol release 1"),
        ({"reason": "DependencyNeverSatisfied", "dependency": "afterok:7(failed)"}, "afterok:7;"),
        (
            {"reason": "Dependency", "dependency": "afterok:7(failed),afterok:8"},
            "afterok:7,afterok:8",
        ),
        ({"reason": "BadConstraints", "features": "gpumem80g"}, "--constraint=gpumem80g, the node"),
        ({"wanted_nodes": "lab,old"}, "asks for the node old, which there is not"),
        ({"reason": "InvalidAccount"}, "Slurm's reason is InvalidAccount"),
    ],
)
def test_what_cannot_run(change: dict[str, object], said: str) -> None:
    found = why(replace(JOB, **change))  # type: ignore[arg-type]
    assert found is not None
    assert said in found


@pytest.mark.parametrize(
    ("reason", "hold"),
    [
        ("JobHeldUser", "person"),
        ("job requeued in held state", "person"),
        ("job_requeued_in_special_exit_state", "person"),
        ("JobHeldAdmin", "administrator"),
        ("JobHoldMaxRequeue", "launch"),
        ("launch failed requeued held", "launch"),
        ("launch_failed_requeued_held", "launch"),
        ("launch failure limit exceeded requeued held", "launch"),
        ("ReservationDeleted", "lost_reservation"),
    ],
)
def test_a_held_job_is_one_that_can_run(reason: str, hold: str) -> None:
    found = judge(Queue((replace(JOB, reason=reason, cpus=99),), (room(),), {"debug": "up"}))
    assert [job.hold for job in found] == [hold]
    assert found[0].why.endswith(": dshpc scontrol release 1")
    assert (held(found), not_held(found)) == (found, ())
    assert "scancel" not in found[0].why


@pytest.mark.parametrize(
    "change",
    [
        {"gres_per_node": {"gpu:h100": 2}},
        {"gres": {"gpu": 2}},
        {"cpus": 8, "memory_mib": 16000},
        {"cpus": None, "memory_mib": None},
        {"partitions": ("gone", "debug")},
        {"partitions": ("night", "debug")},
        {"reason": "Priority"},
        {"reason": "None"},
        {"reason": "BeginTime"},
        {"reason": "Dependency", "dependency": "afterok:7(unfulfilled)"},
        {"reason": "Dependency", "dependency": "afterok:7(failed)?afterok:8(unfulfilled)"},
        {"reason": "ReqNodeNotAvail, UnavailableNodes:lab"},
        {"reason": "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher"},
        {"wanted_nodes": "lab"},
        {"wanted_nodes": "lab[1-2]"},
        {"reason": "Resources", "features": "gpumem80g"},
    ],
)
def test_what_only_waits_is_no_problem(change: dict[str, object]) -> None:
    assert why(replace(JOB, **change)) is None  # type: ignore[arg-type]


def test_a_node_out_of_use_and_its_near_miss() -> None:
    taken = room(state="drained", reason="new fans [root@2026-11-21T10:00:00]")
    assert why(JOB, taken) == "the node lab is drained: new fans [root@2026-11-21T10:00:00]"
    assert why(JOB, room(state="mixed")) is None
    assert judge(Queue((JOB,))) == (), "without an answer of nodes nothing is concluded from them"


@pytest.mark.parametrize(
    ("job", "state", "partition", "until"),
    [
        ({}, "drained", "up", "node"),
        ({}, "idle", "down", "partition"),
        ({"reason": "NewInAnotherSlurm"}, "idle", "up", "unknown"),
        ({"memory_mib": 999_999}, "drained", "up", None),
        ({"reason": "DependencyNeverSatisfied"}, "idle", "down", None),
    ],
)
def test_what_a_stuck_job_waits_for(
    job: dict[str, object], state: str, partition: str, until: str | None
) -> None:
    wanted = replace(JOB, **job)  # type: ignore[arg-type]
    nodes = (room(state=state),)
    partitions = dict.fromkeys(wanted.partitions, partition)
    (stuck,) = judge(Queue((wanted,), nodes, partitions))
    assert stuck.until == until


def test_no_gpu_at_all() -> None:
    found = why(replace(JOB, gres_per_node={"gpu": 1}), room({}))
    assert found == "it asks for gpu:1, the node has no GPU"


def test_ten_are_named_and_the_others_counted() -> None:
    many = tuple(Stuck(str(n), "ada", f"n{n}", "it is held") for n in range(13))
    said = lines(many)
    assert len(said) == blocked_jobs.MOST + 1
    assert said[0] == "0 (ada, n0): it is held"
    assert said[-1].startswith("and 3 more")
    assert to_json(many)["count"] == 13
    assert len(to_json(many)["jobs"]) == blocked_jobs.MOST
    assert len(lines(many[:10])) == 10
    assert lines(()) == []


def test_a_name_cannot_move_the_cursor() -> None:
    (said,) = lines((Stuck("1", "ada", "\033[2Jx\ry", "it is held"),))
    assert said == "1 (ada, ?[2Jx?y): it is held"


SAFE = st.text(st.characters(exclude_categories=("Cc", "Cs")))


@given(st.text())
def test_any_text_is_a_queue_and_is_judged(text: str) -> None:
    assert len(lines(judge(parse(text)))) <= blocked_jobs.MOST + 1


@given(st.lists(st.tuples(*[SAFE] * 16), max_size=4), st.lists(st.tuples(*[SAFE] * 7), max_size=3))
def test_whatever_stands_in_the_columns(
    jobs: list[tuple[str, ...]], nodes: list[tuple[str, ...]]
) -> None:
    queue = parse(answer(*(row(*cells) for cells in jobs), node="".join(row(*c) for c in nodes)))
    assert len(queue.jobs) == sum(bool(cells[0].strip()) for cells in jobs)
    assert {item.job for item in judge(queue)} <= {job.job for job in queue.jobs}


@given(st.integers(1, 99), st.integers(0, 99), st.sampled_from(["gpu", "gpu:h100"]))
def test_a_job_is_stuck_exactly_where_it_asks_for_more(asked: int, have: int, kind: str) -> None:
    job = replace(JOB, gres_per_node={kind: asked})
    assert (why(job, room({"gpu:h100": have})) is not None) == (asked > have)

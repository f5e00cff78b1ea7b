"""Reading of the node's state and of who listens."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.container import daemons, network
from dshpc_setup.slurm.nodes import Node, parse_line
from tests.unit.engine.fake import Answer, FakeMachine

LINE = (
    "NodeName=dshpc Arch=x86_64 CPUTot=2 Gres=gpu:h100:2(S:0) NodeAddr=dshpc RealMemory=8000 "
    "State={state} ThreadsPerCore=1 BootTime=2026-11-21T01:40:14 CurrentWatts=0 AveWatts=0 {reason}"
)


def node(state: str, reason: str = "", who: str = "slurm") -> Node:
    text = f"Reason={reason} [{who}@2026-11-21T02:00:00]" if reason else ""
    found = parse_line(LINE.format(state=state, reason=text))
    assert found is not None
    return found


@pytest.mark.parametrize("state", ["IDLE", "MIXED", "ALLOCATED", "IDLE+CLOUD"])
def test_a_node_that_takes_jobs(state: str) -> None:
    assert node(state).usable


@pytest.mark.parametrize(
    "state", ["UNKNOWN", "IDLE*", "IDLE+DRAIN", "DOWN", "DOWN+DRAIN+INVALID_REG", "UNKNOWN*"]
)
def test_a_node_that_takes_none(state: str) -> None:
    assert not node(state).usable


COUNT = "gres/gpu count reported lower than configured (1 < 2)"


@pytest.mark.parametrize(
    ("reason", "who", "own"),
    [
        (COUNT, "slurm", True),
        (COUNT, "root", False),  # a person's words that look like Slurm's
        (COUNT, "ada", False),
        ("Low RealMemory (reported:100 < 100.00% of configured:200)", "slurm", True),
        ("Low socket*core*thread count, Low CPUs", "slurm", True),
        ("Not responding", "slurm", True),
        ("dshpc: device lost", "root", True),
        ("dshpc:reconfigure", "root", True),
        ("dshpc: I leave it so", "ada", False),
        ("see dshpc: status", "root", False),
        ("broken fan", "root", False),
        ("broken fan", "slurm", False),
        ("gpu 3 replaced by Ada, not before Monday", "1000", False),
    ],
)
def test_whose_doing_a_drain_is(reason: str, who: str, own: bool) -> None:
    found = node("IDLE+DRAIN", reason, who)
    assert (found.why, found.who) == (reason, who)
    assert found.own_doing is own


def test_when_the_slurmd_of_a_node_began() -> None:
    text = "NodeName=a State=IDLE SlurmdStartTime=2026-11-21T02:00:01 "
    found = parse_line(text)
    assert found is not None
    assert found.started == "2026-11-21T02:00:01"
    never = parse_line("NodeName=a State=UNKNOWN SlurmdStartTime=None ")
    assert never is not None
    assert never.started == ""


@given(st.text(max_size=200))
def test_any_answer_of_scontrol_is_read(text: str) -> None:
    found = parse_line(text)
    assert found is None or isinstance(found.usable, bool)


def diag(*ports: int, end: int | None = 3) -> bytes:
    """What sock_diag answers: a message for each socket, and one that ends the list."""
    found = [
        struct.pack("=IHHII", 88, 20, 2, 1, 0)
        + struct.pack("!BBBBHH", 2, 10, 0, 0, port, 0)
        + bytes(64)
        for port in ports
    ]
    tail = b"" if end is None else struct.pack("=IHHIIi", 20, end, 2, 1, 0, 0)
    return b"".join([*found, tail])


@pytest.mark.parametrize(
    ("answer", "ports"),
    [
        (diag(), set()),
        (diag(6817), {6817}),
        (diag(6817, 80), {6817, 80}),
        (diag(6817, end=None), {6817}),
        (diag(end=2), None),  # NLMSG_ERROR: a kernel without the module
        (b"", None),
    ],
)
def test_what_the_kernel_says_of_who_listens(answer: bytes, ports: set[int] | None) -> None:
    assert network.found_ports(answer) == ports


@given(st.binary(max_size=200))
def test_any_answer_of_the_kernel_is_read(answer: bytes) -> None:
    found = network.found_ports(answer)
    assert found is None or all(0 <= port < 65536 for port in found)


def test_waiting_ends_when_nobody_will_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "listens", lambda _: False)
    assert not network.wait_listening(1, 60.0, lambda: True)


def test_a_node_of_a_persons_is_left_with_the_way_to_take_it_back() -> None:
    machine = FakeMachine()
    done = daemons.take_back(machine, "lab", node("IDLE+DRAIN", "broken fan", "root"), fresh=True)
    assert done is not None
    assert not done.resumed
    assert machine.ran == []
    way = "dshpc exec --root -- scontrol update nodename=lab state=resume"
    assert done.note.endswith(f"To take it back: {way}")


def test_a_node_that_slurm_took_out_is_taken_back() -> None:
    machine = FakeMachine(commands={"scontrol": Answer()})
    found = node("IDLE+DRAIN", "Not responding", "slurm")
    done = daemons.take_back(machine, "lab", found, fresh=False)
    assert done is not None
    assert done.resumed
    assert machine.ran == [("scontrol", "update", "nodename=lab", "state=resume")]


@pytest.mark.parametrize(
    ("reason", "who", "fresh", "resumed"),
    [
        ("Prolog error", "slurm", True, True),
        ("Epilog error", "slurm", True, True),
        ("Prolog error", "slurm", False, False),  # it would fail again, with a job
        ("Prolog error, I look at it", "root", True, False),
    ],
)
def test_a_prolog_that_failed_is_tried_again_by_a_start(
    reason: str, who: str, fresh: bool, resumed: bool
) -> None:
    machine = FakeMachine(commands={"scontrol": Answer()})
    done = daemons.take_back(machine, "lab", node("IDLE+DRAIN", reason, who), fresh=fresh)
    assert done is not None
    assert done.resumed is resumed
    assert (" by Slurm and is left so" in done.note) is (not resumed and who == "slurm")


@pytest.mark.parametrize(
    ("reason", "who", "fresh", "resumed"),
    [
        ("Kill task failed", "root", True, True),  # as slurmstepd says it
        ("Job step not running", "root", True, True),
        ("Kill task failed", "root", False, False),  # the processes may still be there
        ("Kill task failed", "ada", True, False),
        ("Kill task failed", "1000", True, False),
        ("Kill task failed twice, I look at the GPU", "root", True, False),
        ("kill task failed", "root", True, False),
    ],
)
def test_what_slurmstepd_took_out_is_taken_back_once_its_processes_are_gone(
    reason: str, who: str, fresh: bool, resumed: bool
) -> None:
    machine = FakeMachine(commands={"scontrol": Answer()})
    done = daemons.take_back(machine, "lab", node("IDLE+DRAIN", reason, who), fresh=fresh)
    assert done is not None
    assert done.resumed is resumed
    assert bool(machine.ran) is resumed
    by_slurmstepd = " by slurmstepd and is left so" in done.note
    assert by_slurmstepd is (not fresh and not resumed)


@pytest.mark.parametrize(
    ("states", "reason", "who", "held", "asked"),
    [
        ("IDLE*", "", "", True, True),
        ("IDLE+DRAIN", "broken fan", "root", False, False),  # a person's words stay
        ("DOWN*", "Not responding", "slurm", False, False),
        ("IDLE+DRAIN", daemons.HELD, "root", True, False),  # of a start that was killed
        ("IDLE+DRAIN", daemons.HELD, "ada", False, False),
    ],
)
def test_a_node_is_held_where_nobody_has_taken_it_out(
    states: str, reason: str, who: str, held: bool, asked: bool
) -> None:
    tail = f" Reason={reason} [{who}@2026-01-01T00:00:00]" if reason else ""
    machine = FakeMachine(
        commands={
            "scontrol -o show node": Answer(f"NodeName=lab State={states}{tail}\n"),
            "scontrol update": Answer(),
        }
    )
    assert daemons.hold(machine, "lab") is held
    orders = [argv for argv in machine.ran if argv[1] == "update"]
    drain = ("scontrol", "update", "nodename=lab", "state=drain", f"reason={daemons.HELD}")
    assert orders == ([drain] if asked else [])

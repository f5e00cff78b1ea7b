"""Reading of the node's state, of lost jobs and of who listens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.container import daemons, network

LINE = (
    "NodeName=dshpc Arch=x86_64 CPUTot=2 Gres=gpu:h100:2(S:0) NodeAddr=dshpc RealMemory=8000 "
    "State={state} ThreadsPerCore=1 BootTime=2026-11-21T01:40:14 CurrentWatts=0 AveWatts=0 {reason}"
)


def node(state: str, reason: str = "") -> daemons.Node:
    text = f"Reason={reason} [root@2026-11-21T02:00:00]" if reason else ""
    found = daemons.parse_node(LINE.format(state=state, reason=text))
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


@pytest.mark.parametrize(
    ("reason", "own"),
    [
        ("gres/gpu count reported lower than configured (1 < 2)", True),
        ("Low RealMemory (reported:100 < 100.00% of configured:200)", True),
        ("Not responding", True),
        ("dshpc: device lost", True),
        ("broken fan", False),
        ("gpu 3 replaced by Ada, not before Monday", False),
    ],
)
def test_whose_doing_a_drain_is(reason: str, own: bool) -> None:
    found = node("IDLE+DRAIN", reason)
    assert found.reason == reason
    assert found.own_doing is own


@given(st.text(max_size=200))
def test_any_answer_of_scontrol_is_read(text: str) -> None:
    found = daemons.parse_node(text)
    assert found is None or isinstance(found.usable, bool)


def test_lost_jobs_are_queued_again_or_ended() -> None:
    text = "12 |1 |1 |\n13 |1 |0 |\n14 |0 |1 |\n\n"
    assert daemons.lost_jobs(text) == (["12"], ["13", "14"])


@given(st.text(max_size=200))
def test_any_answer_of_squeue_is_read(text: str) -> None:
    again, ended = daemons.lost_jobs(text)
    assert all(again)
    assert all(ended)


TABLE = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid
   0: 00000000:1AA1 00000000:0000 0A 00000000:00000000 00:00000000 00000000 64030
   1: 0100007F:C001 0100007F:1AA2 01 00000000:00000000 00:00000000 00000000     0
"""


def test_only_who_listens_counts() -> None:
    assert network.listening_ports(TABLE) == {6817}


def test_waiting_ends_when_nobody_will_come() -> None:
    assert not network.wait_listening(1, 60.0, lambda: True)

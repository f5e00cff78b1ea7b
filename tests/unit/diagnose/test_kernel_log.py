"""What the kernel's log says of NVIDIA's cards, in values."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.diagnose.kernel_log import CARD, PROGRAM, RECOVERY, lines, why_unread, xids
from dshpc_setup.facts import State
from dshpc_setup.observed import KernelLog


@pytest.mark.parametrize(
    ("line", "number", "address"),
    [
        ("NVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', name=<unknown>", 79, "0000:41:00.0"),
        ("NVRM: Xid (0000:01:00): 31, Ch 0000000b, engmask 00000120", 31, "0000:01:00.0"),
        ("NVRM: Xid (PCI:00000000:1A:00.0): 48, pid=7", 48, "0000:1a:00.0"),
        ("NVRM: Xid (PCI:0001:00:00 GPU-I:05): 94, pid=7, Contained: CE", 94, "0001:00:00.0"),
    ],
)
def test_an_xid(line: str, number: int, address: str) -> None:
    (found,) = xids(KernelLog("present", (line,)))
    assert (found.number, found.address, found.line) == (number, address, line)


@pytest.mark.parametrize(
    "line",
    [
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46",
        "NVRM: GPU at PCI:0000:01:00: GPU-b850f46d-d5ea-c752-ddf3-c4453e44d3f7",
        "NVRM: Xid (PCI:0000:01:00): abc, pid=7",
        "NVRM: Xid (43, pid: 5678): 13",
        "a program that talks of Xid 79",
    ],
)
def test_none(line: str) -> None:
    assert xids(KernelLog("present", (line,))) == ()


ADDRESS = st.from_regex(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}", fullmatch=True)


@given(ADDRESS, st.integers(0, 9999), st.text(max_size=40))
def test_any_xid_is_read_back(address: str, number: int, rest: str) -> None:
    line = f"NVRM: Xid (PCI:{address}): {number}, {rest}"
    (found,) = xids(KernelLog("present", (line,)))
    assert (found.number, found.address) == (number, f"{address}.0")


@given(st.lists(st.text()))
def test_any_log_can_be_asked(texts: list[str]) -> None:
    log = KernelLog("present", tuple(texts))
    assert len(xids(log)) <= len(texts)
    assert set(lines(log, "NVRM")) <= set(texts)


def test_the_newest_lines_that_hold_a_pattern() -> None:
    log = KernelLog("present", tuple(f"NVRM: {at}" for at in range(9)) + ("other",))
    assert lines(log, "nvrm", 2) == ("NVRM: 7", "NVRM: 8")


def test_an_xid_is_of_a_card_or_of_a_program() -> None:
    assert not set(CARD) & set(PROGRAM)
    assert RECOVERY not in {*CARD, *PROGRAM}
    assert {48, 63, 64, 74, 79, 92, 94, 95, 119, 120} == set(CARD)


def test_why_a_log_is_not_known() -> None:
    assert why_unread(KernelLog("present")) is None
    words = {
        why_unread(KernelLog(state)) for state in (None, *get_args(State)) if state != "present"
    }
    assert len(words) == len(get_args(State))
    assert all(word is not None and word.endswith(".") for word in words)
    assert "sudo dmesg" in (why_unread(KernelLog("denied")) or "")

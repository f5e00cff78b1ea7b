"""What the kernel's log says of NVIDIA's cards, in values."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.diagnose.kernel_log import lines, sxids, why_unread, xids
from dshpc_setup.diagnose.xid_catalogue import NVLINK_5, RECOVERY, SXIDS, XIDS, of_sxid, of_xid
from dshpc_setup.facts import State
from dshpc_setup.observed.model import KernelLog


@pytest.mark.parametrize(
    ("line", "number", "address"),
    [
        ("NVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', name=<unknown>", 79, "0000:41:00.0"),
        ("NVRM: Xid (0000:01:00): 31, Ch 0000000b, engmask 00000120", 31, "0000:01:00.0"),
        ("NVRM: Xid (PCI:00000000:1A:00.0): 48, pid=7", 48, "0000:1a:00.0"),
        ("NVRM: Xid (PCI:10000:e1:00): 79, pid=7", 79, "10000:e1:00.0"),
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


FATAL = {46, 48, 54, 62, 64, 79, 95, 109, 110, 119, 120, 136, 140, 143, *NVLINK_5, 151, 158, 167, 169, 171,
         172}  # fmt: skip


def test_the_catalogue_of_xids() -> None:
    """NVIDIA's own: what wants a reset, a restart or a hand at the machine at once is fatal."""
    assert {number for number, means in XIDS.items() if means.severity == "fatal"} == FATAL
    faults = {number for number, means in XIDS.items() if means.severity == "fault"}
    assert faults == {57, 58, 59, 61, 63, 74, 78, 92, 94, 155, 156, 157, 168}
    assert RECOVERY not in XIDS
    for means in XIDS.values():
        assert (means.severity == "fatal") <= (means.remedy != "none")
        assert (means.severity in ("program", "note")) <= (means.remedy == "none")
        assert means.words == means.words.strip().rstrip(".")
    assert of_xid(9999).severity == "note"


def test_the_catalogue_of_sxids() -> None:
    """Always fatal ones want the whole machine restarted: table 23 of the guide has 20."""
    restart = {number for number, means in SXIDS.items() if means.remedy == "restart"}
    assert len(restart) == 20
    assert {SXIDS[number].severity for number in restart} == {"fatal"}
    assert len([1 for means in SXIDS.values() if means.severity == "fatal"]) == 20 + 42 + 1
    assert of_sxid(26006).words == "an error of the switch's processor (SOE)"
    assert of_sxid(99999).words == "an error of a part of the switch"


SXID = "nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): {}"


@pytest.mark.parametrize(
    ("line", "severity"),
    [
        ("20034, Fatal, Link 30 LTSSM Fault Up", "fatal"),
        ("14001, Fatal, Link 30 something that the guide does not have", "fatal"),
        ("20034, Non-fatal, Link 30 LTSSM Fault Up", "fault"),
        ("20001, Non-fatal, Link 30 TX Replay Error", "note"),
        ("28006, Non-fatal, Link 46 MC TS crumbstore MCTO (First)", "note"),
        ("10004, Non-fatal, thermal event", "fault"),
    ],
)
def test_an_sxid(line: str, severity: str) -> None:
    (found,) = sxids(KernelLog("present", (SXID.format(line),)))
    assert (found.address, found.severity) == ("0000:a9:00.0", severity)


@pytest.mark.parametrize(
    "line",
    [
        SXID.format("20034, Severity 1 Engine instance 30 Sub-engine instance 00"),
        SXID.format("20034, Data {0x50610002, 0x10100030}"),
        "NVRM: Xid (PCI:0000:a9:00): 74, Fatal",
        "somebody writes of SXid 20034, Fatal",
    ],
)
def test_no_sxid_of_its_own(line: str) -> None:
    assert sxids(KernelLog("present", (line,))) == ()


@given(st.sampled_from(NVLINK_5), st.sampled_from(("Fatal", "Nonfatal", "Non-fatal", "")))
def test_nvlink_5_says_itself_how_grave_it_is(number: int, word: str) -> None:
    line = f"NVRM: Xid (PCI:0000:04:00): {number}, RLW_CTRL {word} XC0 i0 Link 00 (0x3 0x80000000)"
    (found,) = xids(KernelLog("present", (line,)))
    assert found.severity == ("note" if word.startswith("Non") else "fatal")


def test_why_a_log_is_not_known() -> None:
    assert why_unread(KernelLog("present")) is None
    words = {
        why_unread(KernelLog(state)) for state in (None, *get_args(State)) if state != "present"
    }
    assert len(words) == len(get_args(State))
    assert all(word is not None and word.endswith(".") for word in words)
    assert "sudo dmesg" in (why_unread(KernelLog("denied")) or "")

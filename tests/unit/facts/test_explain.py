"""From what was looked at to what was concluded, in words."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.facts import (
    Because,
    Conclusion,
    Cpu,
    Disagreement,
    Engine,
    Evidence,
    Gpus,
    HostFacts,
    Memory,
    Platform,
    explain,
)

FACTS = HostFacts(
    Platform("wsl2"),
    Cpu(),
    Memory(),
    Gpus(
        "error",
        disagreements=(
            Disagreement("libnvidia-ml.so.1", (Because("loader", "535"),), "Two.", "DSH-NV-031"),
        ),
    ),
    Engine("absent"),
    (Evidence("nvml", "error", "libnvidia-ml.so.1", 12.34, "odd\nvery odd", 999),),
    (
        Conclusion("gpus nvidia", "error"),
        Conclusion(
            "platform.kind",
            "wsl2",
            (Because("uname", "kernel 5.15-microsoft-standard-WSL2"),),
            (Because("wsl1", "its kernel has the release 4.4"),),
        ),
        Conclusion("what a later version may add", "kept"),
    ),
)


def test_the_whole_text() -> None:
    assert explain.lines(FACTS) == [
        "Why",
        "",
        "platform.kind: wsl2",
        "  because uname: kernel 5.15-microsoft-standard-WSL2",
        "  not wsl1: its kernel has the release 4.4",
        "",
        "gpus nvidia: error",
        "",
        "what a later version may add: kept",
        "",
        "The layers disagree about libnvidia-ml.so.1",
        "  loader: 535",
        "  so Two. (DSH-NV-031)",
        "",
        "What was looked at",
        "",
        "nvml            error          12.3 ms  libnvidia-ml.so.1 (code 999)",
        "                odd",
        "                very odd",
    ]


def test_of_one_section_and_without_times() -> None:
    found = explain.lines(FACTS, ("gpus",), times=False)
    assert "platform.kind: wsl2" not in found
    assert "gpus nvidia: error" in found
    assert not any(" ms" in line for line in found)


@given(st.text(), st.text(), st.text())
def test_any_text_stays_in_its_line(about: str, says: str, detail: str) -> None:
    facts = replace(
        FACTS,
        conclusions=(Conclusion(about, says, (Because(about, says),), (Because(says, detail),)),),
        evidence=(Evidence(about, "error", says, 1.0, detail),),
    )
    for line in explain.lines(facts)[:-2]:
        assert "\n" not in line

"""What changed since the last start: was, is, done."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.container import drift
from dshpc_setup.container.drift import Change
from dshpc_setup.facts import Cpu, Engine, GpuDevice, Gpus, HostFacts, Memory, MigInstance, Platform
from dshpc_setup.observed.drift import GpuDrift
from dshpc_setup.slurm.paths import Paths


def facts(*gpus: GpuDevice, simulated: bool = False) -> HostFacts:
    return HostFacts(
        Platform("linux", in_container=True),
        Cpu(8, usable=8),
        Memory(64000, 64000),
        Gpus("present" if gpus else "absent", gpus, simulated),
        Engine("absent"),
    )


def card(index: int, slurm_type: str = "h100") -> GpuDevice:
    return GpuDevice(
        index, "nvidia", name=f"card {index}", uuid=f"GPU-{index}", slurm_type=slurm_type
    )


def remembered(found: HostFacts, image: str = "one") -> dict[str, Any]:
    return drift.remembered(found, image)


def test_the_first_start_and_the_same_machine_have_no_changes() -> None:
    now = remembered(facts(card(0)))
    assert drift.compare(None, now) == ()
    assert drift.compare(now, remembered(facts(card(0)))) == ()
    nearly = replace(facts(card(0)), memory=Memory(64010, 64010))
    assert drift.compare(now, remembered(nearly)) == ()


def test_facts_of_an_older_version_know_no_image() -> None:
    before = remembered(facts(card(0)))
    del before["image"]
    assert drift.compare(before, remembered(facts(card(0)))) == ()


def test_gpus_are_told_by_type_with_which_are_gone_and_new() -> None:
    before = remembered(facts(card(0), card(1), card(2, "t4")))
    now = remembered(facts(card(0), card(3), card(2, "t4")))
    assert drift.compare(before, now) == (
        Change(
            "GPUs of type h100",
            "2",
            "2 (gone: card 1 (GPU-1); new: card 3 (GPU-3))",
            gpus=GpuDrift("h100", 2, 2, ("card 1 (GPU-1)",)),
            key="gres",
        ),
    )


def test_mig_cpus_memory_driver_and_image_are_told() -> None:
    mig = (MigInstance("1g.10gb", uuid="a"), MigInstance("1g.10gb", uuid="b"))
    cut = replace(card(0), mig_mode="enabled", mig=mig)
    changed = replace(
        facts(cut, card(1)),
        cpu=Cpu(8, usable=4),
        memory=Memory(64000, 32000),
        platform=Platform("wsl2", in_container=True),
    )
    changed = replace(changed, gpus=replace(changed.gpus, driver_version="2"))
    found = drift.compare(remembered(facts(card(0), card(1))), remembered(changed, "two"))
    told = {item.what: (item.was, item.now) for item in found}
    assert told["MIG of card 0 (GPU-0)"] == ("off", "2 x 1g.10gb")
    assert told["CPUs"] == ("8", "4")
    assert told["GPU driver"] == ("not known", "2")
    assert told["Platform"] == ("linux", "wsl2")
    assert told["Image"] == ("one", "two")
    assert "Memory" in told
    assert not any(what.startswith("GPUs") for what in told)


def test_simulated_after_real_is_said() -> None:
    found = drift.compare(remembered(facts(card(0))), remembered(facts(card(0), simulated=True)))
    assert [(item.was, item.now) for item in found] == [("real", "SIMULATED")]


OLD = {"slurm.conf": "NodeName=lab CPUs=8 RealMemory=14746 Gres=gpu:h100:8 State=UNKNOWN\n"}
NEW = {"slurm.conf": "NodeName=lab CPUs=8 RealMemory=7373 Gres=gpu:h100:7 State=UNKNOWN\n"}


def done(key: drift.NodeKey | None, *, own: tuple[str, ...] = (), resumed: bool = False) -> str:
    change = Change("xyzzy", "a", "b", key=key)
    (found,) = drift.with_done([change], (OLD, NEW), "lab", own=own, resumed=resumed)
    return found.done


def test_what_was_made_of_it() -> None:
    assert done("gres") == "Gres is gpu:h100:7 instead of gpu:h100:8"
    assert done("gres", resumed=True).endswith("gpu:h100:8, node resumed")
    assert done("realmemory") == "RealMemory is 7373 MiB instead of 14746 MiB"
    assert done("cpus") == "CPUs stays 8"
    assert done(None) == "nothing had to be"
    assert done("realmemory", own=("slurm.conf",)) == "nothing: config/slurm.conf is yours"


def test_the_block_names_was_is_and_done() -> None:
    text = drift.as_text([Change("Memory", "2 MiB", "1 MiB", "less"), Change("CPUs", "2", "1")])
    assert text.split("\n")[1:] == [
        "  Memory: was 2 MiB, is 1 MiB",
        "    done: less",
        "  CPUs: was 2, is 1",
    ]
    assert drift.as_text([]) == ""


def test_saved_facts_are_found_and_damaged_ones_are_none(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path))
    Path(paths.state).mkdir(parents=True)
    assert drift.load(paths) is None
    now = remembered(facts(card(0)))
    drift.save(paths, now)
    assert drift.load(paths) == json.loads(json.dumps(now))
    for damaged in (b"{", b"[]", b"\xff\xfe", b""):
        (Path(paths.state) / "facts.json").write_bytes(damaged)
        assert drift.load(paths) is None


@pytest.mark.parametrize("gpus", [None, [], "x", {"devices": None}, {"devices": ["x", {}]}, 5])
def test_facts_of_another_shape_are_compared_all_the_same(gpus: object) -> None:
    found = drift.compare({"gpus": gpus, "cpu": 7}, remembered(facts(card(0))))
    assert any(item.what == "GPUs of type h100" for item in found)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["gpus", "cpu", "memory", "platform", "image"]), _JSON))
def test_any_facts_are_compared(before: dict[str, Any]) -> None:
    for item in drift.compare(before, remembered(facts(card(0)))):
        assert item.was != item.now

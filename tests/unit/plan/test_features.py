"""What --constraint may name: true of every GPU of the node, by the sizes that cards are sold by."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.facts import GpuDevice, MigInstance
from dshpc_setup.machine.profiles import MODELS
from dshpc_setup.plan import plan_cluster
from dshpc_setup.settings import load
from tests.unit.plan.made import facts, gpu

MACHINES = Path(__file__).parents[2] / "machines"


def features(*devices: GpuDevice) -> tuple[str, ...]:
    return plan_cluster(facts(*devices), load()).features


def of_size(memory_mib: int | None) -> str | None:
    found = features(replace(gpu(0), memory_mib=memory_mib))
    return next((name for name in found if name.startswith("gpumem")), None)


H100 = replace(gpu(0), memory_mib=81559, compute="9.0")
T4 = replace(gpu(1, "t4", "Tesla T4"), memory_mib=15360, compute="7.5")


def test_of_one_kind() -> None:
    assert features(H100, replace(H100, index=1)) == ("nvidia", "h100", "gpumem80g", "cc9.0")
    assert features() == ()


def test_what_is_not_true_of_all_is_left_out() -> None:
    assert features(H100, T4) == ("nvidia",)
    a100 = replace(gpu(1, "a100"), memory_mib=81920, compute="8.0")
    assert features(H100, a100) == ("nvidia", "gpumem80g")
    unknown = replace(H100, index=1, memory_mib=None, compute=None)
    assert features(H100, unknown) == ("nvidia", "h100")
    amd = replace(gpu(1, "mi300x"), vendor="amd", memory_mib=196592, compute="gfx942")
    assert features(H100, amd) == ()
    assert features(amd) == ("amd", "mi300x", "gpumem192g", "gfx942")


def test_a_gpu_of_no_known_model_has_no_models_name() -> None:
    assert features(GpuDevice(0, "intel", device_files=("/dev/dri/renderD128",))) == ("intel",)


def test_only_gpus_that_jobs_can_get_count() -> None:
    broken = replace(T4, problems=("DSH-NV-020",))
    assert "gpumem80g" in features(H100, broken)


def test_of_mig_instances_their_own_memory() -> None:
    def cut(*profiles: tuple[str, int]) -> GpuDevice:
        parts = (
            MigInstance(name, f"MIG-{number}", mib, ("/dev/nvidia1", f"/dev/c{number}"))
            for number, (name, mib) in enumerate(profiles)
        )
        return replace(H100, index=1, mig_mode="enabled", mig=tuple(parts))

    assert "gpumem10g" in features(cut(("1g.10gb", 9728), ("1g.10gb.me", 9728)))
    assert "gpumem12g" in features(cut(("1g.12gb", 11008)))
    for mixed in ((H100, cut(("1g.10gb", 9728))), (cut(("1g.10gb", 9728), ("3g.40gb", 40448)),)):
        assert features(*mixed) == ("nvidia", "h100", "cc9.0")


@pytest.mark.parametrize(
    ("key", "size"),
    [
        ("t4", 16), ("v100", 32), ("a100", 80), ("a100-40", 40), ("a10", 24), ("a40", 48),
        ("l4", 24), ("l40s", 48), ("h100", 80), ("h200", 141), ("b200", 180), ("rtx2080ti", 11),
        ("rtx3080", 10), ("rtx4090", 24), ("rtx5090", 32), ("a6000", 48), ("mi100", 32),
        ("mi210", 64), ("mi250x", 64), ("mi300x", 192), ("mi325x", 256),
    ],
)  # fmt: skip
def test_sizes_of_models(key: str, size: int) -> None:
    assert of_size(MODELS[key].memory_mib) == f"gpumem{size}g"


SIZES = {
    "Tesla T4": 16, "Tesla K80": 12, "NVIDIA A10": 24, "NVIDIA L4": 24, "NVIDIA A40": 48,
    "NVIDIA A100 80GB PCIe": 80, "NVIDIA A100-SXM4-80GB": 80, "NVIDIA H100 PCIe": 80,
    "NVIDIA H100 80GB HBM3": 80, "NVIDIA GH200 480GB": 96, "NVIDIA GeForce RTX 3080": 10,
    "NVIDIA GeForce RTX 4090": 24, "NVIDIA RTX A5000": 24, "AMD Instinct MI100": 32,
    "AMD Instinct MI210": 64, "AMD Instinct MI250X": 64, "AMD Instinct MI300A": 128,
    "AMD Radeon RX 7900 XTX": 24, "Intel Arc B580": 12, "Intel Data Center GPU Max 1550": 128,
}  # fmt: skip


def test_sizes_of_recorded_cards() -> None:
    seen = set()
    for path in sorted(MACHINES.glob("*/expected/facts.json")):
        for card in json.loads(path.read_text())["gpus"]["devices"]:
            if card["name"] in SIZES and card["memory_mib"] and not card["partition_of"]:
                seen.add(card["name"])
                expected = f"gpumem{SIZES[card['name']]}g"
                assert of_size(card["memory_mib"]) == expected, (path, card["name"])
    assert seen == set(SIZES)


@given(st.integers(1, 1 << 20))
def test_a_size_is_that_of_the_card_or_less_than_a_ninth_more(memory_mib: int) -> None:
    name = of_size(memory_mib)
    if name is None:
        assert memory_mib < 1024
        return
    found = re.fullmatch(r"gpumem([1-9][0-9]*)g", name)
    assert found
    assert int(found[1]) * 0.9 <= memory_mib / 1024 < int(found[1]) + 1


@given(st.text(), st.text())
def test_a_feature_is_a_word_that_slurm_reads(kind: str, compute: str) -> None:
    found = features(replace(gpu(0), slurm_type=kind, compute=compute))
    assert all(re.fullmatch(r"[a-z0-9_.]+", name) for name in found)

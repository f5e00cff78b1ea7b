"""What people may say for the GPUs of a node."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.facts import GpuDevice, MigInstance
from dshpc_setup.plan import devices, names
from dshpc_setup.plan.model import GresLine
from tests.unit.plan.made import gpu

T4 = ("t4", "Tesla T4")


def lines(*found: GpuDevice) -> list[GresLine]:
    return [line for device in found for line in devices.lines_of(device)[0]]


def aliases(*found: GpuDevice) -> dict[str, tuple[str, ...]]:
    return dict(names.aliases(found, lines(*found)))


def test_vendor_and_full_name_stand_for_the_type() -> None:
    assert aliases(gpu(0), gpu(1)) == {"nvidia": ("h100",), "nvidia_h100_80gb_hbm3": ("h100",)}


def test_the_type_of_which_there_are_most_comes_first() -> None:
    found = aliases(gpu(0, *T4), gpu(1), gpu(2))
    assert found["nvidia"] == ("h100", "t4")
    assert found["tesla_t4"] == ("t4",)


def test_whole_cards_before_instances() -> None:
    mig = tuple(
        MigInstance("1g.10gb", f"MIG-{n}", 9728, ("/dev/nvidia1", f"/dev/c{n}")) for n in range(7)
    )
    cut = replace(gpu(1), mig_mode="enabled", mig=mig)
    assert aliases(gpu(0), cut)["nvidia"] == ("h100", "1g.10gb")
    assert "nvidia_h100_80gb_hbm3" not in aliases(cut)


def test_a_name_that_is_a_type_already_means_itself() -> None:
    assert aliases(gpu(0, "nvidia", "A GPU")) == {"a_gpu": ("nvidia",)}


def test_a_model_of_two_types_is_not_guessed() -> None:
    assert "a_gpu" not in aliases(gpu(0, "one", "A GPU"), gpu(1, "two", "A GPU"))


def test_each_vendor_has_its_own() -> None:
    amd = replace(gpu(1, "mi210", "AMD Instinct MI210"), vendor="amd")
    found = aliases(gpu(0), amd)
    assert (found["nvidia"], found["amd"]) == (("h100",), ("mi210",))


def test_no_gpu_no_name() -> None:
    assert aliases() == {}


@pytest.mark.parametrize(
    ("said", "spelled"),
    [
        ("NVIDIA H100 80GB HBM3", "nvidia_h100_80gb_hbm3"),
        ("Tesla T4", "tesla_t4"),
        ("  Odd -- (name) ", "odd_name"),
    ],
)
def test_as_slurmd_spells_it(said: str, spelled: str) -> None:
    assert names.model_name(said) == spelled


@given(st.lists(st.tuples(st.sampled_from(["h100", "t4", "nvidia", "x"]), st.text(max_size=20))))
def test_names_are_words_and_mean_types_of_the_node(made: list[tuple[str, str]]) -> None:
    found = [gpu(index, kind, name) for index, (kind, name) in enumerate(made)]
    types = {line.slurm_type for line in lines(*found)}
    for said, meant in aliases(*found).items():
        assert re.fullmatch(r"[a-z0-9_]+", said)
        assert said not in types
        assert meant
        assert set(meant) <= types

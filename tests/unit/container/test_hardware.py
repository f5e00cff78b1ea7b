"""What the container sees, against its device files, the last start and the image."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from dshpc_setup.container import hardware
from dshpc_setup.facts import GpuDevice, MigInstance
from tests.unit.container.test_drift import facts


def card(index: int, vendor: str = "nvidia") -> GpuDevice:
    return GpuDevice(
        index,
        vendor,
        name=f"card {index}",
        uuid=f"GPU-{index}",
        device_files=(f"/dev/nvidia{index}",),
    )


def test_all_visible_changes_nothing() -> None:
    seen = facts(card(0), card(1))
    assert hardware.only_visible(seen, lambda _: True) == (seen, ())


def test_a_gpu_without_its_device_file_is_left_out_with_words() -> None:
    left, notes = hardware.only_visible(facts(card(0), card(1)), {"/dev/nvidia0"}.__contains__)
    assert [gpu.index for gpu in left.gpus.devices] == [0]
    assert len(notes) == 1
    assert "/dev/nvidia1" in notes[0]
    assert "configure-environment" in notes[0]


def test_no_gpu_left_says_why() -> None:
    left, notes = hardware.only_visible(facts(card(0)), lambda _: False)
    assert left.gpus.state == "absent"
    assert left.gpus.detail == notes[0]


def test_only_the_mig_instance_without_its_files_is_left_out() -> None:
    mig = tuple(
        MigInstance("1g.10gb", uuid=f"MIG-{n}", device_files=("/dev/nvidia0", f"/dev/cap{n}"))
        for n in (1, 2)
    )
    seen = facts(replace(card(0), mig_mode="enabled", mig=mig))
    left, notes = hardware.only_visible(seen, {"/dev/nvidia0", "/dev/cap2"}.__contains__)
    assert [item.uuid for item in left.gpus.devices[0].mig] == ["MIG-2"]
    assert len(notes) == 1


@pytest.mark.parametrize(
    ("built_for", "vendors", "words"),
    [
        ("none", (), None),
        ("none", ("nvidia",), "built for no GPU, but NVIDIA GPUs are visible"),
        ("nvidia", ("nvidia",), None),
        ("nvidia", ("amd", "nvidia"), "but AMD GPUs are visible"),
        ("all", ("amd", "nvidia"), None),
        ("amd", (), "none is visible"),
    ],
)
def test_the_image_is_set_against_the_hardware(
    built_for: str, vendors: tuple[str, ...], words: str | None
) -> None:
    seen = facts(*(card(n, vendor) for n, vendor in enumerate(vendors)))
    note = hardware.image_note(built_for, seen)
    assert note is None if words is None else note is not None and words in note


def test_made_up_gpus_ask_nothing_of_the_image() -> None:
    assert hardware.image_note("none", facts(card(0), simulated=True)) is None


def test_gpus_that_the_host_keeps_back_are_not_missed() -> None:
    there = {"/dev/nvidia1"}
    env = {"DSHPC_SIMULATE_WITHOUT": "/dev/nvidia0"}
    machine: Any = SimpleNamespace(env=env, is_device=there.__contains__)
    assert hardware.not_handed_in(machine, "h100:2") is None
    there.clear()
    note = hardware.not_handed_in(machine, "h100:2")
    assert note is not None
    assert "left out: /dev/nvidia1 is not in this container" in note

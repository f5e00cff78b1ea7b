"""What the container sees, against its device files, the last start and the image."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dshpc_setup.container import hardware
from dshpc_setup.facts import Cpu, Engine, GpuDevice, Gpus, HostFacts, Memory, MigInstance, Platform
from dshpc_setup.plan import ClusterPlan


def facts(*gpus: GpuDevice, simulated: bool = False) -> HostFacts:
    return HostFacts(
        Platform("linux", in_container=True),
        Cpu(8, usable=8),
        Memory(64000, 64000),
        Gpus("present" if gpus else "absent", gpus, simulated),
        Engine("absent"),
    )


def card(index: int, vendor: str = "nvidia") -> GpuDevice:
    assert vendor in ("nvidia", "amd", "intel")
    return GpuDevice(
        index,
        vendor,  # type: ignore[arg-type]
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


def test_the_first_start_has_no_changes() -> None:
    assert hardware.changes(None, hardware.remembered(facts(card(0)))) == ()


def test_the_same_machine_has_no_changes() -> None:
    one = hardware.remembered(facts(card(0)))
    other = hardware.remembered(replace(facts(card(0)), memory=Memory(64010, 64010)))
    assert hardware.changes(one, other) == ()


def test_changes_are_named() -> None:
    before = hardware.remembered(facts(card(0), card(1)))
    now = hardware.remembered(
        replace(facts(card(0), card(2)), cpu=Cpu(4, usable=4), memory=Memory(1, 32000))
    )
    text = "\n".join(hardware.changes(before, now))
    assert "GPU gone: card 1 (GPU-1)" in text
    assert "GPU new: card 2 (GPU-2)" in text
    assert "CPUs: 8 before, 4 now" in text
    assert "Memory: " in text
    assert "card 0" not in text


def test_simulated_after_real_is_said() -> None:
    before = hardware.remembered(facts(card(0)))
    now = hardware.remembered(facts(card(0), simulated=True))
    assert any("SIMULATED" in text for text in hardware.changes(before, now))


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


def test_nvml_is_not_asked_for_where_slurm_has_no_plugin_for_it(tmp_path: Path) -> None:
    plan = ClusterPlan("a", "a", "debug", 1, 1000, 1000, autodetect="nvml")
    assert hardware.without_missing_plugin(plan, str(tmp_path)).autodetect == "off"
    plugin = tmp_path / "x86_64-linux-gnu/slurm-wlm/gpu_nvml.so"
    plugin.parent.mkdir(parents=True)
    plugin.touch()
    assert hardware.without_missing_plugin(plan, str(tmp_path)).autodetect == "nvml"

"""Which GPU stands at which place of slurmd's list, and when it has to be asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.container import gpu_places
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import GpuDevice, MigInstance, State, Vendor
from dshpc_setup.plan.devices import LINKS
from dshpc_setup.plan.model import ClusterPlan, DeviceLink, GresLine, Isolation
from dshpc_setup.problems import LOST
from dshpc_setup.slurm import gpus as slurm_gpus
from dshpc_setup.slurm.paths import Paths
from tests.unit.engine.fake import Answer, FakeMachine

NVIDIA = "CUDA_VISIBLE_DEVICES - NVIDIA_VISIBLE_DEVICES void CUDA_DEVICE_ORDER=PCI_BUS_ID -"
PLAN = ClusterPlan("c", "n", "debug", 8, 1000, 100)


def card(index: int, kind: str = "h100", vendor: Vendor = "nvidia", **more: object) -> GpuDevice:
    files = (f"/dev/nvidia{index}",) if vendor == "nvidia" else (f"/dev/dri/renderD{128 + index}",)
    device = GpuDevice(
        index,
        vendor,
        uuid=f"GPU-{index}",
        pci_bus_id=f"0000:{index:02x}:00.0",
        slurm_type=kind,
        device_files=files if vendor != "amd" else ("/dev/kfd", *files),
    )
    return replace(device, **more)  # type: ignore[arg-type]


def line(device: GpuDevice) -> GresLine:
    return GresLine(device.slurm_type, device.vendor, device.device_files, device.index)


def said(*files: str, uuid: str = "") -> str:
    """As `slurmd -G` of 24.11 prints it."""
    words = f" UniqueId={uuid}" if uuid else ""
    return "".join(
        f"slurmd-n: Gres Name=gpu Type=x Count=1 Index=7 ID=7696487 File={file} Links=(null)"
        f" Flags=HAS_FILE,HAS_TYPE,ENV_NVML{words}\n"
        for file in files
    )


def table(said: str, gpus: list[GpuDevice], isolation: Isolation = "default") -> str:
    return gpu_places.table(slurm_gpus.parse(said), gpus, isolation)


def rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("gpu ")]


def test_types_that_alternate() -> None:
    gpus = [card(0), card(1, "t4"), card(2)]
    text = table(said("/dev/nvidia0", "/dev/nvidia2", "/dev/nvidia1"), gpus)
    assert text.splitlines() == [
        "tier default",
        f"vendor nvidia number {NVIDIA}",
        "gpu 0 nvidia 0 GPU-0",
        "gpu 2 nvidia 1 GPU-1",
        "gpu 1 nvidia 2 GPU-2",
    ]


def test_types_that_do_not_alternate_stay_where_they_are() -> None:
    gpus = [card(0), card(1), card(2, "t4")]
    text = table(said("/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2"), gpus)
    assert rows(text) == [f"gpu {n} nvidia {n} GPU-{n}" for n in range(3)]


def test_no_gpu_no_table_and_gpus_of_nobody_are_hidden() -> None:
    assert table("", []) == ""
    assert rows(table("", [card(0), card(1)])) == ["gpu - nvidia - -"]


def test_each_vendor_is_counted_by_itself() -> None:
    gpus = [card(0), card(1, "mi210", "amd"), card(2, "mi210", "amd")]
    text = table(
        said("/dev/nvidia0", "/dev/dri/renderD129", "/dev/dri/renderD130"), gpus, "enforced"
    )
    assert text.startswith("tier enforced\n")
    assert rows(text) == ["gpu 1 amd 0 GPU-1", "gpu 2 amd 1 GPU-2", "gpu 0 nvidia 0 GPU-0"]


def test_a_vendor_without_a_place_is_named_all_the_same() -> None:
    gpus = [card(0), card(1, "mi210", "amd")]
    assert rows(table(said("/dev/nvidia0"), gpus)) == [
        "gpu - amd - -",
        "gpu 0 nvidia 0 GPU-0",
    ]


def test_what_a_task_is_told_of_each_vendor() -> None:
    """HIP would read CUDA's list where it has none of its own, and only beside NVIDIA's is there one."""
    amd, intel = card(0, "mi210", "amd"), card(1, "arc", "intel")
    assert "vendor amd number ROCR_VISIBLE_DEVICES - - - - ?GPU_DEVICE_ORDINAL\n" in table(
        "", [amd]
    )
    both = table(said("/dev/dri/renderD128"), [amd, intel]).splitlines()
    assert both == [
        "tier default",
        "vendor amd number ROCR_VISIBLE_DEVICES - - - - HIP_VISIBLE_DEVICES,?GPU_DEVICE_ORDINAL",
        "gpu 0 amd 0 GPU-0",
        "vendor intel number ZE_AFFINITY_MASK 65535 - - - -",
        "gpu - intel - -",
    ]


def test_an_instance_has_a_uuid_and_no_number() -> None:
    parts = ("/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap13")
    mig = (MigInstance("1g.10gb", "MIG-1", 9728, parts),)
    gpus = [card(0), card(1, mig_mode="enabled", mig=mig)]
    text = table(said(",".join(parts), "/dev/nvidia0"), gpus)
    assert f"vendor nvidia uuid {NVIDIA}" in text.splitlines()
    assert rows(text) == ["gpu 1 nvidia 0 GPU-0", "gpu 0 nvidia - MIG-1"]
    by_uuid = table(said("/dev/nvidia9", uuid="MIG-1"), gpus)
    assert rows(by_uuid) == ["gpu 0 nvidia - MIG-1"]


def test_pci_order_counts_and_not_the_names_of_the_nodes() -> None:
    gpus = [card(0, pci_bus_id="0000:90:00.0"), card(1, pci_bus_id="0000:10:00.0")]
    text = table(said("/dev/nvidia0", "/dev/nvidia1"), gpus)
    assert rows(text) == ["gpu 1 nvidia 0 GPU-1", "gpu 0 nvidia 1 GPU-0"]


def test_rocm_counts_in_the_order_of_the_facts() -> None:
    gpus = [
        card(0, "mi210", "amd", pci_bus_id="0000:90:00.0"),
        card(1, "mi210", "amd", pci_bus_id="0000:10:00.0"),
    ]
    text = table(said("/dev/dri/renderD128", "/dev/dri/renderD129"), gpus)
    assert rows(text) == ["gpu 0 amd 0 GPU-0", "gpu 1 amd 1 GPU-1"]


def test_a_card_that_cuda_does_not_count_makes_uuids_of_all() -> None:
    gpus = [card(0, problems=(LOST,)), card(1)]
    text = table(said("/dev/nvidia1"), gpus)
    assert f"vendor nvidia uuid {NVIDIA}" in text.splitlines()
    assert rows(text) == ["gpu 0 nvidia 1 GPU-1"]


def test_links_that_tell_gpus_of_one_node_apart() -> None:
    gpus = [
        card(0, device_files=("/dev/dxg",), pci_bus_id=None),
        card(1, "t4", device_files=("/dev/dxg",), pci_bus_id=None),
        card(2, device_files=("/dev/dxg",), pci_bus_id=None),
    ]
    text = table(said(*(f"{LINKS}/dxg{n}" for n in (0, 2, 1))), gpus)
    assert rows(text) == ["gpu 0 nvidia 0 GPU-0", "gpu 2 nvidia 1 GPU-1", "gpu 1 nvidia 2 GPU-2"]


def test_shares_are_no_places() -> None:
    gpus = [card(0), card(1, "t4"), card(2)]
    plain = said("/dev/nvidia0", "/dev/nvidia2", "/dev/nvidia1")
    shared = "".join(f"{line.replace('gpu', 'shard')}\n{line}\n" for line in plain.splitlines())
    assert table(shared, gpus) == table(plain, gpus)


def test_a_uuid_that_a_shell_could_trip_over_is_left_out() -> None:
    gpus = [card(0, uuid="GPU 0\ngpu 0 amd"), card(1, "t4"), card(2)]
    text = table(said("/dev/nvidia0", "/dev/nvidia2", "/dev/nvidia1"), gpus)
    assert rows(text)[0] == "gpu 0 nvidia 0 -"


@given(
    st.permutations(range(6)), st.lists(st.sampled_from(["nvidia", "amd"]), min_size=6, max_size=6)
)
def test_each_place_is_said_once_with_its_own_gpu(order: list[int], vendors: list[Vendor]) -> None:
    gpus = [card(index, "x", vendor) for index, vendor in enumerate(vendors)]
    text = table(said(*(gpus[index].device_files[-1] for index in order)), gpus)
    found = {}
    for row in rows(text):
        _, place, vendor, number, uuid = row.split()
        own = [gpu for gpu in gpus if gpu.vendor == vendor]
        assert own[int(number)].uuid == uuid
        found[int(place)] = uuid
    expected = {place: f"GPU-{index}" for place, index in enumerate(order)}
    assert found == expected


@given(st.text(max_size=300))
def test_any_answer_of_slurmd_is_read(text: str) -> None:
    for line in table(f"Gres Name=gpu {text}", [card(0), card(1, "t4")]).splitlines():
        assert line.split()[0] in ("tier", "vendor", "gpu")


ALIKE = [card(0), card(1)]
MIXED = [card(0), card(1, "t4")]


@pytest.mark.parametrize(
    ("gpus", "used", "own", "needed"),
    [
        (ALIKE, ALIKE, False, False),
        (ALIKE, ALIKE, True, True),
        (ALIKE, ALIKE[:1], False, False),
        (ALIKE, ALIKE[1:], False, True),  # --devices 1: its place is 0
        (ALIKE, [], False, False),
        (MIXED, MIXED, False, True),
        ([card(0), card(1, "mi210", "amd")], [card(0)], False, True),
        ([card(0, mig_mode="enabled"), card(1)], [card(1)], False, True),
        ([card(0, pci_bus_id="0000:99:00.0"), card(1)], ALIKE, False, True),
        ([], [], True, False),
    ],
)
def test_when_slurmd_is_asked(
    gpus: list[GpuDevice], used: list[GpuDevice], own: bool, needed: bool
) -> None:
    plan = replace(PLAN, gres=tuple(map(line, used)))
    assert gpu_places.needed(gpus, plan, own_gres=own) is needed


def test_links_are_asked_for() -> None:
    plan = replace(PLAN, gres=tuple(map(line, ALIKE)))
    plan = replace(plan, device_links=(DeviceLink(f"{LINKS}/dxg0", "/dev/dxg"),))
    assert gpu_places.needed(ALIKE, plan, own_gres=False)


def machine(state: State = "present", code: int = 0) -> FakeMachine:
    text = said("/dev/nvidia1", "/dev/nvidia0")
    answer = Answer(code=code, stderr=text, state=state)
    return FakeMachine(commands={"slurmd -G -N n": answer})


def test_the_table_lies_where_each_user_can_read_it(paths: Paths) -> None:
    plan = replace(PLAN, gres=tuple(map(line, MIXED)))
    gpu_places.write(machine(), "ask.conf", paths, "n", MIXED, plan, own_gres=False)
    file = Path(gpu_places.path(paths))
    assert rows(file.read_text()) == ["gpu 1 nvidia 0 GPU-0", "gpu 0 nvidia 1 GPU-1"]
    assert file.stat().st_mode & 0o777 == 0o644


def test_of_one_type_the_plan_says_the_places(paths: Paths) -> None:
    plan = replace(PLAN, gres=tuple(map(line, ALIKE)))
    unasked = FakeMachine()
    gpu_places.write(unasked, "ask.conf", paths, "n", ALIKE, plan, own_gres=False)
    assert unasked.ran == []
    text = Path(gpu_places.path(paths)).read_text()
    assert rows(text) == ["gpu 0 nvidia 0 GPU-0", "gpu 1 nvidia 1 GPU-1"]


def test_a_table_that_is_not_true_any_more_goes(paths: Paths) -> None:
    Path(gpu_places.path(paths)).write_text("gpu 0 nvidia 1 GPU-1\n")
    for _ in range(2):
        gpu_places.write(FakeMachine(), "ask.conf", paths, "n", [], PLAN, own_gres=False)
        assert not Path(gpu_places.path(paths)).exists()


@pytest.mark.parametrize(("state", "code"), [("present", 1), ("timeout", 0)])
def test_no_list_no_guess(paths: Paths, state: State, code: int) -> None:
    plan = replace(PLAN, gres=tuple(map(line, MIXED)))
    with pytest.raises(DshpcError, match="slurmd does not list its GPUs"):
        gpu_places.write(machine(state, code), "ask.conf", paths, "n", MIXED, plan, own_gres=False)

from __future__ import annotations

from dataclasses import replace

import pytest

from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.facts import (
    Cpu,
    Engine,
    GpuDevice,
    Gpus,
    HostFacts,
    Memory,
    MigInstance,
    Platform,
)
from dshpc_setup.plan import plan_cluster
from dshpc_setup.settings import load


def gpu(index: int, kind: str = "h100", name: str = "NVIDIA H100 80GB HBM3") -> GpuDevice:
    return GpuDevice(
        index,
        "nvidia",
        name,
        uuid=f"GPU-{index}",
        slurm_type=kind,
        device_files=(f"/dev/nvidia{index}",),
        mig_mode="disabled",
    )


def facts(*devices: GpuDevice, **changes: object) -> HostFacts:
    gpus = Gpus("present", devices) if devices else Gpus("absent", detail="No GPU was found.")
    base = HostFacts(
        Platform("linux"), Cpu(8, 1, 4, 2, 8), Memory(16000, 16000), gpus, Engine("present")
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def test_a_node_without_a_gpu() -> None:
    plan = plan_cluster(facts(), load())
    assert (plan.gres_text, plan.gpu_type, plan.left_out) == ("", "none", ("No GPU was found.",))
    assert (plan.cpus, plan.real_memory_mib, plan.def_mem_per_cpu_mib) == (8, 14400, 1800)
    assert (plan.sockets, plan.cores_per_socket, plan.threads_per_core) == (1, 4, 2)


def test_gpus_become_lines_in_order_and_names_that_also_work() -> None:
    plan = plan_cluster(facts(gpu(1), gpu(0)), load())
    assert plan.gres_text == "gpu:h100:2"
    assert [line.files for line in plan.gres] == [("/dev/nvidia0",), ("/dev/nvidia1",)]
    assert plan.aliases == {"nvidia": "h100", "nvidia_h100_80gb_hbm3": "h100"}
    assert plan.oversubscribe == 1


def test_a_denied_driver_is_no_gpu_but_says_so() -> None:
    state = Gpus("denied", detail="NVML: no permission.")
    plan = plan_cluster(facts(gpus=state), load())
    assert plan.gres == ()
    assert plan.left_out == ("NVML: no permission.",)


def test_mixed_types_leave_the_vendor_name_open() -> None:
    plan = plan_cluster(facts(gpu(0), gpu(1, "t4", "Tesla T4")), load())
    assert plan.gres_text == "gpu:h100:1,gpu:t4:1"
    assert plan.aliases["nvidia"] == ""
    assert plan.aliases["tesla_t4"] == "t4"


def test_mig_instances_beside_a_whole_card() -> None:
    card = replace(
        gpu(1),
        mig_mode="enabled",
        mig=(
            MigInstance("1g.10gb", "MIG-a", 9728, ("/dev/nvidia1", "/dev/c1", "/dev/c2")),
            MigInstance("1g.10gb", "MIG-b", 9728, ("/dev/nvidia1", "/dev/c3", "/dev/c4")),
        ),
    )
    plan = plan_cluster(facts(gpu(0), card), load())
    assert plan.gres_text == "gpu:h100:1,gpu:1g.10gb:2"
    chosen = plan_cluster(facts(gpu(0), card), load(flags={"devices": "MIG-b"}))
    assert [line.uuid for line in chosen.gres] == ["MIG-b"]


def test_nvml_names_real_mig_instances_where_slurm_has_its_plugin() -> None:
    part = MigInstance("1g.10gb", "MIG-a", 9728, ("/dev/nvidia1", "/dev/c1", "/dev/c2"))
    cut = replace(gpu(1), mig_mode="enabled", mig=(part,))
    real = facts(gpu(0), cut)
    assert plan_cluster(real, load()).autodetect == "nvml"
    assert plan_cluster(facts(gpu(0)), load()).autodetect == "off"
    assert plan_cluster(real, load(flags={"devices": "0"})).autodetect == "off"
    made_up = replace(real, gpus=replace(real.gpus, simulated=True))
    assert plan_cluster(made_up, load()).autodetect == "off"
    arm = replace(real, platform=Platform("linux", arch="aarch64"))
    assert plan_cluster(arm, load()).autodetect == "off"


def test_devices_are_not_named_in_vain() -> None:
    for state in ("absent", "denied", "timeout", "error"):
        gpus = Gpus(state, detail="NVML: why.")
        with pytest.raises(DshpcError) as caught:
            plan_cluster(facts(gpus=gpus), load(flags={"devices": "0"}))
        assert caught.value.exit_code == Exit.USAGE
        assert state in caught.value.brief
        assert caught.value.details == "NVML: why."
        without = load(flags={"devices": "0", "gpu": "none"})
        assert plan_cluster(facts(gpus=gpus), without).gres == ()


def test_a_mig_card_without_instances_and_a_broken_card_are_left_out_with_words() -> None:
    empty = replace(gpu(0), mig_mode="enabled")
    broken = replace(gpu(1), problems=("DSH-NV-020",))
    plan = plan_cluster(facts(empty, broken, gpu(2)), load())
    assert plan.gres_text == "gpu:h100:1"
    assert "no instances" in plan.left_out[0]
    assert "DSH-NV-020" in plan.left_out[1]


def test_more_gpus_than_cpus_can_all_be_used() -> None:
    cpu = Cpu(2, 1, 2, 1, 2)
    plan = plan_cluster(facts(*(gpu(index) for index in range(8)), cpu=cpu), load())
    assert plan.oversubscribe == 4
    assert plan.def_mem_per_cpu_mib == 1800  # an eighth: eight jobs at once


def test_limits_hide_the_shape_of_the_machine() -> None:
    limited = Cpu(8, 1, 4, 2, usable=2, limited_by="cpuset")
    plan = plan_cluster(facts(cpu=limited), load())
    assert (plan.cpus, plan.sockets) == (2, None)


def test_the_engines_own_machine_may_be_smaller() -> None:
    engine = Engine("present", cpus=4, memory_mib=8000)
    plan = plan_cluster(facts(engine=engine), load())
    assert (plan.cpus, plan.real_memory_mib, plan.sockets) == (4, 7200, None)


def test_the_reserve_is_a_setting() -> None:
    assert plan_cluster(facts(), load(flags={"reserve_mib": "1000"})).real_memory_mib == 15000
    assert plan_cluster(facts(), load(flags={"reserve_mib": "99999"})).real_memory_mib == 1


def test_devices_are_chosen_by_index_or_uuid() -> None:
    plan = plan_cluster(facts(gpu(0), gpu(1), gpu(2)), load(flags={"devices": "GPU-2,0"}))
    assert [line.index for line in plan.gres] == [0, 2]
    with pytest.raises(DshpcError) as caught:
        plan_cluster(facts(gpu(0)), load(flags={"devices": "7"}))
    assert caught.value.exit_code == Exit.USAGE
    assert "0 (NVIDIA H100 80GB HBM3)" in caught.value.details


def test_gpu_none_and_another_vendor() -> None:
    assert plan_cluster(facts(gpu(0)), load(flags={"gpu": "none"})).gres == ()
    plan = plan_cluster(facts(gpu(0)), load(flags={"gpu": "amd"}))
    assert plan.gres == ()
    assert "gpu = amd" in plan.left_out[0]
